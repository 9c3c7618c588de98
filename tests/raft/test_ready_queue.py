"""The order in which any driver carries out the core's work."""

from typing import TYPE_CHECKING, Any

import pytest

from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.raft.events import (
    ElectionState,
    Flush,
    LeaderAndEpoch,
    Ready,
    Refusal,
    Respond,
    Send,
    TruncateTo,
)
from sparkraft.raft.ready_queue import ReadyQueue
from sparkraft.raft.voters import Node

if TYPE_CHECKING:
    from collections.abc import Callable

ELECTION = ElectionState(epoch=LeaderEpoch(3))


class Recorder:
    """Duties that note their calls, and may run more work within one."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.within_send: Callable[[], Any] = lambda: None

    def write_log(self, effects: Any) -> None:
        self.calls.append(f"log {len(effects)}")

    def begin_flush(self, flush: Flush) -> None:
        self.calls.append(f"flush {flush.up_to}")

    def send(self, requests: Any) -> None:
        self.calls.append(f"send {len(requests)}")
        self.within_send()

    def respond(self, responses: Any) -> None:
        self.calls.append(f"respond {len(responses)}")

    def publish(self, leader: LeaderAndEpoch | None, high_watermark: Offset | None) -> None:
        self.calls.append(f"publish {leader and leader.epoch} {high_watermark}")

    def set_timer(self, wake_at: Millis | None) -> None:
        self.calls.append(f"timer {wake_at}")


def full(**changes: Any) -> Ready:
    send: Any = Send(correlation_id=1, to=Node(BrokerId(2), "h", 1), request=Refusal, timeout_ms=1)  # type: ignore[arg-type]
    fields: dict[str, Any] = {
        "log": [TruncateTo(offset=Offset(1))],
        "flush": Flush(up_to=Offset(5), generation=0),
        "send": [send],
        "respond": [Respond(request_id=1, response=Refusal)],  # type: ignore[arg-type]
        "leader": LeaderAndEpoch(None, LeaderEpoch(3)),
        "high_watermark": Offset(4),
        "wake_at": Millis(9),
    }
    return Ready(**{**fields, **changes})


ALL = ["log 1", "flush 5", "send 1", "respond 1", "publish 3 4", "timer 9"]
NOTHING_NEW = ["publish None None", "timer None"]


def test_fields_are_carried_out_in_their_order() -> None:
    duties = Recorder()
    assert ReadyQueue(duties).add(full()) is None
    assert duties.calls == ALL


def test_nothing_happens_before_the_election_state_is_on_disk() -> None:
    duties = Recorder()
    queue = ReadyQueue(duties)
    assert queue.add(full(persist=ELECTION)) is ELECTION
    assert queue.add(Ready()) is None
    assert duties.calls == []
    assert queue.resume() is None
    assert duties.calls == [*ALL, *NOTHING_NEW]


def test_a_second_election_state_is_written_after_the_first_ready_is_done() -> None:
    duties = Recorder()
    queue = ReadyQueue(duties)
    queue.add(full(persist=ELECTION))
    second = ElectionState(epoch=LeaderEpoch(4))
    queue.add(full(persist=second))
    assert queue.resume() is second
    assert duties.calls == ALL
    assert queue.resume() is None
    assert duties.calls == ALL + ALL


def test_work_caused_by_a_duty_waits_until_its_ready_is_done() -> None:
    duties = Recorder()
    queue = ReadyQueue(duties)
    duties.within_send = lambda: queue.add(Ready())
    assert queue.add(full()) is None
    assert duties.calls == [*ALL, *NOTHING_NEW]


def test_nothing_is_carried_out_after_a_duty_has_failed() -> None:
    duties = Recorder()
    queue = ReadyQueue(duties)

    def fail() -> None:
        raise OSError

    duties.within_send = fail
    with pytest.raises(OSError):  # noqa: PT011 (it has no text)
        queue.add(full())
    assert queue.add(full()) is None
    assert duties.calls == ALL[:3]

"""Two followers whose leader is gone elect one of them at once, in whatever order things happen.

Every order in which two refusals, two timers and all messages between the two can come is played,
so a message may be late by as much as everything else takes.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset
from sparkraft.raft.events import (
    ElectionState,
    Event,
    Failure,
    FetchResponse,
    LogFlushed,
    QuorumConfig,
    Ready,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Send,
    TimerFired,
    VoteRequest,
)
from sparkraft.raft.log_view import RecoveredLog
from sparkraft.raft.quorum import Quorum
from sparkraft.raft.states import Leader
from sparkraft.raft.voters import ReplicaKey, VoterSet, without_directories
from sparkraft.simulation.world.core_node import LISTENER, directory_of, endpoint_of, voter_of

EPOCH = LeaderEpoch(4)
DEAD = BrokerId(2)
JITTER_MS = 1
VOTERS = without_directories(VoterSet.of(voter_of(node_id) for node_id in (1, 2, 3)))

Action = Callable[[], None]


class AlwaysTheSame:
    """Both roll the same jitter."""

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def below(self, bound: int) -> int:
        return min(JITTER_MS, bound - 1)


class Pair:
    """Voters 1 and 3, who fetch from voter 2 until its process is killed; `ends` are their logs'.

    What may happen next stands in `open`; timers that are due may be late like anything else, and
    the clock goes on by the jitter at any moment, for either of them.
    """

    def __init__(self, ends: tuple[int, int]) -> None:
        self.now = Millis(0)
        self.open: list[Action] = []
        self.wakes: dict[int, Millis | None] = {}
        self.asked: dict[tuple[int, int], int] = {}
        self.request_id = 0
        self.asking: dict[int, tuple[int, int]] = {}
        self.replicas = {
            node_id: _follower(node_id, end) for node_id, end in zip((1, 3), ends, strict=True)
        }
        for node_id, quorum in self.replicas.items():
            self.take(node_id, quorum.start(self.now))
            self._hear_leader(node_id)
        for node_id in self.replicas:
            self.open.append(lambda node_id=node_id: self._refuse(node_id))  # type: ignore[misc]

    def _hear_leader(self, node_id: int) -> None:
        answer = FetchResponse(
            error=ErrorCode.NONE, epoch=EPOCH, leader_id=DEAD, leader_endpoints=(endpoint_of(DEAD),)
        )
        correlation_id = self.asked[node_id, DEAD]
        self.step(node_id, ResponseReceived(correlation_id=correlation_id, response=answer))

    def _refuse(self, node_id: int) -> None:
        correlation_id = self.asked[node_id, DEAD]
        self.step(node_id, RequestFailed(correlation_id=correlation_id, failure=Failure.REFUSED))

    def step(self, node_id: int, event: Event) -> None:
        self.take(node_id, self.replicas[node_id].step(event, self.now))

    def take(self, node_id: int, ready: Ready) -> None:
        """Disks are fast here: what must be written is."""
        if ready.flush is not None:
            flushed = LogFlushed(up_to=ready.flush.up_to, generation=ready.flush.generation)
            self.open.append(lambda: self.step(node_id, flushed))
        for send in ready.send:
            self._send(node_id, send)
        for respond in ready.respond:
            self._respond(node_id, respond.request_id, respond.response)
        self.wakes[node_id] = ready.wake_at

    def _send(self, node_id: int, send: Send) -> None:
        to = send.to.id
        self.asked[node_id, to] = send.correlation_id
        if to == DEAD or not isinstance(send.request, VoteRequest):
            return
        self.request_id += 1
        self.asking[self.request_id] = (node_id, send.correlation_id)
        received = RequestReceived(request_id=self.request_id, request=send.request)
        self.open.append(lambda: self.step(to, received))

    def _respond(self, node_id: int, request_id: int, answer: Any) -> None:
        asker, correlation_id = self.asking[request_id]
        event = ResponseReceived(correlation_id=correlation_id, response=answer)
        self.open.append(lambda: self.step(asker, event))

    def due(self) -> list[int]:
        return [n for n, wake in self.wakes.items() if wake is not None and wake <= self.now]

    def choices(self) -> list[Action]:
        timers = [lambda n=n: self.step(n, TimerFired()) for n in self.due()]
        pending = [*self.open, *timers]
        may_pass = self.now < (2 * JITTER_MS if pending else 4 * JITTER_MS)
        return [*pending, *([self._pass] if may_pass else [])]

    def _pass(self) -> None:
        self.now = Millis(self.now + JITTER_MS)

    def choose(self, place: int) -> None:
        action = self.choices()[place]
        if place < len(self.open):
            del self.open[place]
        action()

    def leaders(self) -> list[int]:
        return [n for n, quorum in self.replicas.items() if isinstance(quorum.state, Leader)]


def _follower(node_id: int, end: int) -> Quorum:
    config = QuorumConfig(
        cluster_id="c",
        local=ReplicaKey(BrokerId(node_id), directory_of(node_id)),
        listener=LISTENER,
        endpoints=(endpoint_of(node_id),),
        bootstrap=(),
        can_become_voter=True,
    )
    log = RecoveredLog(end=Offset(end), epochs=((EPOCH, Offset(0)),))
    election = ElectionState(epoch=EPOCH, leader_id=DEAD)
    return Quorum(config, log, election, static_voters=VOTERS, entropy=AlwaysTheSame())


def every_order(ends: tuple[int, int]) -> Iterator[tuple[list[int], Pair]]:
    """Each order of events until somebody leads or nothing is left to happen."""
    order: list[int] = []
    while True:
        pair, widths = Pair(ends), []
        while pair.choices() and not pair.leaders():
            widths.append(len(pair.choices()))
            if len(order) < len(widths):
                order.append(0)
            pair.choose(order[len(widths) - 1])
        yield order[: len(widths)], pair
        # The next order: the last choice that had another one left.
        order = order[: len(widths)]
        while order and order[-1] + 1 == widths[len(order) - 1]:
            order.pop()
        if not order:
            return
        order[-1] += 1


@pytest.mark.parametrize("ends", [(7, 7), (7, 5), (5, 7)], ids=["alike", "1-longer", "3-longer"])
def test_one_of_two_that_are_refused_leads_the_next_epoch(ends: tuple[int, int]) -> None:
    played = 0
    for order, pair in every_order(ends):
        assert pair.leaders(), f"{order}: {[q.state for q in pair.replicas.values()]}"
        (leader,) = pair.leaders()
        assert pair.replicas[leader].state.epoch == EPOCH + 1, order
        assert ends[0] == ends[1] or leader == (1 if ends[0] > ends[1] else 3), order
        played += 1
    assert played > 1_000

"""The committed log read again: all of it, up to a moment, and from a snapshot on."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Offset, Uuid
from sparkraft.controller.decision import Decision
from sparkraft.controller.history import History
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.metadata.snapshot import records_of
from sparkraft.protocol.messages.metadata_records import NoOpRecord, TopicRecord
from sparkraft.records.batch import iter_batches
from sparkraft.records.control import ControlType, control_batch
from sparkraft.server.raft import past_reader as reading
from sparkraft.server.raft.past_reader import HistoryQuery, PastReader
from tests.controller.cluster_of import Cluster
from tests.server.raft.test_driver import Member, run, until
from tests.support.ports import lasting_ports


class Recorded(Cluster):
    """A controller by hand that keeps its batches as they would be appended."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[Any, int]]] = []
        super().__init__()

    def carry_out(self, decision: Decision, *, commit: bool = True) -> Any:
        if decision.records:
            self.batches.append(list(decision.records))
        return super().carry_out(decision, commit=commit)


def lives() -> Recorded:
    """Three brokers, a partition, two elections."""
    cluster = Recorded()
    cluster.start(1, 2, 3)
    cluster.create("t", replicas=[[1, 2, 3]])
    cluster.create("u", replicas=[[1, 2]])
    cluster.fence(1)
    cluster.heartbeat(1)
    cluster.fence(2)
    return cluster


async def appended(member: Member, batches: list[list[tuple[Any, int]]]) -> list[int]:
    """Append all with idle records between; the offsets of the batches' last records."""
    offsets = []
    epoch = member.driver.leader_and_epoch.epoch
    for batch in batches:
        offsets.append(await member.driver.append(batch, epoch=epoch))
        for idle in (1, 2):  # as an idle controller writes them, and in company
            await member.driver.append([(NoOpRecord(), 0)] * idle, epoch=epoch)
    await until(lambda: member.driver.high_watermark == member.driver.log_end_offset)
    return offsets


def question(**fields: Any) -> HistoryQuery:
    settings = {"wanted": lambda topic, _: topic == "t", "events_max": 100, **fields}
    return HistoryQuery(**settings)


def leaders(history: Any, cluster: Cluster, name: str = "t") -> list[int]:
    events = history.partition_events(cluster.core.latest.topics_by_name[name], 0)
    return [event.after.leader for event in events if event.leader_changed]


def test_everything_is_told_and_the_image_is_the_controllers(tmp_path: Path) -> None:
    async def work() -> None:
        member, cluster = Member(1, lasting_ports(1), tmp_path), lives()
        await member.start()
        await appended(member, cluster.batches)
        history = await member.driver.past.read(question(brokers=[2]))
        assert leaders(history, cluster) == [1, 2, 3]
        assert history.partition_events(cluster.core.latest.topics_by_name["u"], 0) == []
        won_or_lost = [(e.topic, e.after.leader) for e in history.elections_of(2) if e.after]
        assert sorted(won_or_lost) == [("t", 2), ("t", 3), ("u", -1), ("u", 2)]
        assert history.image.same_content(cluster.core.latest)
        assert history.start == 0
        assert history.image.offset == member.driver.high_watermark - 1
        await member.stop()
        assert not member.failures

    run(work)


def test_what_is_committed_and_not_written_yet_is_not_waited_for(tmp_path: Path) -> None:
    """The quorum's high watermark runs ahead of a log whose appends wait behind a vote's fsync."""

    async def work() -> None:
        member, cluster = Member(1, lasting_ports(1), tmp_path), lives()
        await member.start()
        await appended(member, cluster.batches)
        end = member.driver.log.end
        ahead: Any = SimpleNamespace(log=member.driver.log, high_watermark=Offset(end + 1))
        async with asyncio.timeout(10):
            history = await PastReader(ahead).read(question())
        assert history.image.offset == end - 1
        with pytest.raises(KafkaError) as caught:
            await PastReader(ahead).read(question(at_offset=end))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        await member.stop()

    run(work)


def test_the_past_by_offset_and_by_time(tmp_path: Path) -> None:
    async def work() -> None:
        member, cluster = Member(1, lasting_ports(1), tmp_path), lives()
        await member.start()
        offsets = await appended(member, cluster.batches[:-1])
        then = (await member.driver.past.read(question())).at_ms
        await until(lambda: member.env.clock.wall_ms() > then)
        offsets += await appended(member, cluster.batches[-1:])
        past = member.driver.past
        before = await past.read(question(at_offset=offsets[-1] - len(cluster.batches[-1])))
        assert leaders(before, cluster) == [1, 2]
        assert before.image.offset == offsets[-1] - len(cluster.batches[-1])
        # In the middle of a batch: its first record counts, the second doesn't.
        middle = await past.read(question(at_offset=offsets[-1] - 1))
        assert leaders(middle, cluster) == [1, 2, 3]
        assert not middle.image.brokers[2].fenced
        by_time = await past.read(question(at_ms=then))
        assert leaders(by_time, cluster) == [1, 2]
        assert leaders(await past.read(question(at_ms=then + 10_000)), cluster) == [1, 2, 3]
        assert (await past.read(question(at_ms=1))).image.offset == -1
        with pytest.raises(KafkaError) as caught:
            await past.read(question(at_offset=member.driver.high_watermark))
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        await member.stop()

    run(work)


def test_a_moment_within_a_decision_is_explained_by_the_rest_of_it(tmp_path: Path) -> None:
    async def work() -> None:
        member, cluster = Member(1, lasting_ports(1), tmp_path), lives()
        await member.start()
        offsets = await appended(member, cluster.batches)
        middle = await member.driver.past.read(question(at_offset=offsets[-1] - 1))
        event = middle.partition_events(cluster.core.latest.topics_by_name["t"], 0)[-1]
        assert not middle.image.brokers[2].fenced
        assert event.cause.text == "broker 2 was fenced"
        assert event.election is not None
        assert event.election.ruled_out == ((1, "not in the ISR"), (2, "fenced"))
        assert event.derived
        await member.stop()

    run(work)


def test_a_long_log_is_read_from_a_snapshot_on_unless_all_of_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        member, cluster = Member(1, lasting_ports(1), tmp_path), lives()
        await member.start()
        offsets = await appended(member, cluster.batches[:-1])
        past = member.driver.past
        now = await past.read(question())
        snapshot = offsets[-1] + 1
        at_snapshot = (await past.read(question(at_offset=offsets[-1]))).image
        records = records_of(at_snapshot)
        assert await member.driver.create_snapshot(snapshot, now.image.epoch, records)
        await appended(member, cluster.batches[-1:])
        monkeypatch.setattr(reading, "RECORDS_MAX", 10)
        near = await past.read(question())
        assert near.start == snapshot
        assert leaders(near, cluster) == [3]
        assert near.image.same_content(cluster.core.latest)
        assert leaders(await past.read(question(whole_log=True)), cluster) == [1, 2, 3]
        early = await past.read(question(at_offset=offsets[0]))
        assert early.start == 0
        await member.stop()

    run(work)


@pytest.mark.parametrize("told", [1, 2, 3])
def test_a_moment_within_a_batch_of_control_records_is_that_moment(told: int) -> None:
    kinds = [ControlType.LEADER_CHANGE, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    raw = control_batch([(kind, b"") for kind in kinds], base_offset=7, leader_epoch=1, timestamp=1)
    ((header, view),) = iter_batches(raw)
    history = History(EMPTY_IMAGE, lambda *_: True, events_max=1)
    list(reading._feed(history, header, view, Offset(7 + told)))
    assert history.image.offset == 6 + told


def test_a_large_batch_is_read_in_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other work of the event loop runs between a hundred records."""
    decoded: list[int] = []
    original = reading.decode_metadata_record

    def counted(value: bytes) -> Any:
        decoded[-1] += 1
        return original(value)

    async def work() -> None:
        member = Member(1, lasting_ports(1), tmp_path)
        await member.start()
        topics = [
            (TopicRecord(name=f"t{n}", topic_id=Uuid((1000 + n).to_bytes(16, "big"))), 0)
            for n in range(1_000)
        ]
        epoch = member.driver.leader_and_epoch.epoch
        last = await member.driver.append(topics, epoch=epoch)
        await until(lambda: member.driver.high_watermark > last)
        monkeypatch.setattr(reading, "decode_metadata_record", counted)
        decoded.append(0)
        asked = asyncio.ensure_future(member.driver.past.read(question()))
        while not asked.done():
            decoded.append(0)
            await asyncio.sleep(0)
        history = asked.result()
        assert len(history.image.topics_by_id) == 1_000
        assert sum(decoded) >= 1_000
        assert max(decoded) <= reading.RECORDS_PER_ITERATION
        await member.stop()

    run(work)

"""Images as of earlier offsets: equal to the replay of the log up to there, made in small steps."""

from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.metadata.replay import Replay
from sparkraft.metadata.snapshot import records_of
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.protocol.messages.metadata_records import TopicRecord
from sparkraft.records.record import decode_records
from sparkraft.server.network.slices import SLICE_UNITS_MAX
from sparkraft.server.raft import past_images as making
from tests.controller.cluster_of import uuid
from tests.server.raft.test_driver import Member, run, until
from tests.server.raft.test_past_reader import appended, lives
from tests.support.ports import lasting_ports


def made(steps: Any) -> Any:
    """The result of steps, none of which may be long."""
    while True:
        try:
            assert next(steps) <= SLICE_UNITS_MAX
        except StopIteration as end:
            return end.value


def image_at(member: Member, at_offset: int = -1, at_ms: int = -1, current: Any = None) -> Any:
    images = member.driver.past_images
    return made(images.image_at(at_offset=at_offset, at_ms=at_ms, current=current or EMPTY_IMAGE))


def replayed(member: Member) -> dict[int, ClusterImage]:
    """Offset → the image there, by the replay of the whole log record by record."""
    replay, found = Replay(), {}
    log = member.driver.log
    for header, view in log.batches(log.start, log.end):
        for record in decode_records(view):
            messages = []
            if not header.is_control:
                messages = [decode_metadata_record(record.value or b"")[0]]
            replay.replay_batch(
                messages, last_offset=record.offset, epoch=header.partition_leader_epoch
            )
            replay.commit(record.offset)
            found[record.offset] = replay.stable
    return found


def test_an_image_is_the_replay_up_to_its_offset(tmp_path: Path) -> None:
    async def work() -> None:
        member, cluster = Member(1, lasting_ports(1), tmp_path), lives()
        await member.start()
        await appended(member, cluster.batches)
        expected = replayed(member)
        assert len(expected) == member.driver.high_watermark
        for offset in [*reversed(expected), *expected]:
            image = image_at(member, offset).image
            assert image == expected[offset]
            assert image.offset <= offset
        member.driver.past_images.forget()
        # From the node's own image, of an earlier offset.
        current = expected[5]
        assert image_at(member, 9, current=current).image == expected[9]
        assert image_at(member).image.same_content(cluster.core.latest)
        await member.stop()

    run(work)


def test_an_image_by_time_has_no_later_batch(tmp_path: Path) -> None:
    async def work() -> None:
        member, cluster = Member(1, lasting_ports(1), tmp_path), lives()
        await member.start()
        offsets = await appended(member, cluster.batches[:-1])
        then = image_at(member).at_ms
        assert then == member.driver.log.time_of(member.driver.high_watermark - 1)
        await until(lambda: member.env.clock.wall_ms() > then)
        await appended(member, cluster.batches[-1:])
        before = image_at(member, at_ms=then)
        assert before.image.offset < offsets[-1] + 4
        assert before.image.brokers[2].fenced is False
        assert image_at(member, at_ms=then + 60_000).image.brokers[2].fenced is True
        assert image_at(member, at_ms=1).image == EMPTY_IMAGE
        await member.stop()

    run(work)


def test_an_offset_that_is_not_committed_or_deleted_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        member, cluster = Member(1, lasting_ports(1), tmp_path), lives()
        await member.start()
        offsets = await appended(member, cluster.batches[:-1])
        epoch = member.driver.leader_and_epoch.epoch
        expected = replayed(member)
        snapshot = offsets[-1] + 1
        records = records_of(expected[offsets[-1]])
        assert await member.driver.create_snapshot(snapshot, epoch, records)
        await appended(member, cluster.batches[-1:])
        with pytest.raises(KafkaError) as caught:
            image_at(member, member.driver.high_watermark)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        # The log below the snapshot is deleted: the snapshot is the first image that is left.
        member.driver.log._log.advance_log_start(snapshot)
        member.driver.past_images.forget()
        assert image_at(member, offsets[-1]).image == expected[offsets[-1]]
        assert image_at(member).image.same_content(cluster.core.latest)
        member.driver.past_images.forget()
        for wanted in ({"at_offset": offsets[-1] - 1}, {"at_ms": 1}):
            with pytest.raises(KafkaError) as caught:
                image_at(member, **wanted)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        await member.stop()

    run(work)


def test_a_large_batch_is_replayed_in_small_steps(tmp_path: Path) -> None:
    async def work() -> None:
        member = Member(1, lasting_ports(1), tmp_path)
        await member.start()
        topics = [(TopicRecord(name=f"t{n}", topic_id=uuid(1000 + n)), 0) for n in range(3_000)]
        epoch = member.driver.leader_and_epoch.epoch
        last = await member.driver.append(topics, epoch=epoch)
        await until(lambda: member.driver.high_watermark > last)
        # `made` asserts that each step is small.
        assert len(image_at(member, last).image.topics_by_id) == 3_000
        assert len(image_at(member, last - 1).image.topics_by_id) == 2_999
        names = made(member.driver.past_topic_names.names())
        assert names[uuid(1000)] == "t0"
        assert len(names) == 3_000
        await member.stop()

    run(work)


def test_few_images_are_kept_and_few_are_made_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        member, cluster = Member(1, lasting_ports(1), tmp_path), lives()
        await member.start()
        await appended(member, cluster.batches)
        images = member.driver.past_images
        for offset in range(3, 9):
            image_at(member, offset)
            assert len(images._kept) <= making.IMAGES_MAX
        waiting = [
            images.image_at(at_offset=20, at_ms=-1, current=EMPTY_IMAGE)
            for _ in range(making.READS_MAX)
        ]
        for steps in waiting:
            next(steps)
        with pytest.raises(KafkaError) as caught:
            image_at(member, 20)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        for steps in waiting:
            steps.close()
        image_at(member, 20)
        monkeypatch.setattr(making, "KEPT_SECONDS", 0.01)
        image_at(member, 21)
        await until(lambda: not images._kept)
        await member.stop()

    run(work)


def test_pages_in_order_continue_where_the_last_one_ended(tmp_path: Path) -> None:
    async def work() -> None:
        member, cluster = Member(1, lasting_ports(1), tmp_path), lives()
        await member.start()
        await appended(member, cluster.batches)
        past = image_at(member)
        everything = list(records_of(past.image))
        first = made(past.take_records(0))
        assert [next(first) for _ in range(3)] == everything[:3]
        past.records, past.position = first, 3
        assert made(past.take_records(3)) is first
        again = made(past.take_records(2))
        assert [each for each in again if each is not None] == everything[2:]
        with pytest.raises(KafkaError) as caught:
            made(past.take_records(len(everything) + 1))
        assert caught.value.code is ErrorCode.POSITION_OUT_OF_RANGE
        await member.stop()

    run(work)

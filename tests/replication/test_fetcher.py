"""The follower's fetcher, rule by rule, against a leader whose log is a list of record epochs."""

from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.messages.k01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from sparkraft.records.batch import HEADER, BatchHeader, parse_header
from sparkraft.replication.fetcher import BACKOFF_MS_FIRST, Fetcher
from sparkraft.replication.fetcher_values import OutOfRange
from sparkraft.replication.followed import NEXT_STAGES, FollowedPartition, Stage
from sparkraft.storage.epochs import LeaderEpochs

TOPIC = Uuid(b"t" * 16)
KEY = (TOPIC, 0)
BACKOFF = 1_000


def batch(base: int, count: int, epoch: int) -> bytes:
    """A batch's header; fetchers and this file's replicas look no further."""
    return HEADER.pack(base, 49, epoch, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)


def headers_of(records: bytes) -> list[BatchHeader]:
    return [parse_header(records, at) for at in range(0, len(records), 61)]


class FakeReplica:
    """A replica whose log is the epochs of its batches."""

    def __init__(self, *batches: tuple[int, int], start: int = 0, high_watermark: int = 0) -> None:
        """`batches`: (records, epoch) one after another from `start`."""
        self.log_start_offset = self.log_end_offset = start
        self.high_watermark = high_watermark
        self.epochs = LeaderEpochs()
        self.fail: KafkaError | None = None
        self.completed: list[tuple[int, bool]] = []
        for count, epoch in batches:
            self.epochs.assign(epoch, self.log_end_offset)
            self.log_end_offset += count

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def append(
        self, records: Any, *, leader_epoch: int, leader_high_watermark: int, leader_log_start: int
    ) -> None:
        self._check()
        for header in headers_of(records):
            if header.partition_leader_epoch > leader_epoch:
                break
            if header.base_offset < self.log_end_offset:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "overlap")
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            self.log_end_offset = header.last_offset + 1
        self.high_watermark = min(leader_high_watermark, self.log_end_offset)
        self.log_start_offset = max(self.log_start_offset, leader_log_start)

    def truncate_to(self, offset: int, *, leader_epoch: int, completed: bool) -> None:
        self._check()
        self.completed.append((offset, completed))
        self.log_end_offset = min(offset, self.log_end_offset)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self.epochs.truncate_from_end(self.log_end_offset)

    def start_at(self, offset: int, *, leader_epoch: int) -> None:
        self._check()
        self.epochs.clear()
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset

    def _check(self) -> None:
        if self.fail is not None:
            raise self.fail


class FakeQuota:
    is_exceeded = False

    def is_throttled(self, topic: str, index: int) -> bool:
        return index == 0


def fetcher(**replicas: FakeReplica) -> Fetcher:
    """Partitions `p0`, `p1` … followed at leader epoch 5."""
    made = Fetcher(backoff_ms=BACKOFF, partition_bytes_max=1 << 20)
    for name, replica in replicas.items():
        made.follow((TOPIC, int(name[1:])), "flights", leader_epoch=5, replica=replica)
    return made


def data(
    records: bytes = b"", *, index: int = 0, error: int = 0, hw: int = 0, start: int = 0
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=hw,
        log_start_offset=start,
        records=records,
    )


def diverging(epoch: int, end_offset: int, *, hw: int = 0) -> PartitionData:
    made = data(hw=hw)
    made.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return made


def asked(request: FetchRequest | None) -> dict[int, tuple[int, int, int]]:
    """Index → fetch offset, leader epoch, last fetched epoch."""
    assert request is not None
    return {
        p.partition: (p.fetch_offset, p.current_leader_epoch, p.last_fetched_epoch)
        for t in request.topics
        for p in t.partitions
    }


def answer(made: Fetcher, *partitions: PartitionData, now: int = 0, session_id: int = 1) -> int:
    """Build the next request and let it be answered; bytes fetched. Others answer nothing new."""
    request = made.build(now)
    assert request is not None, "there was nothing to ask"
    return reply(made, *partitions, now=now, session_id=session_id)


def reply(made: Fetcher, *partitions: PartitionData, now: int = 0, session_id: int = 1) -> int:
    named = list(partitions)
    if made.session.epoch == 0:
        told = {part.partition_index for part in partitions}
        named += [data(index=i, hw=0, start=0) for _, i in made.session.partitions if i not in told]
    response = FetchResponse(
        session_id=session_id,
        responses=[FetchableTopicResponse(topic_id=TOPIC, partitions=named)] if named else [],
    )
    return sum(
        made.process_partition(key, part, now) for key, part in made.on_response(response, now)
    )


def kinds(made: Fetcher) -> list[str]:
    return [event.kind for event in made.events()]


# ---- what is asked


def test_a_log_with_epochs_is_fetched_from_its_end_with_its_newest_epoch():
    made = fetcher(p0=FakeReplica((4, 2), (3, 4), high_watermark=5))
    assert asked(made.build(0)) == {0: (7, 5, 4)}


def test_an_empty_log_is_fetched_from_its_start_without_an_epoch():
    made = fetcher(p0=FakeReplica(start=3))
    made._partitions[KEY].replica.high_watermark = 3
    assert asked(made.build(0)) == {0: (3, 5, -1)}


def test_a_log_without_any_epoch_is_cut_to_its_high_watermark_first():
    replica = FakeReplica(high_watermark=4)
    replica.log_end_offset = 9
    made = fetcher(p0=replica)
    assert made.stage_of(KEY) is Stage.TRUNCATING
    assert asked(made.build(0)) == {0: (4, 5, -1)}
    assert replica.log_end_offset == 4
    assert made.stage_of(KEY) is Stage.FETCHING
    assert kinds(made) == ["truncated"]


def test_a_log_with_epochs_is_never_cut_to_its_high_watermark():
    """KIP-101: what is above the high watermark may be committed."""
    replica = FakeReplica((9, 4), high_watermark=4)
    made = fetcher(p0=replica)
    made.build(0)
    assert replica.log_end_offset == 9


def test_nothing_to_fetch_is_no_request():
    made = fetcher()
    assert made.build(0) is None
    assert made.wake_at() is None


def test_a_partition_that_left_is_not_asked_and_its_answer_is_dropped():
    replica = FakeReplica((1, 5))
    made = fetcher(p0=replica, p1=FakeReplica((1, 5)))
    made.build(0)
    assert made.leave(KEY)
    assert not made.leave(KEY)
    assert reply(made, data(batch(1, 1, 5))) == 0
    assert replica.log_end_offset == 1
    request = made.build(0)
    assert request is not None
    assert [list(t.partitions) for t in request.forgotten_topics_data] == [[0]]


def test_following_again_at_the_same_epoch_changes_nothing():
    replica = FakeReplica((1, 5))
    made = fetcher(p0=replica)
    made.build(0)
    made.follow(KEY, "flights", leader_epoch=5, replica=FakeReplica())
    made.follow(KEY, "flights", leader_epoch=4, replica=FakeReplica())
    assert reply(made, data(batch(1, 2, 5), hw=3)) == 61
    assert replica.log_end_offset == 3


# ---- answers


def test_batches_are_appended_and_the_leaders_bounds_followed():
    replica = FakeReplica((2, 5))
    made = fetcher(p0=replica)
    assert answer(made, data(batch(2, 3, 5), hw=4, start=1)) == 61
    assert (replica.log_start_offset, replica.high_watermark, replica.log_end_offset) == (1, 4, 5)
    assert made.lag_of(KEY) == 0
    assert asked(made.build(0)) == {0: (5, 5, 5)}


def test_an_answer_without_records_moves_the_high_watermark():
    replica = FakeReplica((5, 5), high_watermark=2)
    made = fetcher(p0=replica)
    answer(made, data(hw=5))
    assert replica.high_watermark == 5


def test_a_moved_log_start_is_told_to_the_leader():
    """The low watermark of DeleteRecords waits for it."""
    replica = FakeReplica((5, 5))
    made = fetcher(p0=replica)
    answer(made, data(hw=5, start=3))
    request = made.build(0)
    assert request is not None
    assert request.topics[0].partitions[0].log_start_offset == 3


def test_a_log_start_that_moved_by_itself_is_told_when_touched():
    replica = FakeReplica((5, 5))
    made = fetcher(p0=replica)
    answer(made, data(hw=5))
    made.build(0)
    reply(made)
    replica.log_start_offset = 2
    made.touch(KEY)
    assert asked(made.build(0)) == {0: (5, 5, 5)}


def test_lag_is_what_is_missing_to_the_leaders_high_watermark():
    made = fetcher(p0=FakeReplica((2, 5)))
    assert made.lag_of(KEY) is None
    answer(made, data(batch(2, 3, 5), hw=50))
    assert made.lag_of(KEY) == 45
    assert made.max_lag() == 45


def test_batches_above_the_epoch_of_the_request_are_not_appended():
    """KAFKA-18723: an answer of a leader that has moved on since."""
    replica = FakeReplica((2, 4))
    made = fetcher(p0=replica)
    answer(made, data(batch(2, 1, 5) + batch(3, 1, 6), hw=4))
    assert replica.log_end_offset == 3
    assert asked(made.build(0)) == {0: (3, 5, 5)}


def test_an_overlap_is_refused_and_tried_again_later():
    replica = FakeReplica((4, 5))
    made = fetcher(p0=replica)
    assert answer(made, data(batch(3, 2, 5))) == 0
    assert replica.log_end_offset == 4
    assert kinds(made) == ["set aside"]
    assert made.wake_at() == BACKOFF_MS_FIRST


def test_a_log_that_somebody_else_wrote_fails_instead_of_leaving_a_gap():
    replica = FakeReplica((4, 5))
    made = fetcher(p0=replica)
    made.build(0)
    replica.log_end_offset = 2
    assert reply(made, data(batch(4, 2, 5))) == 0
    assert made.stage_of(KEY) is Stage.FAILED
    assert replica.log_end_offset == 2


def test_an_empty_log_may_begin_with_a_batch_that_holds_its_start():
    """The leader's log starts inside a batch, after DeleteRecords; the batch comes whole."""
    replica = FakeReplica(start=7, high_watermark=7)
    made = fetcher(p0=replica)
    answer(made, data(batch(5, 6, 5), hw=11, start=7))
    assert (replica.log_start_offset, replica.log_end_offset) == (7, 11)


def test_an_answer_for_an_offset_that_changed_meanwhile_is_dropped():
    replica = FakeReplica((4, 5))
    made = fetcher(p0=replica)
    made.build(0)
    made._partitions[KEY].fetch_offset = 2
    assert reply(made, data(batch(4, 2, 5), hw=6)) == 0
    assert replica.log_end_offset == 4
    assert made.stage_of(KEY) is Stage.FETCHING, "it is asked again, and nothing is wrong"


def test_an_answer_for_an_epoch_that_is_over_is_dropped():
    replica = FakeReplica((4, 5))
    made = fetcher(p0=replica)
    made.build(0)
    made.follow(KEY, "flights", leader_epoch=6, replica=replica)
    assert reply(made, data(batch(4, 2, 5), hw=6)) == 0
    assert replica.log_end_offset == 4
    assert asked(made.build(0)) == {0: (4, 6, 5)}


def test_a_partition_that_delivered_stands_last():
    made = fetcher(p0=FakeReplica((1, 5)), p1=FakeReplica((1, 5)), p2=FakeReplica((1, 5)))
    answer(made, data(batch(1, 1, 5), hw=2))
    made.build(0)
    made.session.lost()
    assert list(asked(made.build(0))) == [1, 2, 0]


def test_a_partition_that_failed_to_deliver_stands_last():
    made = fetcher(p0=FakeReplica((1, 5)), p1=FakeReplica((1, 5)))
    answer(made, data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    made.build(BACKOFF_MS_FIRST)
    made.session.lost()
    assert list(asked(made.build(BACKOFF_MS_FIRST))) == [1, 0]


# ---- truncation


def test_a_diverging_epoch_cuts_the_log_and_asks_again_from_there():
    replica = FakeReplica((5, 3), (5, 4), high_watermark=4)
    made = fetcher(p0=replica)
    answer(made, diverging(3, 8, hw=8))
    assert replica.log_end_offset == 5
    assert replica.high_watermark == 4, "the bounds of such an answer don't count"
    assert replica.completed == [(5, True)]
    assert asked(made.build(0)) == {0: (5, 5, 3)}
    assert kinds(made) == ["truncated"]


def test_an_epoch_unknown_here_takes_more_than_one_round():
    replica = FakeReplica((4, 1), (4, 3), (4, 4))
    made = fetcher(p0=replica)
    answer(made, diverging(2, 6))
    assert replica.completed == [(4, False)]
    assert asked(made.build(0)) == {0: (4, 5, 1)}


def test_cutting_below_the_high_watermark_is_told():
    """Only an unclean election leads there."""
    made = fetcher(p0=FakeReplica((5, 3), (5, 4), high_watermark=9))
    answer(made, diverging(3, 8))
    (event,) = made.events()
    assert "below the high watermark 9" in event.text


# ---- errors


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        12_345,
    ],
)
def test_an_error_of_the_leader_sets_the_partition_aside_alone(code: int):
    made = fetcher(p0=FakeReplica((1, 5)), p1=FakeReplica((1, 5)))
    answer(made, data(error=code))
    request = made.build(1)
    assert request is not None
    assert [list(t.partitions) for t in request.forgotten_topics_data] == [[0]]
    assert made.stage_of(KEY) is Stage.FETCHING
    assert made.wake_at() == BACKOFF_MS_FIRST
    reply(made)
    assert asked(made.build(BACKOFF_MS_FIRST)) == {0: (1, 5, 5)}


def test_the_time_aside_doubles_up_to_the_back_off_and_starts_over_after_success():
    made = fetcher(p0=FakeReplica((1, 5)))
    now, waits = 0, []
    for _ in range(8):
        answer(made, data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), now=now)
        due = made.wake_at()
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits == [20, 40, 80, 160, 320, 640, 1000, 1000]
    answer(made, data(batch(1, 1, 5), hw=2), now=now)
    answer(made, data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), now=now)
    assert made.wake_at() == now + BACKOFF_MS_FIRST


def test_a_fenced_epoch_waits_for_the_next_one():
    replica = FakeReplica((1, 5))
    made = fetcher(p0=replica)
    answer(made, data(error=ErrorCode.FENCED_LEADER_EPOCH))
    assert made.stage_of(KEY) is Stage.FAILED
    assert made.failed == 1
    made.follow(KEY, "flights", leader_epoch=5, replica=replica)
    assert made.stage_of(KEY) is Stage.FAILED
    made.follow(KEY, "flights", leader_epoch=6, replica=replica)
    assert made.failed == 0
    assert asked(made.build(0)) == {0: (1, 6, 5)}


def test_a_failed_disk_ends_fetching_until_the_next_epoch():
    replica = FakeReplica((1, 5))
    made = fetcher(p0=replica)
    replica.fail = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "EIO")
    answer(made, data(batch(1, 1, 5)))
    assert made.stage_of(KEY) is Stage.FAILED
    assert made.wake_at() is None
    assert kinds(made) == ["failed"]


def test_a_disk_that_fails_while_truncating_ends_it_too():
    replica = FakeReplica((5, 3), (5, 4))
    made = fetcher(p0=replica)
    replica.fail = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "EIO")
    answer(made, diverging(3, 8))
    assert made.stage_of(KEY) is Stage.FAILED
    bare = FakeReplica(high_watermark=1)
    bare.fail = replica.fail
    made = fetcher(p0=bare)
    assert made.build(0) is None
    assert made.stage_of(KEY) is Stage.FAILED


def test_a_disk_that_fails_may_take_its_partitions_with_it():
    """The log directory goes offline before the fetcher hears of the failure."""
    replica = FakeReplica((1, 5))
    made = fetcher(p0=replica, p1=FakeReplica((1, 5)))

    def offline() -> None:
        made.leave(KEY)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "EIO")

    replica._check = offline  # type: ignore[method-assign]
    answer(made, data(batch(1, 1, 5)))
    assert (len(made), made.failed) == (1, 0)
    bare = FakeReplica(high_watermark=1)
    bare._check = offline  # type: ignore[method-assign]
    made.follow(KEY, "flights", leader_epoch=6, replica=bare)
    made.build(0)
    assert len(made) == 1


def test_a_request_given_up_is_asked_again_at_once_with_what_came():
    made = fetcher(p0=FakeReplica((1, 5)))
    answer(made)
    made.build(0)
    assert made.follow((TOPIC, 1), "flights", leader_epoch=5, replica=FakeReplica((1, 5)))
    assert not made.follow((TOPIC, 1), "flights", leader_epoch=5, replica=FakeReplica((1, 5)))
    made.interrupted()
    request = made.build(0)
    assert request is not None
    assert (request.session_id, request.session_epoch) == (1, 0)
    assert sorted(asked(request)) == [0, 1]


def test_news_of_the_leader_end_a_pause():
    made = fetcher(p0=FakeReplica((1, 5)))
    made.build(0)
    made.fail(0, "refused")
    assert made.build(1) is None
    made.follow(KEY, "flights", leader_epoch=6, replica=FakeReplica((1, 5)))
    assert asked(made.build(1)) == {0: (1, 6, 5)}


def test_a_replica_that_follows_no_more_is_set_aside():
    """The image moved on before the fetcher was told."""
    replica = FakeReplica(high_watermark=1)
    replica.fail = KafkaError(ErrorCode.FENCED_LEADER_EPOCH, "leads now")
    made = fetcher(p0=replica)
    assert made.build(0) is None
    assert made.stage_of(KEY) is Stage.TRUNCATING
    replica.fail = None
    assert asked(made.build(BACKOFF_MS_FIRST)) == {0: (0, 5, -1)}


def test_no_answer_begins_a_new_session_after_a_pause():
    made = fetcher(p0=FakeReplica((1, 5)), p1=FakeReplica((1, 5)))
    answer(made)
    made.build(0)
    made.fail(0, "reset")
    assert made.build(BACKOFF_MS_FIRST - 1) is None
    assert made.wake_at() == BACKOFF_MS_FIRST
    request = made.build(BACKOFF_MS_FIRST)
    assert request is not None
    assert (request.session_id, request.session_epoch) == (1, 0)
    assert sorted(asked(request)) == [0, 1]
    made.fail(100, "reset")
    assert made.wake_at() == 100 + 2 * BACKOFF_MS_FIRST


def test_a_lost_session_is_opened_again_at_once():
    made = fetcher(p0=FakeReplica((1, 5)))
    answer(made)
    made.build(0)
    refused = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert list(made.on_response(refused, 0)) == []
    assert asked(made.build(0)) == {0: (1, 5, 5)}


def test_a_refused_request_waits():
    made = fetcher(p0=FakeReplica((1, 5)))
    made.build(0)
    refused = FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert list(made.on_response(refused, 0)) == []
    assert made.build(0) is None
    assert made.wake_at() == BACKOFF_MS_FIRST


# ---- out of range


def out_of_range(replica: FakeReplica) -> tuple[Fetcher, OutOfRange]:
    made = fetcher(p0=replica)
    answer(made, data(error=ErrorCode.OFFSET_OUT_OF_RANGE))
    (wanted,) = made.out_of_range(0)
    assert wanted == OutOfRange(KEY, "flights", 0, 5)
    return made, wanted


def test_below_the_leaders_start_everything_goes_and_fetching_begins_there():
    replica = FakeReplica((4, 2))
    made, wanted = out_of_range(replica)
    made.on_bounds(wanted, log_start_offset=20, log_end_offset=30, now=0)
    assert (replica.log_start_offset, replica.log_end_offset) == (20, 20)
    assert asked(made.build(0)) == {0: (20, 5, -1)}
    assert kinds(made) == ["restarted"]


def test_above_the_leaders_end_the_log_is_cut_to_it():
    replica = FakeReplica((40, 2), high_watermark=35)
    made, wanted = out_of_range(replica)
    made.on_bounds(wanted, log_start_offset=20, log_end_offset=30, now=0)
    assert replica.log_end_offset == 30
    assert asked(made.build(0)) == {0: (30, 5, 2)}


def test_within_the_leaders_bounds_fetching_goes_on_at_our_end():
    replica = FakeReplica((25, 2))
    made, wanted = out_of_range(replica)
    made.on_bounds(wanted, log_start_offset=20, log_end_offset=30, now=0)
    assert (replica.log_start_offset, replica.log_end_offset) == (0, 25)
    assert made.build(0) is not None
    assert made.session.partitions[KEY].fetch_offset == 25
    assert made.lag_of(KEY) == 5


def test_a_partition_out_of_range_is_not_fetched_until_the_bounds_are_known():
    made, _ = out_of_range(FakeReplica((4, 2)))
    request = made.build(0)
    assert request is not None
    assert [list(t.partitions) for t in request.forgotten_topics_data] == [[0]]


def test_bounds_of_an_epoch_that_is_over_are_dropped():
    replica = FakeReplica((40, 2))
    made, wanted = out_of_range(replica)
    made.follow(KEY, "flights", leader_epoch=6, replica=replica)
    made.on_bounds(wanted, log_start_offset=20, log_end_offset=30, now=0)
    assert replica.log_end_offset == 40


def test_a_leader_that_refuses_its_bounds_is_asked_again_later():
    made, wanted = out_of_range(FakeReplica((40, 2)))
    made.on_bounds_refused(wanted, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert made.out_of_range(1) == []
    assert made.wake_at() == BACKOFF_MS_FIRST
    made.build(BACKOFF_MS_FIRST)
    assert made.out_of_range(BACKOFF_MS_FIRST) == [wanted]
    made.on_bounds_refused(wanted, ErrorCode.FENCED_LEADER_EPOCH, 0)
    assert made.stage_of(KEY) is Stage.FAILED


def test_a_disk_that_fails_on_the_way_back_ends_it():
    replica = FakeReplica((4, 2))
    made, wanted = out_of_range(replica)
    replica.fail = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "EIO")
    made.on_bounds(wanted, log_start_offset=20, log_end_offset=30, now=0)
    assert made.stage_of(KEY) is Stage.FAILED


# ---- throttling


def throttled() -> tuple[Fetcher, FakeQuota]:
    quota = FakeQuota()
    made = Fetcher(backoff_ms=BACKOFF, partition_bytes_max=1, quota=quota)
    for index in (0, 1):
        made.follow((TOPIC, index), "flights", leader_epoch=5, replica=FakeReplica((2, 5)))
    return made, quota


def test_an_exceeded_quota_holds_back_throttled_partitions_that_lag():
    made, quota = throttled()
    answer(made, data(batch(2, 1, 5), hw=9))
    quota.is_exceeded = True
    request = made.build(0)
    assert request is not None
    assert [list(t.partitions) for t in request.forgotten_topics_data] == [[0]]
    reply(made)
    quota.is_exceeded = False
    assert asked(made.build(0)) == {0: (3, 5, 5)}


def test_a_replica_in_sync_is_never_held_back():
    """It would leave the ISR for the sake of a reassignment."""
    made, quota = throttled()
    answer(made, data(batch(2, 1, 5), hw=3))
    quota.is_exceeded = True
    assert asked(made.build(0)) == {0: (3, 5, 5)}


# ---- states


def test_every_pair_of_stages_is_allowed_or_refused_as_the_table_says():
    for before in Stage:
        for after in Stage:
            partition = FollowedPartition("flights", 0, 5, FakeReplica((1, 5)))
            partition.stage = before
            if after in NEXT_STAGES[before]:
                partition.enter(after)
                assert partition.stage is after
            else:
                with pytest.raises(AssertionError):
                    partition.enter(after)


def events(made: Fetcher) -> list[tuple[str, bool]]:
    return [(event.kind, event.is_routine) for event in made.events()]


@pytest.mark.parametrize(
    ("code", "routine"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.CORRUPT_MESSAGE, False),
    ],
)
def test_errors_of_moves_and_deletions_are_routine_until_they_persist(code, routine):
    made = fetcher(p0=FakeReplica((2, 4)))
    answer(made, data(error=code))
    assert events(made) == [("set aside", routine)]
    now = 0
    for _ in range(20):
        now = made.wake_at() or now
        if made.build(now) is not None:
            reply(made, data(error=code), now=now)
    assert events(made) == [("set aside", False)]


def test_a_fenced_epoch_is_routine():
    made = fetcher(p0=FakeReplica((2, 4)))
    answer(made, data(error=ErrorCode.FENCED_LEADER_EPOCH))
    assert events(made) == [("failed", True)]


def test_the_first_request_that_gets_no_response_is_routine():
    made = fetcher(p0=FakeReplica((2, 4)))
    made.build(0)
    made.fail(0, "no response")
    assert events(made) == [("set aside", True)]
    for now in range(0, 100_000, 5_000):
        made.fail(now, "no response")
    assert events(made) == [("set aside", False)]

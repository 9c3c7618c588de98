"""Truncation before Fetch v12, by OffsetForLeaderEpoch (KIP-101, KIP-279).

Kafka 3.9's `AbstractFetcherThread`: `truncateToEpochEndOffsets` with `getOffsetTruncationState`.
"""

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.replication.fetcher import BACKOFF_MS_FIRST, LOOKED_UP_AT_ONCE, Fetcher
from sparkraft.replication.fetcher_values import Uncertain
from sparkraft.replication.followed import Stage
from tests.replication.test_fetcher import (
    BACKOFF,
    KEY,
    TOPIC,
    FakeReplica,
    answer,
    asked,
    batch,
    data,
)


def fetcher(*replicas: FakeReplica) -> Fetcher:
    """Partitions 0, 1 … followed at leader epoch 5."""
    made = Fetcher(backoff_ms=BACKOFF, partition_bytes_max=1 << 20, truncates_on_fetch=False)
    for index, replica in enumerate(replicas):
        made.follow((TOPIC, index), "flights", leader_epoch=5, replica=replica)
    return made


def uncertain(made: Fetcher, now: int = 0) -> Uncertain:
    (found,) = made.uncertain(now)
    return found


def end(made: Fetcher, epoch: int, end_offset: int, *, error: int = 0, now: int = 0) -> None:
    made.on_end_of_epoch(
        uncertain(made, now), error_code=error, epoch=epoch, end_offset=end_offset, now=now
    )


def test_nothing_is_fetched_before_the_end_of_the_newest_epoch_is_known():
    replica = FakeReplica((3, 3), (2, 4), high_watermark=2)
    made = fetcher(replica)
    assert made.build(0) is None
    assert uncertain(made) == Uncertain(KEY, "flights", 0, 5, 4)
    end(made, 4, 5)
    assert replica.completed == [(5, True)], "nothing diverges"
    assert not made.uncertain(0)
    assert asked(made.build(0)) == {0: (5, 5, -1)}, "Fetch v11 has no epoch of our last record"


def test_records_that_the_leader_does_not_have_are_truncated():
    replica = FakeReplica((3, 3), (4, 4), high_watermark=2)
    made = fetcher(replica)
    end(made, 4, 5)
    assert replica.log_end_offset == 5
    assert asked(made.build(0)) == {0: (5, 5, -1)}


def test_an_epoch_unknown_here_needs_another_request():
    """KIP-279: ours e3, e4; the leader has e3 up to 6, then e5."""
    replica = FakeReplica((2, 2), (4, 4), high_watermark=1)
    made = fetcher(replica)
    end(made, 3, 6)  # the leader's largest at or below our 4 is 3, which we do not have
    assert replica.completed == [(2, False)], "the end of our largest below it"
    assert made.build(0) is None
    assert uncertain(made).epoch == 2
    end(made, 2, 2)
    assert asked(made.build(0)) == {0: (2, 5, -1)}


def test_a_leader_that_knows_no_epoch_leaves_what_is_committed():
    replica = FakeReplica((4, 4), high_watermark=3)
    made = fetcher(replica)
    end(made, -1, -1)
    assert asked(made.build(0)) == {0: (3, 5, -1)}


def test_a_log_without_an_epoch_is_truncated_to_its_high_watermark_without_a_request():
    replica = FakeReplica(high_watermark=0)
    replica.log_end_offset = replica.high_watermark = 4
    replica.log_end_offset = 6
    made = fetcher(replica)
    assert not made.uncertain(0)
    assert asked(made.build(0)) == {0: (4, 5, -1)}


def test_a_fenced_epoch_waits_for_the_next_and_other_errors_are_retried():
    made = fetcher(FakeReplica((4, 4)))
    end(made, -1, -1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not made.uncertain(0)
    assert made.build(0) is None
    end(made, -1, -1, error=ErrorCode.FENCED_LEADER_EPOCH, now=BACKOFF_MS_FIRST)
    assert made.stage_of(KEY) is Stage.FAILED
    assert not made.uncertain(BACKOFF)
    made.follow(KEY, "flights", leader_epoch=6, replica=FakeReplica((4, 4)))
    assert uncertain(made).leader_epoch == 6


def test_a_reply_for_an_earlier_leader_epoch_is_dropped():
    made = fetcher(FakeReplica((4, 4)))
    old = uncertain(made)
    replica = FakeReplica((4, 4))
    made.follow(KEY, "flights", leader_epoch=6, replica=replica)
    made.on_end_of_epoch(old, error_code=0, epoch=4, end_offset=1, now=0)
    assert replica.log_end_offset == 4


def test_a_partition_is_checked_once_in_a_leader_epoch():
    replica = FakeReplica((2, 5), high_watermark=2)
    made = fetcher(replica)
    end(made, 5, 2)
    assert asked(made.build(0)) == {0: (2, 5, -1)}
    answer(made, data(batch(2, 1, 5), hw=3))
    assert not made.uncertain(0)
    assert asked(made.build(0)) == {0: (3, 5, -1)}


@pytest.mark.parametrize("count", [1, 3])
def test_partitions_are_looked_up_together(count):
    made = fetcher(*(FakeReplica((1, 4)) for _ in range(count)))
    assert [each.partition for each in made.uncertain(0)] == list(range(count))
    assert made.build(0) is None


def test_the_ends_of_a_bounded_number_of_partitions_are_looked_up_together():
    """Kafka looks up those of all; a request for thousands would stop the event loop."""
    count = 2 * LOOKED_UP_AT_ONCE + 1
    made = fetcher(*(FakeReplica((1, 4)) for _ in range(count)))
    sizes = []
    while found := made.uncertain(0):
        sizes.append(len(found))
        for each in found:
            made.on_end_of_epoch(each, error_code=0, epoch=4, end_offset=1, now=0)
    assert sizes == [LOOKED_UP_AT_ONCE, LOOKED_UP_AT_ONCE, 1]
    assert len(asked(made.build(0))) == count

"""Where a follower cuts its log: each case of Kafka's getOffsetTruncationState, and a property."""

from hypothesis import given
from hypothesis import strategies as st

from sparkraft.replication.truncation import truncation_point
from sparkraft.storage.epochs import LeaderEpochs


class Log:
    """Epochs over a log of a given end."""

    def __init__(self, entries: list[tuple[int, int]], log_end_offset: int) -> None:
        self.log_end_offset = log_end_offset
        self.epochs = LeaderEpochs(entries)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)


LOG = Log([(3, 0), (5, 10)], 15)


def point(epoch: int, end_offset: int) -> tuple[int, bool]:
    found = truncation_point(LOG, epoch=epoch, end_offset=end_offset, fallback=7)
    return found.offset, found.completed


def test_a_leader_that_knows_no_epoch_of_ours_means_what_is_committed():
    assert point(-1, -1) == (7, True)


def test_an_offset_without_epoch_counts_as_it_is():
    assert point(-1, 12) == (12, True)
    assert point(-1, 99) == (15, True)


def test_an_epoch_both_know_ends_where_the_first_log_of_it_ends():
    assert point(3, 8) == (8, True)
    assert point(3, 12) == (10, True)
    assert point(5, 12) == (12, True)


def test_an_epoch_unknown_here_is_asked_again_from_the_one_below():
    assert point(4, 12) == (10, False)


def test_an_epoch_newer_than_all_of_ours_counts_as_the_leader_says():
    """Kafka: endOffsetForEpoch knows nothing, so the leader's offset is all there is."""
    assert point(9, 12) == (12, True)


def entries(log: list[int]) -> list[tuple[int, int]]:
    """The epoch cache of a log that is given as its records' epochs."""
    return [(e, o) for o, e in enumerate(log) if o == 0 or log[o - 1] != e]


@given(
    common=st.lists(st.integers(1, 3), max_size=6).map(sorted),
    mine=st.lists(st.sampled_from([3, 4, 6, 8]), max_size=6).map(sorted),
    theirs=st.lists(st.sampled_from([3, 5, 7, 9]), max_size=6).map(sorted),
)
def test_asking_until_nothing_diverges_ends_exactly_where_the_logs_part(common, mine, theirs):
    """As elections leave logs: an epoch has one leader, so in two logs it has one beginning."""
    log, leaders = common + mine, common + theirs
    part = 0
    while part < min(len(log), len(leaders)) and log[part] == leaders[part]:
        part += 1
    leader = LeaderEpochs([*entries(leaders), (10, len(leaders))])
    for _ in range(len(log) + 1):
        if not log:
            break
        told = leader.end_offset_for(log[-1], len(leaders))
        assert told is not None
        epoch, end = told
        if epoch == log[-1] and end >= len(log):
            break
        ours = Log(entries(log), len(log))
        log = log[: truncation_point(ours, epoch=epoch, end_offset=end, fallback=0).offset]
    assert len(log) == part
    assert log == leaders[:part]

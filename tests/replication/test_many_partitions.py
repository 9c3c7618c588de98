"""A fetcher with thousands of partitions: its requests are built in pieces."""

from sparkraft.base.errors import ErrorCode
from sparkraft.replication.fetch_session import PARTITIONS_PER_STEP
from sparkraft.replication.fetcher import LOOKED_UP_AT_ONCE, Fetcher
from tests.replication.test_fetcher import BACKOFF, TOPIC, FakeReplica, asked, data, reply

COUNT = 2 * LOOKED_UP_AT_ONCE + 1


def fetcher(*, truncates_on_fetch: bool = True) -> Fetcher:
    made = Fetcher(
        backoff_ms=BACKOFF, partition_bytes_max=1 << 20, truncates_on_fetch=truncates_on_fetch
    )
    for index in range(COUNT):
        follow(made, index)
    return made


def follow(made: Fetcher, index: int, *, leader_epoch: int = 5) -> None:
    made.follow((TOPIC, index), "flights", leader_epoch=leader_epoch, replica=FakeReplica((1, 4)))


def test_a_full_request_is_built_in_pieces():
    made = fetcher()
    units, request = [], None
    steps = made.build_in_steps(0)
    while request is None:
        try:
            units.append(next(steps))
        except StopIteration as end:
            request = end.value
    assert max(units) == PARTITIONS_PER_STEP
    assert sum(units) >= 2 * (COUNT - PARTITIONS_PER_STEP)  # truncated or not, and named
    assert len(asked(request)) == COUNT


def test_what_changes_while_a_request_is_built_is_in_the_next_one():
    """A partition that has left is fetched no further, and a new one does not wait."""
    made = fetcher()
    request = None
    steps = made.build_in_steps(0)
    next(steps)
    made.leave((TOPIC, 0))
    made.leave((TOPIC, COUNT - 1))
    follow(made, 1, leader_epoch=6)
    follow(made, COUNT)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        request = end.value
    named = asked(request)
    assert made.has_changes
    assert COUNT - 1 not in named
    assert COUNT not in named
    assert reply(made, *(data(index=index) for index in named)) == 0
    following = made.build(0)
    assert asked(following) == {1: (1, 6, 4), COUNT: (1, 5, 4)}
    assert following is not None
    assert [list(each.partitions) for each in following.forgotten_topics_data] == [[0]]
    assert not made.has_changes


def test_the_bounds_of_a_bounded_number_of_partitions_are_looked_up_together():
    made = fetcher()
    made.build(0)
    refused = (data(index=index, error=ErrorCode.OFFSET_OUT_OF_RANGE) for index in range(COUNT))
    reply(made, *refused)
    made.leave((TOPIC, 0))
    sizes = []
    while found := made.out_of_range(0):
        sizes.append(len(found))
        for each in found:
            made.on_bounds(each, log_start_offset=0, log_end_offset=1, now=0)
    assert sizes == [LOOKED_UP_AT_ONCE, LOOKED_UP_AT_ONCE]


def test_a_partition_whose_bounds_are_refused_for_good_is_not_looked_up_again():
    made = fetcher()
    made.build(0)
    reply(made, data(index=7, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    (wanted,) = made.out_of_range(0)
    made.on_bounds_refused(wanted, ErrorCode.FENCED_LEADER_EPOCH, 0)
    assert made.out_of_range(BACKOFF) == []

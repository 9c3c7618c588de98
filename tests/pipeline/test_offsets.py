"""Planning: limits keep their budget, nothing starves or is read twice, tasks come out the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.pipeline import offsets as plan
from sparkraft.pipeline.places import EARLIEST, LATEST, ByOffset, ByTimestamp, OptionError

keys = st.sampled_from([("a", 0), ("a", 1), ("b", 0), ("b", 7), ("c", 2)])
spans = st.dictionaries(
    keys, st.tuples(st.integers(0, 10_000), st.integers(0, 100_000)), min_size=1
)


def two(spans):
    start = {key: low for key, (low, _) in spans.items()}
    return start, {key: low + size for key, (low, size) in spans.items()}


def test_the_json_is_the_official_connectors():
    offsets = {("b", 10): 5, ("a", 0): 1, ("b", 2): 7}
    assert plan.to_json(offsets) == {"a": {"0": 1}, "b": {"2": 7, "10": 5}}
    assert plan.from_json(plan.to_json(offsets)) == offsets


@given(spans, st.integers(1, 50_000))
def test_a_limit_is_kept_and_never_stops_the_stream(spans, budget):
    start, latest = two(spans)
    end = plan.limited(start, latest, budget=budget, weight={})
    taken = plan.count(start, end)
    assert taken <= budget
    assert taken == min(budget, plan.count(start, latest)) or taken > budget - len(spans)
    assert all(start[key] <= end[key] <= latest[key] for key in spans)
    assert taken > 0 or plan.count(start, latest) == 0


@given(spans, st.integers(5, 50_000))
def test_no_partition_with_records_is_left_out(spans, budget):
    start, latest = two(spans)
    end = plan.limited(start, latest, budget=budget, weight={})
    assert all(end[key] > start[key] for key in spans if latest[key] > start[key])


def test_a_budget_of_bytes_counts_what_records_weigh():
    start = {("a", 0): 0, ("b", 0): 0}
    latest = {("a", 0): 1000, ("b", 0): 1000}
    end = plan.limited(start, latest, budget=10_000, weight={("a", 0): 100, ("b", 0): 10})
    assert end[("a", 0)] * 100 + end[("b", 0)] * 10 <= 10_000
    assert plan.limited(start, latest, budget=5, weight={("a", 0): 100, ("b", 0): 10}) in (
        {("a", 0): 1, ("b", 0): 0},
        {("a", 0): 0, ("b", 0): 1},
    )


def test_aligned_partitions_are_cut_at_one_time():
    times = {("a", 0): list(range(0, 1000, 2)), ("b", 0): list(range(0, 1000, 50))}
    latest = {key: len(each) for key, each in times.items()}

    def offsets_at(ms):
        return {
            key: next((i for i, t in enumerate(each) if t >= ms), -1) for key, each in times.items()
        }

    start = dict.fromkeys(latest, 0)
    while start != latest:
        end = plan.limited_by_time(start, latest, budget=60, weight={}, offsets_at=offsets_at)
        assert 0 < plan.count(start, end) <= 60
        newest_taken = max(times[key][end[key] - 1] for key in end if end[key])
        oldest_left = min((times[k][end[k]] for k in end if end[k] < latest[k]), default=1 << 50)
        assert newest_taken <= oldest_left
        start = end


def test_one_moment_with_more_than_the_budget_is_shared_out():
    latest = {("a", 0): 100, ("b", 0): 100}
    end = plan.limited_by_time(
        {("a", 0): 0, ("b", 0): 0},
        latest,
        budget=10,
        weight={},
        offsets_at=lambda ms: dict.fromkeys(latest, 0 if ms <= 5 else -1),
    )
    assert end == {("a", 0): 5, ("b", 0): 5}


@given(spans, st.integers(1, 12), st.integers(1, 12), st.one_of(st.none(), st.integers(1, 40_000)))
def test_tasks_cover_every_offset_once_and_come_out_the_same(spans, least, most, per_task):
    start, end = two(spans)
    ranges = plan.ranges_of(start, end)
    dealt = plan.deal(
        ranges, tasks_max=max(least, most), tasks_min=least, records_per_task_max=per_task
    )
    assert dealt == plan.deal(
        list(ranges), tasks_max=max(least, most), tasks_min=least, records_per_task_max=per_task
    )
    pieces = sorted(piece for task in dealt for piece in task)
    joined = {}
    for piece in pieces:
        key = piece.topic, piece.partition
        assert piece.size > 0
        assert joined.get(key, start[key]) == piece.start
        joined[key] = piece.end
    assert joined == {key: end[key] for key in end if end[key] > start[key]}
    if per_task:
        assert all(sum(piece.size for piece in task) <= per_task for task in dealt)


def test_partitions_are_put_together_into_few_tasks():
    ranges = [plan.Range("t", number, 0, 10_000) for number in range(16)]
    dealt = plan.deal(ranges, tasks_max=2)
    assert [sum(piece.size for piece in task) for task in dealt] == [80_000, 80_000]


def test_few_records_make_one_task():
    ranges = [plan.Range("t", number, 0, 10) for number in range(16)]
    assert len(plan.deal(ranges, tasks_max=8)) == 1


def test_more_tasks_than_partitions_cut_ranges_in_proportion():
    ranges = [plan.Range("t", 0, 0, 30_000), plan.Range("t", 1, 0, 10_000)]
    dealt = plan.deal(ranges, tasks_max=4, tasks_min=4)
    assert [sum(piece.size for piece in task) for task in dealt] == [10_000] * 4


def test_places_of_words_topics_and_partitions():
    partitions = [("a", 0), ("a", 1), ("b", 0)]
    bound = ByOffset(by_topic={"a": {0: 23, 1: EARLIEST}, "b": LATEST})
    places = plan.places(bound, partitions, "startingOffsets")
    assert places.fixed == {("a", 0): 23}
    assert places.lookups == {("a", 1): EARLIEST, ("b", 0): LATEST}
    by_time = plan.places(ByTimestamp(everywhere=7), partitions, "startingTimestamp")
    assert by_time.lookups == dict.fromkeys(partitions, 7)


@pytest.mark.parametrize(
    ("by_topic", "match"),
    [
        ({"a": {0: 1}, "b": LATEST}, "has no offset for a-1"),
        ({"a": LATEST}, "has no offset for b-0"),
        ({"a": LATEST, "b": LATEST, "c": LATEST}, "names c, which is not read"),
        ({"a": {0: 1, 1: 1, 9: 1}, "b": LATEST}, "names a-9, which is not read"),
    ],
)
def test_places_that_leave_out_or_add_partitions_are_refused(by_topic, match):
    with pytest.raises(OptionError, match=match):
        plan.places(ByOffset(by_topic=by_topic), [("a", 0), ("a", 1), ("b", 0)], "startingOffsets")

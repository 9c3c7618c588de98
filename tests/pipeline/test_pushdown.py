"""Filters of a batch query narrow what is fetched, and never leave out a record that matches."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from sparkraft.pipeline.options import OptionError, source_options
from sparkraft.pipeline.pushdown import OFFSET_MAX, Narrowing, narrowing
from sparkraft.pipeline.source import BatchReader

TIME = datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=UTC)
TIME_MS = 1_767_225_600_001


def on(kind, column, *value):
    return kind((column,), *value)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], Narrowing()),
        ([on(EqualTo, "partition", 3)], Narrowing(partitions={3})),
        (
            [on(In, "partition", (1, 2, None)), on(In, "partition", (2, 3))],
            Narrowing(partitions={2}),
        ),
        ([on(EqualNullSafe, "topic", "a")], Narrowing(topics={"a"})),
        ([on(EqualTo, "partition", None)], Narrowing(partitions=set())),
        ([on(EqualTo, "offset", 7)], Narrowing(first=7, end=8)),
        ([on(In, "offset", (9, 4))], Narrowing(first=4, end=10)),
        ([on(GreaterThan, "offset", 4), on(LessThan, "offset", 9)], Narrowing(first=5, end=9)),
        (
            [on(GreaterThanOrEqual, "offset", 4), on(LessThanOrEqual, "offset", 9)],
            Narrowing(first=4, end=10),
        ),
        ([on(GreaterThan, "timestamp", TIME)], Narrowing(since=TIME_MS)),
        ([on(EqualTo, "timestamp", TIME)], Narrowing(since=TIME_MS)),
        ([on(GreaterThan, "timestamp", TIME.replace(tzinfo=None))], Narrowing()),
        ([on(LessThan, "timestamp", TIME)], Narrowing()),
        ([Not(on(EqualTo, "partition", 3)), on(IsNotNull, "offset")], Narrowing()),
        ([on(EqualTo, "key", b"k"), on(GreaterThan, "timestampType", 0)], Narrowing()),
    ],
)
def test_the_bounds_of_filters(filters, found):
    assert narrowing(filters) == found


def test_offsets_are_moved_towards_each_other():
    start, end = {("t", 0): 0, ("t", 1): 10}, {("t", 0): 5, ("t", 1): 30}
    assert Narrowing().narrowed(start, end) == (start, end)
    assert Narrowing(first=7, end=20).narrowed(start, end) == (
        {("t", 0): 5, ("t", 1): 10},
        {("t", 0): 5, ("t", 1): 20},
    )
    assert Narrowing(end=OFFSET_MAX).keeps(("t", 0))
    assert not Narrowing(topics={"u"}).keeps(("t", 0))
    assert not Narrowing(partitions={1}).keeps(("t", 0))


GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


def test_spark_takes_the_reader_with_push_down_and_without():
    reader = BatchReader(source_options(GIVEN | {"pushDownFilters": "true"}, streaming=False))
    # What pyspark asks to find out whether a reader defines the method; it would be refused then.
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters
    filters = [on(EqualTo, "partition", 3)]
    assert reader.pushFilters(filters) == filters
    assert reader.narrowing == Narrowing(partitions={3})


def test_filters_narrow_nothing_unless_the_read_has_the_option():
    """Spark would keep them for the next query of the same DataFrame."""
    reader = BatchReader(source_options(GIVEN, streaming=False))
    filters = [on(EqualTo, "partition", 3)]
    assert reader.pushFilters(filters) == filters
    assert reader.narrowing == Narrowing()


def test_a_streaming_query_does_not_push_filters_down():
    with pytest.raises(OptionError, match="pushDownFilters is for batch reads"):
        source_options(GIVEN | {"pushDownFilters": "true"}, streaming=True)

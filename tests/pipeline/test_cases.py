"""How the rows of a pipeline's tests are compared; the tests themselves need Spark."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

from sparkraft.pipeline.cases import difference


def test_equal_rows_in_any_order_and_with_nulls_left_out():
    rows = [{"a": 1, "b": None}, {"a": 2, "b": [{"c": Decimal("1.50")}]}]
    assert difference(rows, [{"a": 2, "b": [{"c": 1.5}]}, {"a": 1}]) is None
    assert difference([], []) is None


def test_values_of_spark_equal_those_of_toml():
    at = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=1)))
    row = {"at": at.astimezone(UTC).replace(tzinfo=None)}
    assert difference([row], [{"at": at}]) is None
    assert difference([row], [{"at": at.replace(tzinfo=None)}])
    assert difference([{"v": bytearray(b"x"), "s": 0.1 + 0.2}], [{"v": "x", "s": 0.3}]) is None


def test_each_missing_and_unexpected_row_is_shown():
    assert difference([{"a": 1}, {"a": 1}], [{"a": 1}, {"a": "x", "b": True}]) == (
        "missing:    a = 'x', b = True\nunexpected: a = 1"
    )

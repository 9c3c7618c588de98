"""The Delta sink: no column or value is lost in silence, and tombstones delete rows."""

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import Row
from pyspark.sql.pandas.types import from_arrow_schema

from sparkraft.pipeline import sinks, spec
from sparkraft.pipeline.batch_figures import BatchFigures, SetAside
from sparkraft.pipeline.decisions import QueryBatch
from sparkraft.pipeline.delta import DeltaSink, Stored
from sparkraft.pipeline.spec import SpecError

FIRST = {"id": [1, 2], "a": [1.0, 2.0], "s": [{"x": 1}, {"x": 2}]}


@pytest.fixture
def sink(tmp_path):
    def made(*keys, schema_changes="fail"):
        written = DeltaSink(str(tmp_path / "table"), keys, schema_changes)
        if not DeltaTable.is_deltatable(written.path):
            written.write(pa.table(FIRST), "q", 0)
        return written

    return made


def stored(sink):
    rows = DeltaTable(sink.path).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("keys", [(), ("id",)])
@pytest.mark.parametrize(
    ("batch", "named"),
    [
        ({**FIRST, "b": ["x", "y"]}, "the table has no column b"),
        ({"id": [3], "a": [1.0]}, "returns no column s, which the table has"),
        ({"id": [3], "a": [1.0], "s": [{"x": 1, "y": 2}]}, r"the table has no column s\.y"),
        ({"id": [3], "a": ["1.5"], "s": [{"x": 1}]}, "column a is string, .* the table's double"),
        ({"id": [3], "a": [2**60], "s": [{"x": 1}]}, "column a is int64, .* not in range"),
        ({"id": [3.5], "a": [1.0], "s": [{"x": 1}]}, "column id is double, .* truncated"),
        ({"id": [3], "a": [1.0], "s": [{"x": 0.5}]}, r"column s is struct<x: double>"),
    ],
)
def test_a_change_of_schema_stops_and_names_the_column(sink, keys, batch, named):
    written = sink(*keys)
    with pytest.raises(SpecError, match=named):
        written.write(pa.table(batch), "q", 1)
    assert stored(written) == stored(sink()) == pa.table(FIRST).to_pylist()
    assert not written.has("q", 1)


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_new_columns_are_added(sink, keys):
    written = sink(*keys, schema_changes="add")
    written.write(pa.table({"id": [3], "s": [{"x": 1, "y": 2}], "b": ["x"]}), "q", 1)
    assert stored(written) == [
        {"id": 1, "a": 1.0, "s": {"x": 1, "y": None}, "b": None},
        {"id": 2, "a": 2.0, "s": {"x": 2, "y": None}, "b": None},
        {"id": 3, "a": None, "s": {"x": 1, "y": 2}, "b": "x"},
    ]


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_new_columns_are_left_out_and_counted(sink, keys):
    written = sink(*keys, schema_changes="ignore")
    batch = {"id": [3, 4], "s": [{"x": 1, "y": 2}] * 2, "b": ["x", None]}
    assert written.write(pa.table(batch), "q", 1) == Stored(rows=2, deletes=0, ignored=3)
    assert stored(written)[2:] == [
        {"id": 3, "a": None, "s": {"x": 1}},
        {"id": 4, "a": None, "s": {"x": 1}},
    ]


def test_smaller_types_become_the_tables(sink):
    written = sink("id")
    batch = pa.table(
        {
            "id": pa.array([2], pa.int16()),
            "a": pa.array([0.5], pa.float32()),
            "s": pa.array([{"x": 7}], pa.struct([("x", pa.int32())])),
        }
    )
    written.write(batch, "q", 1)
    assert stored(written)[1] == {"id": 2, "a": 0.5, "s": {"x": 7}}


def test_a_tombstone_deletes_the_row_of_its_keys(sink):
    written = sink("id")
    batch = {"id": [1, 3, 4], "a": [None, 3.0, None], "s": [None, {"x": 3}, None]}
    batch |= {"tombstone": [True, None, True]}
    assert written.write(pa.table(batch), "q", 1) == Stored(rows=1, deletes=2, ignored=0)
    assert [row["id"] for row in stored(written)] == [2, 3]
    assert "tombstone" not in stored(written)[0]


def test_a_table_does_not_start_with_deleted_rows(tmp_path):
    written = DeltaSink(str(tmp_path / "table"), ("id",))
    batch = pa.table({"id": [1, 2], "tombstone": [True, False]})
    assert written.write(batch, "q", 0).rows == 1
    assert stored(written) == [{"id": 2}]


def test_without_keys_a_tombstone_stays_a_row_that_can_be_told_from_nulls(tmp_path):
    written = DeltaSink(str(tmp_path / "table"), ())
    batch = pa.table({"id": [1, 2], "value": pa.nulls(2, pa.string()), "tombstone": [True, False]})
    for number in range(2):
        written.write(batch, "q", number)
    assert [row["tombstone"] for row in stored(written)] == [True, True, False, False]


def test_rows_that_do_not_fit_are_separated_with_the_reason(sink):
    written = sink()
    ids = list(range(100))
    values = [float(number) for number in ids]
    values[17], values[50] = 1e300, 2.0
    batch = pa.table({"id": [0.5 if n in {3, 99} else float(n) for n in ids], "a": values})
    rows, misfits = written.without_misfits(batch)
    assert rows.num_rows == 98
    assert [misfit.row["id"] for misfit in misfits] == [0.5, 0.5]
    assert misfits[0].error.startswith(f"column id of the delta sink {written.path}: Float value")
    large = pa.table({"id": [1, 2], "s": [{"x": 2**70 // 2**8}, {"x": 1}], "a": [1, 2**60]})
    assert [misfit.row["id"] for misfit in written.without_misfits(large)[1]] == [2]


def test_without_a_table_every_row_fits(tmp_path):
    rows = pa.table({"id": [1.5]})
    assert DeltaSink(str(tmp_path / "none"), ()).without_misfits(rows) == (rows, [])


class Batch:
    """What a Delta sink uses of a DataFrame, as one task in this process."""

    def __init__(self, rows):
        self.rows = rows
        self.schema = from_arrow_schema(rows.schema)
        self.columns = rows.column_names

    def mapInArrow(self, run, _):  # noqa: N802 (Spark's)
        reports = list(run(iter(self.rows.to_batches())))
        self.reports = [Row(**row) for report in reports for row in report.to_pylist()]
        return self

    def collect(self):
        return self.reports

    def toArrow(self):  # noqa: N802 (Spark's)
        return self.rows


DEAD = """
name = "n"
checkpoint = "c"
[source]
subscribe = "t"
[dead_letter]
kind = "delta"
path = "dead"
[[sink]]
kind = "delta"
path = "table"
on_error = "dead_letter"
"""


def test_misfits_are_dead_letters_before_the_table_has_their_batch(sink, tmp_path):
    sink()
    pipeline = spec.parse(DEAD, folder=tmp_path, values={})
    figures = BatchFigures()
    write = sinks.in_order(pipeline, figures=figures)
    columns = {"id": [3.0, 4.5], "a": [1.0, 1.0], "s": [{"x": 1}] * 2}
    for _ in range(2):
        write(Batch(pa.table(columns)), QueryBatch("q", 1))
    assert figures.take_set_aside(1) == SetAside(misfits=1, dead_letters=1)
    assert [row["id"] for row in stored(sink())] == [1, 2, 3]
    (letter,) = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert json.loads(letter["value"]) == {"id": 4.5, "a": 1.0, "s": {"x": 1}}
    assert (letter["query"], letter["batch"], letter["offset"]) == ("q", 1, None)
    assert letter["stage"] == "TASK_PUT"
    assert "truncated" in letter["error"]


def test_a_batch_may_consist_of_misfits(sink):
    sink()
    rows, misfits = sink().without_misfits(pa.table({"id": [4.5, 5.5], "a": [1.0, 1.0]}))
    assert (rows.num_rows, rows.column_names, len(misfits)) == (0, ["id", "a"], 2)


def test_misfits_are_dropped_and_counted(sink, tmp_path, caplog):
    sink()
    text = DEAD.replace("dead_letter]", "unused]").partition("[unused]")
    text = text[0] + text[2][text[2].index("[[sink]]") :].replace("dead_letter", "drop")
    pipeline = spec.parse(text, folder=tmp_path, values={})
    columns = {"id": [3.0, 4.5], "a": [1.0, 1.0], "s": [{"x": 1}] * 2}
    figures = BatchFigures()
    write = sinks.in_order(pipeline, figures=figures)
    write(Batch(pa.table(columns)), QueryBatch("q", 1))
    assert [row["id"] for row in stored(sink())] == [1, 2, 3]
    assert "batch 1: left out 1 rows" in caplog.text
    assert figures.take_set_aside(1) == SetAside(misfits=1)


def test_values_of_columns_that_the_table_lacks_are_counted(sink, tmp_path):
    sink()
    text = DEAD.partition("[dead_letter]")[0] + DEAD[DEAD.index("[[sink]]") :]
    text = text.replace('on_error = "dead_letter"', 'schema_changes = "ignore"')
    pipeline, figures = spec.parse(text, folder=tmp_path, values={}), BatchFigures()
    rows = pa.table({"id": [3, 4], "new": ["x", None], "other": ["y", "z"]})
    sinks.in_order(pipeline, figures=figures)(Batch(rows), QueryBatch("q", 1))
    assert figures.take_set_aside(1) == SetAside(ignored=3)

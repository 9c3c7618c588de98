"""Rules of Delta tables, which Spark evaluates: deltalake's own checks say the same of each row."""

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from sparkraft.pipeline import sinks, spec
from sparkraft.pipeline.decisions import QueryBatch
from sparkraft.pipeline.delta import DeltaSink
from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_files import Written
from sparkraft.pipeline.table_rules import rules_of
from sparkraft.pipeline.upkeep import keep_up
from tests.pipeline.test_table_files import run_task
from tests.pipeline.test_table_merge import merge_of, upsert
from tests.pipeline.test_upkeep import age
from tests.support.delta_logs import delete_rows, field, invariant, new_table, rows_of

FILE = """
name = "n"
checkpoint = "c"
[source]
"kafka.bootstrap.servers" = "b:1"
subscribe = "t"
[[sink]]
kind = "delta"
path = "table"
"""

RULES = ("checkConstraints", "generatedColumns")
INNER = {"type": "struct", "fields": [field("x", nullable=False)]}
LIST = {"type": "array", "elementType": "long", "containsNull": True}
COLUMNS = [
    field("id", nullable=False),
    field("v", "integer", **invariant("v < 1000")),
    field("s", INNER),
    field("name", "string"),
    field("twice", **{"delta.generationExpression": "v * 2"}),
]
CONSTRAINTS = {
    "delta.constraints.positive": "v > 0 OR v IS NULL",
    "delta.constraints.named": "length(name) > 1",
}
SPARK_COLUMNS = "id BIGINT, v BIGINT, s STRUCT<x: BIGINT>, name STRING, twice BIGINT"
GOOD = (1, 5, (7,), "ab", 10)
ROWS = [
    GOOD,
    (None, 5, (7,), "ab", 10),
    (2, 0, (7,), "ab", 0),
    (3, 1000, (7,), "ab", 2000),
    (4, 5, (None,), "ab", 10),
    (5, 5, None, "ab", 10),
    (6, 5, (7,), "a", 10),
    (7, 5, (7,), None, 10),
    (8, 5, (7,), "ab", 11),
    (9, 5, (7,), "ab", None),
    (10, 999, (7,), "äb", 1998),
    (11, None, (7,), "ab", None),
]
"""For each rule, a row that breaks it; a null breaks a rule, too."""


def ruled_table(tmp_path):
    return new_table(tmp_path / "table", COLUMNS, features=RULES, **CONSTRAINTS)


def writer(tmp_path, more=""):
    pipeline = spec.parse(FILE + more, folder=tmp_path, values={})
    return sinks._delta(pipeline.sinks[0], pipeline)


def accepted_by_deltalake(tmp_path):
    """The ids of the rows that deltalake stores, one at a time."""
    path = new_table(tmp_path / "other", COLUMNS, features=RULES, **CONSTRAINTS)
    names = [each["name"] for each in COLUMNS]
    kinds = [pa.int64(), pa.int32(), pa.struct({"x": pa.int64()}), pa.string(), pa.int64()]
    found = []
    for row in ROWS:
        values = [{"x": row[2][0]} if value is row[2] and value else value for value in row]
        columns = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
        try:
            write_deltalake(path, pa.Table.from_arrays(columns, names=names), mode="append")
        except DeltaError:
            continue
        found.append(row[0])
    return found


DEAD_LETTERS = 'on_error = "dead_letter"\n[dead_letter]\nkind = "delta"\npath = "dead"\n'
BROKEN = {
    None: "rule that id is NOT NULL",
    2: "constraint positive (v > 0 OR v IS NULL)",
    3: "invariant of v (v < 1000)",
    4: "rule that s is NOT NULL",
    6: "constraint named (length(name) > 1)",
    7: "constraint named (length(name) > 1)",
    8: "generated column twice (v * 2)",
    9: "generated column twice (v * 2)",
    11: "invariant of v (v < 1000)",
}


@pytest.mark.spark
def test_rows_are_stored_that_deltalake_stores_and_others_are_dead_letters(spark, tmp_path):
    path = ruled_table(tmp_path)
    assert DeltaSink(path, ()).why_collected([each["name"] for each in COLUMNS]) is None
    batch = spark.createDataFrame(ROWS, SPARK_COLUMNS).coalesce(1)
    writer(tmp_path, DEAD_LETTERS)(batch, QueryBatch("q", 0))
    assert [row["id"] for row in rows_of(path)] == accepted_by_deltalake(tmp_path) == [1, 5, 10]
    dead = DeltaTable(str(tmp_path / "dead")).to_pyarrow_table().to_pylist()
    assert {json.loads(each["value"])["id"]: each["error"] for each in dead} == {
        key: f"delta sink {path}: a row breaks the table's {rule}" for key, rule in BROKEN.items()
    }
    values = [json.loads(each["value"]) for each in dead]
    assert {"id": 2, "v": 0, "s": {"x": 7}, "name": "ab", "twice": 0} in values
    with pytest.raises(SpecError, match="a row breaks the table's rule that id is NOT NULL"):
        writer(tmp_path)(batch, QueryBatch("q", 1))
    assert not DeltaSink(path, ()).has("q", 1)


@pytest.mark.spark
def test_generated_columns_are_computed_and_may_partition_the_table(spark, tmp_path):
    day = {"delta.generationExpression": "CAST(at AS DATE)"}
    path = new_table(
        tmp_path / "table",
        [field("id"), field("at", "timestamp"), field("day", "date", **day)],
        features=["generatedColumns"],
        partition_by=["day"],
    )
    batch = spark.createDataFrame(
        [(1, datetime(2026, 1, 1, 23, tzinfo=UTC)), (2, datetime(2026, 1, 2, 1, tzinfo=UTC))],
        "id BIGINT, at TIMESTAMP",
    )
    writer(tmp_path)(batch, QueryBatch("q", 0))
    assert [row["day"] for row in rows_of(path)] == [date(2026, 1, 1), date(2026, 1, 2)]
    found = pa.table(DeltaTable(path).get_add_actions(flatten=True)).column("partition.day")
    assert sorted(found.to_pylist()) == [date(2026, 1, 1), date(2026, 1, 2)]


KEYED = 'keys = ["id"]\n'


@pytest.mark.spark
def test_replaced_rows_obey_the_rules_and_deleted_ones_need_not(spark, tmp_path):
    path = new_table(
        tmp_path / "table",
        [field("id"), field("v", nullable=False), COLUMNS[-1]],
        features=RULES,
        **{"delta.constraints.positive": "v > 0"},
    )
    write = writer(tmp_path, KEYED + 'on_error = "drop"')
    columns = "id BIGINT, v BIGINT, tombstone BOOLEAN"
    rows = [(1, 1, False), (2, 2, False), (3, 3, None)]
    write(spark.createDataFrame(rows, columns), QueryBatch("q", 0))
    rows = [(1, 10, False), (2, None, True), (3, -3, False), (4, None, False)]
    write(spark.createDataFrame(rows, columns), QueryBatch("q", 1))
    assert rows_of(path) == [{"id": 1, "v": 10, "twice": 20}, {"id": 3, "v": 3, "twice": 6}]


def test_rows_that_keep_values_are_checked_when_they_are_merged(tmp_path):
    path = new_table(
        tmp_path / "table",
        [field("id"), field("v"), field("w")],
        features=RULES,
        **{"delta.constraints.ordered": "v <= w"},
    )
    sink = DeltaSink(path, ("id",), schema_changes="ignore")
    assert sink.why_collected(["id", "v", "w"]) is None
    assert sink.why_collected(["id", "v"])
    sink.write(pa.table({"id": [1], "v": [1], "w": [5]}), "q", 0)
    sink.write(pa.table({"id": [1], "v": [4]}), "q", 1)
    with pytest.raises(DeltaError, match="failed validation check"):
        sink.write(pa.table({"id": [1], "v": [6]}), "q", 2)
    assert rows_of(path) == [{"id": 1, "v": 4, "w": 5}]


@pytest.mark.spark
def test_rules_that_change_meanwhile_and_that_spark_does_not_know_are_reported(spark, tmp_path):
    path = str(tmp_path / "table")
    rows = pa.table({"id": pa.array([1], pa.int64())})
    write_deltalake(path, rows)
    sink = DeltaSink(path, ())
    sink.ruled(spark.range(1))
    task = sink.file_task(rows.schema, "p", separates=False)
    written = sinks.write_files(spark.range(1).coalesce(1), task, "t")
    DeltaTable(path).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(SpecError, match="another writer changed the table's rules meanwhile"):
        sink.commit(task, rows.schema, written, "q", 0)
    unknown = new_table(
        tmp_path / "unknown", [field("id")], features=RULES,
        **{"delta.constraints.odd": "our_own_function(id)"},
    )  # fmt: skip
    with pytest.raises(SpecError, match=r"Spark cannot evaluate the table's constraint odd \(our_"):
        DeltaSink(unknown, ()).ruled(spark.range(1))


def test_the_conditions_of_not_null_are_those_of_all_places(tmp_path):
    inner = {"type": "struct", "fields": [field("a b", LIST | {"containsNull": False})]}
    values = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": False}
    table = DeltaTable(new_table(tmp_path / "table", [field("m", values), field("l", LIST)]))
    (rule,) = rules_of(table).rules
    assert rule.name == "rule that m is NOT NULL"
    assert rule.sql == (
        "(`m` IS NULL OR (forall(map_values(`m`), x0 -> x0 IS NOT NULL AND (x0 IS NULL OR "
        "((x0.`a b` IS NULL OR (forall(x0.`a b`, x1 -> x1 IS NOT NULL))))))))"
    )


# ---- tables that deltalake cannot write


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_a_feature_that_cannot_be_written_is_named_at_once(tmp_path, monkeypatch, keys):
    identity = {"delta.identity.start": 1, "delta.identity.step": 1}
    identity["delta.identity.allowExplicitInsert"] = True
    path = new_table(
        tmp_path / "table", [field("id"), field("n", **identity)], features=["identityColumns"]
    )
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it is tried again"))
    expected = r"Unsupported table features required: \[IdentityColumns\]: drop them from the table"
    rows = pa.table({"id": [1], "n": [1]})
    with pytest.raises(SpecError, match=expected):
        DeltaSink(path, keys).write(rows, "q", 0)
    sink = DeltaSink(path, ())
    task = sink.file_task(rows.schema, "p", separates=False)
    written = written_in_a_task(task, rows)
    with pytest.raises(SpecError, match=expected):
        sink.commit(task, rows.schema, written, "q", 0)


def written_in_a_task(task, rows):
    written = Written()
    run_task(task, rows, written)
    return written


def test_an_append_only_table_replaces_no_rows(tmp_path, monkeypatch):
    path = new_table(tmp_path / "table", [field("id")], **{"delta.appendOnly": "true"})
    sink = DeltaSink(path, ("id",))
    upsert(sink, pa.table({"id": [1]}), 0)
    upsert(sink, pa.table({"id": [2]}), 1)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("it is tried again"))
    with pytest.raises(SpecError, match="append-only: leave out keys, or set its property delta"):
        upsert(sink, pa.table({"id": [2]}), 2)
    assert [row["id"] for row in rows_of(path)] == [1, 2]


def with_deletion_vectors(tmp_path):
    """A table with rows 1, 2 and 3 in one file, and the file's name."""
    path = new_table(
        tmp_path / "table", [field("id"), field("v")], features=["deletionVectors"],
        **{"delta.enableDeletionVectors": "true"},
    )  # fmt: skip
    DeltaSink(path, ()).write(pa.table({"id": [1, 2, 3], "v": [1, 2, 3]}), "q", 0)
    (file,) = (uri.rpartition("/")[2] for uri in DeltaTable(path).file_uris())
    return path, file


@pytest.mark.parametrize("inline", [True, False])
def test_rows_deleted_by_deletion_vectors_stay_deleted(tmp_path, inline):
    path, file = with_deletion_vectors(tmp_path)
    sink = DeltaSink(path, ("id",))
    assert sink.why_collected(["id", "v"]) is None
    delete_rows(path, file, [1], inline=inline)
    assert [row["id"] for row in rows_of(path)] == [1, 3]
    assert sink.why_collected(["id", "v"])
    assert DeltaSink(path, ()).why_collected(["id", "v"]) is None
    sink.write(pa.table({"id": [3, 4], "v": [30, 40]}), "q", 1)
    assert [(row["id"], row["v"]) for row in rows_of(path)] == [(1, 1), (3, 30), (4, 40)]


def test_a_merge_beside_a_writer_of_deletion_vectors_is_not_committed(tmp_path):
    path, file = with_deletion_vectors(tmp_path)
    sink = DeltaSink(path, ("id",))
    merge = merge_of(sink, pa.table({"id": [3], "v": [30]}), 1)
    delete_rows(path, file, [1])
    with pytest.raises(SpecError, match=r"by deletion vectors .* meanwhile: start the pipeline"):
        sink.merge(merge, "q", 1)
    assert [row["id"] for row in rows_of(path)] == [1, 3]


def test_compaction_keeps_the_deletion_vectors_of_files_that_stay(tmp_path):
    path, file = with_deletion_vectors(tmp_path)
    delete_rows(path, file, [1])
    orphan = tmp_path / "table" / "orphan.parquet"
    orphan.write_bytes(b"")
    age([*orphan.parent.glob("*.*")], 2)
    assert keep_up(path, retain_hours=1) == (1, 1, 1)
    assert not orphan.exists()
    assert [row["id"] for row in rows_of(path)] == [1, 3]

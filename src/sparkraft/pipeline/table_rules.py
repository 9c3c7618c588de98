"""Rules of a Delta table for its rows: NOT NULL, invariants, CHECK constraints, generated columns.

Their expressions are Spark's SQL. So Spark evaluates them, in the plan of a batch, and the tasks
that write files see which rows break a rule. Sources: PROTOCOL.md of Delta, "Column Invariants",
"CHECK Constraints" and "Generated Columns"; its `CheckDeltaInvariant` for the null of a rule.

Invariants:
    * A row is stored only if each rule is true for it; null is not.
    * A rule sees the values with the table's types, and null in columns that the batch lacks.

Not here: reports of rows that break a rule (`table_fit`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.pipeline.spec import SpecError
from sparkraft.pipeline.table_fit import BROKEN_RULE, TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

_CONSTRAINTS: Final = "delta.constraints."
_INVARIANTS: Final = "delta.invariants"
_GENERATION: Final = "delta.generationExpression"

_GIVEN: Final = "__sparkraft_given_"
"""Prefix of the batch's own columns while rules are evaluated."""


class Rule(NamedTuple):
    """A rule, and the words for it in errors.

    Args:
        name: such as `constraint positive`.
        sql: true for rows that may be stored.
    """

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class TableRules:
    """The rules of a table.

    Args:
        schema: of the table, in Delta's JSON, which is Spark's.
        rules: that rows must obey.
        generated: columns and the expressions of their values; a rule compares both.
    """

    schema: str
    rules: tuple[Rule, ...]
    generated: tuple[tuple[str, str], ...]

    def lacks(self, columns: Iterable[str]) -> bool:
        """Whether these columns miss one of the table that is not generated."""
        known = {*columns, *(name for name, _ in self.generated)}
        return any(field["name"] not in known for field in json.loads(self.schema)["fields"])

    def applied(self, batch: DataFrame, name: str, *, deletes: bool) -> DataFrame:
        """Add the generated columns that a batch lacks, and `BROKEN_RULE`.

        Args:
            batch: rows.
            name: of the sink, for errors.
            deletes: whether the column `tombstone` marks rows to delete, which no rule is for.

        Raises:
            SpecError: Spark cannot evaluate a rule.
        """
        from pyspark.errors import AnalysisException

        if not self.rules:
            return batch
        try:
            ruled = self._applied(batch, deletes=deletes)
            # Over Spark Connect, a plan is not analyzed before its schema is asked for.
            ruled.schema  # noqa: B018
        except AnalysisException as error:
            why = str(error).strip().splitlines()[0]
            rules = ", ".join(rule.name for rule in self.rules)
            raise SpecError(f"{name}: Spark cannot evaluate the table's {rules}: {why}") from error
        return ruled

    def _applied(self, batch: DataFrame, *, deletes: bool) -> DataFrame:
        from pyspark.sql import functions as f
        from pyspark.sql.types import StructType

        columns: StructType = StructType.fromJson(json.loads(self.schema))
        computed = {
            column: f.expr(sql).cast(columns[column].dataType)
            for column, sql in self.generated
            if column not in batch.columns
        }
        given = [f.col(_quoted(each)).alias(_GIVEN + each) for each in batch.columns]
        seen = [_as_stored(batch, field) for field in columns if field.name not in computed]
        rows = batch.select(*given, *seen)
        if computed:
            rows = rows.withColumns(computed)
        broken = _first_broken(self.rules)
        if deletes:
            is_deleted = f.coalesce(f.col(_GIVEN + TOMBSTONE), f.lit(False))  # noqa: FBT003
            broken = f.when(~is_deleted, broken)
        kept = [f.col(_quoted(_GIVEN + each)).alias(each) for each in batch.columns]
        return rows.select(*kept, *map(_quoted, computed), broken.alias(BROKEN_RULE))


def _as_stored(batch: DataFrame, field: StructField) -> Column:
    """A column of the table, from the batch, with the table's type if that is a number."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import NumericType

    if field.name not in batch.columns:
        return f.lit(None).cast(field.dataType).alias(field.name)
    column = f.col(_quoted(field.name))
    kinds = (field.dataType, batch.schema[field.name].dataType)
    if all(isinstance(kind, NumericType) for kind in kinds):
        # A value that does not fit is reported by its type.
        column = column.try_cast(field.dataType)
    return column.alias(field.name)


def _first_broken(rules: Sequence[Rule]) -> Column:
    from pyspark.sql import functions as f

    false = f.lit(False)  # noqa: FBT003
    broken = [f.when(~f.coalesce(f.expr(each.sql), false), each.name) for each in rules]
    return f.coalesce(*broken)


def rules_of(table: Any) -> TableRules:
    """The rules of a table of deltalake."""
    schema = table.schema().to_json()
    fields = json.loads(schema)["fields"]
    generated = tuple(
        (each["name"], each["metadata"][_GENERATION])
        for each in fields
        if _GENERATION in each["metadata"]
    )
    constraints = (
        Rule(f"constraint {key.removeprefix(_CONSTRAINTS)} ({sql})", sql)
        for key, sql in sorted(table.metadata().configuration.items())
        if key.startswith(_CONSTRAINTS)
    )
    rules = (*_not_null_rules(schema), *_invariants(fields), *constraints)
    return TableRules(schema, (*rules, *_generation_rules(schema, generated)), generated)


def _generation_rules(schema: str, generated: Sequence[tuple[str, str]]) -> Iterator[Rule]:
    from pyspark.sql.types import StructType

    columns = StructType.fromJson(json.loads(schema))
    for column, sql in generated:
        kind = columns[column].dataType.simpleString()
        same = f"CAST(({sql}) AS {kind}) <=> {_quoted(column)}"
        yield Rule(f"generated column {column} ({sql})", same)


def _invariants(fields: list[dict[str, Any]]) -> Iterator[Rule]:
    """Those of columns, also inside structs."""
    for each in fields:
        if _INVARIANTS in each["metadata"]:
            sql = json.loads(each["metadata"][_INVARIANTS])["expression"]["expression"]
            yield Rule(f"invariant of {each['name']} ({sql})", sql)
        if isinstance(each["type"], dict) and each["type"]["type"] == "struct":
            yield from _invariants(each["type"]["fields"])


def _not_null_rules(schema: str) -> Iterator[Rule]:
    from pyspark.sql.types import StructType

    for field in StructType.fromJson(json.loads(schema)):
        parts = _not_null(_quoted(field.name), field.dataType, nullable=field.nullable)
        if parts:
            yield Rule(f"rule that {field.name} is NOT NULL", " AND ".join(parts))


def _not_null(value: str, kind: DataType, *, nullable: bool, depth: int = 0) -> list[str]:
    """Conditions under which a value has no null at a place of its type that forbids it."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    inner: list[str] = []
    item = f"x{depth}"
    if isinstance(kind, StructType):
        for each in kind:
            path = f"{value}.{_quoted(each.name)}"
            inner += _not_null(path, each.dataType, nullable=each.nullable, depth=depth)
    elif isinstance(kind, ArrayType):
        within = _not_null(item, kind.elementType, nullable=kind.containsNull, depth=depth + 1)
        inner += [f"forall({value}, {item} -> {' AND '.join(within)})"] if within else []
    elif isinstance(kind, MapType):
        within = _not_null(item, kind.valueType, nullable=kind.valueContainsNull, depth=depth + 1)
        values = f"map_values({value})"
        inner += [f"forall({values}, {item} -> {' AND '.join(within)})"] if within else []
    found = [] if nullable else [f"{value} IS NOT NULL"]
    return [*found, f"({value} IS NULL OR ({' AND '.join(inner)}))"] if inner else found


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"

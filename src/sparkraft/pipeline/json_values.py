"""JSON values as columns: values that fit the schema, tombstones, and damaged values.

Spark's own `from_json` returns nulls for a value that it cannot read, ignores everything after the
first object, and uses the first object of an array. A record is damaged here if its value is not
exactly one JSON object whose fields fit the schema, or is not UTF-8. A null value is a tombstone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sparkraft.pipeline.delta import TOMBSTONE
from sparkraft.pipeline.spec import SpecError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

OBSERVED: Final = "sparkraft.json"
"""The name of the counts in Spark's progress; `DAMAGED` is the only one."""
DAMAGED: Final = "damaged"

COMPLAINT: Final = re.compile(r"\[source\.json\]: the value of .+? leaves such records out")
"""The sentence about a damaged record, within the text of Spark's exception."""

_PARSED: Final = "__sparkraft_parsed"
_CORRUPT: Final = "_corrupt_record"


def decoded(records: DataFrame, schema: str, on_error: str) -> DataFrame:
    """Replace `value` by a struct and `key` by text, and add the column `tombstone`.

    Args:
        records: in the source's columns.
        schema: of the value, as DDL.
        on_error: `stop` fails the query at a damaged record and names its offset; `drop` leaves
            damaged records out and counts them.
    """
    from pyspark.sql import functions as f

    # The generator keeps Spark from parsing a value twice, once for the filter below.
    parsed = records.select("*", f.explode(f.array(_parsed(schema))).alias(_PARSED))
    damaged = _is_damaged()
    if on_error == "stop":
        # Spark runs filters of the query, and null checks that it infers, only after an observed
        # column: none of them hides a damaged record from this one.
        sound = f.when(damaged, f.raise_error(_complaint())).otherwise(f.lit(True))  # noqa: FBT003
        kept = parsed.where(sound).observe(OBSERVED, f.count_if(damaged).alias(DAMAGED))
    else:
        kept = parsed.observe(OBSERVED, f.count_if(damaged).alias(DAMAGED)).where(~damaged)
    columns = {
        "key": f.col("key").cast("string"),
        "value": f.col(f"{_PARSED}.v"),
        TOMBSTONE: f.col("value").isNull(),
    }
    return kept.withColumns(columns).drop(_PARSED)


def value_type(schema: str) -> DataType:
    """The type that a DDL text names; `SpecError` if it names none."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        return StructType.fromDDL(schema)
    except PySparkException as error:
        why = (error.getMessage() or str(error)).strip().splitlines()[0]
        raise SpecError(f"[source.json] schema: {why}") from None


def _parsed(schema: str) -> Column:
    """The value inside an object of one field, so that anything after it is an error."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructType

    whole = StructType().add("v", value_type(schema)).add(_CORRUPT, StringType())
    text = f.concat(f.lit('{"v":'), f.col("value").cast("string"), f.lit("}"))
    # With options Spark reads all fields, also if the query needs only some of them.
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(text, whole, options)


def _is_damaged() -> Column:
    from pyspark.sql import functions as f

    unreadable = f.col(f"{_PARSED}.v").isNull() | f.col(f"{_PARSED}.{_CORRUPT}").isNotNull()
    is_text = f.is_valid_utf8(f.col("value").cast("string"))
    return f.col("value").isNotNull() & (unreadable | ~is_text)


def _complaint() -> Column:
    from pyspark.sql import functions as f

    return f.concat(
        f.lit("[source.json]: the value of "),
        f.col("topic"),
        f.lit("-"),
        f.col("partition").cast("string"),
        f.lit(" at offset "),
        f.col("offset").cast("string"),
        f.lit(' does not fit the schema; on_error = "drop" leaves such records out'),
    )

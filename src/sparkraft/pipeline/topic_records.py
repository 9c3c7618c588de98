"""Rows of a pipeline's result as the records of a topic sink.

Not here: writing them (`sinks`), which of them fit (`topic_fit`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sparkraft.pipeline import topic_fit
from sparkraft.pipeline.registered_values import encoded_column
from sparkraft.pipeline.table_fit import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from sparkraft.pipeline.spec import Sink
    from sparkraft.pipeline.value_formats import ValueFormat


def records_of(batch: DataFrame, sink: Sink) -> DataFrame:
    """The rows themselves if they have a column `value`, else encoded ones.

    Unless the sink stops at rows that do not fit, records have the columns of `topic_fit`.
    """
    from pyspark.sql import functions as f

    more = [] if sink.on_error == "stop" else [f.struct(*batch.columns).alias(topic_fit.ROW)]
    if sink.format is None and sink.key_format is None and "value" in batch.columns:
        if not more:
            return batch
        kept = [each for each in _RECORD_COLUMNS if each in batch.columns]
        return batch.select(*kept, *more)
    return as_records(batch, sink.keys, sink.format, sink.key_format, more=more)


_RECORD_COLUMNS: Final = ("key", "value", "partition", "headers")


def as_records(
    rows: DataFrame,
    keys: Sequence[str],
    form: ValueFormat | None = None,
    key_form: ValueFormat | None = None,
    *,
    more: Sequence[Column] = (),
) -> DataFrame:
    """Rows as JSON objects, nulls written out, or in a format with a schema; keyed by key columns.

    With keys, a row whose boolean column `tombstone` is true becomes a tombstone.

    Args:
        rows: a batch.
        keys: the key columns; empty for records without keys.
        form: of values; None for JSON.
        key_form: of keys; None for text (see `_text_key`).
        more: columns of the rows to keep. With any, the column `topic_fit.REASON` has the reason
            if a schema refuses a row, which fails the batch otherwise.
    """
    from pyspark.sql import functions as f

    deletes = bool(keys) and (TOMBSTONE, "boolean") in rows.dtypes
    stored = [each for each in rows.columns if not (deletes and each == TOMBSTONE)]
    encoded = partial(encoded_column, rows, with_reasons=bool(more))
    value = (
        encoded(stored, form)
        if form
        else f.to_json(f.struct(*stored), {"ignoreNullFields": "false"})
    )
    if deletes:
        value = f.when(~f.coalesce(f.col(TOMBSTONE), f.lit(False)), value)  # noqa: FBT003
    columns = {"value": value}
    if keys:
        columns = {"key": encoded(keys, key_form) if key_form else _text_key(keys), **columns}
    records = rows.select(*(column.alias(name) for name, column in columns.items()), *more)
    if not more:
        return records
    with_reasons = [name for name, of in (("key", key_form), ("value", form)) if of]
    plain = [
        f.col(f"{name}.v").alias(name) if name in with_reasons else f.col(name) for name in columns
    ]
    reasons = [f.col(f"{name}.reason") for name in with_reasons] or [f.lit(None).cast("string")]
    kept = [f.col(topic_fit.ROW), f.coalesce(*reasons).alias(topic_fit.REASON)]
    return records.select(*plain, *kept)


def _text_key(names: Sequence[str]) -> Column:
    r"""The key as text: a null key for a null, or the texts of several columns with `|` between.

    Rows with different values never have the same key, because one would replace the other in a
    compacted topic: in a key of several columns, `|` and the backslash follow a backslash, and a
    null is `\N`.
    """
    from pyspark.sql import functions as f

    texts = [f.col(each).cast("string") for each in names]
    if len(texts) == 1:
        return texts[0]
    escaped = (f.regexp_replace(each, r"([|\\])", r"\\$1") for each in texts)
    return f.concat_ws("|", *(f.coalesce(each, f.lit(r"\N")) for each in escaped))

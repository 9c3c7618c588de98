"""The pipeline file: one small TOML file for source, transformation and sinks.

::

    name = "delays"                       # the query's name
    checkpoint = "state/delays"           # Spark's memory of what is done; the exactly-once half
    trigger = "2 seconds"                 # or "available now": stop when caught up
    output_mode = "update"                # append (default), update, complete
    group = "delays"                      # optional: processed offsets are shown in this group
    metrics = "127.0.0.1:9464"            # optional: metrics for Prometheus, while it runs
    batches_topic = "pipeline-batches"    # optional: a JSON document of each batch

    [source]                              # the options of format("sparkraft"); or several
                                          # [[source]], each with a name for SQL
    "kafka.bootstrap.servers" = "${bootstrap}"
    subscribe = "flights"

    [source.json]                         # optional: value becomes a struct
    schema = "origin STRING, scheduled TIMESTAMP, delay DOUBLE"
    envelope = "debezium"                 # optional: values are change events of rows
    framing = "confluent"                 # or: they begin with the id of a registry's schema
    on_error = "stop"                     # at a value that does not fit: stop (default), drop,
                                          # dead_letter

    [source.avro]                         # instead: values have schemas; or protobuf, json_schema
    registry = "URL"                      # see `value_formats`
    on_error = "stop"

    [source.key.avro]                     # optional: keys have schemas; else they are text
    registry = "URL"

    [source.watermark]                    # optional: adds column event_time
    event_time = "value.scheduled"
    delay = "24 hours"
    deduplicate_by = ["value.id"]         # optional: drops repeated records within the delay

    [transform]                           # one of the two; neither passes records on
    sql = "SELECT value.origin, count(*) AS flights FROM source GROUP BY 1"
    function = "flights.py:by_hour"       # DataFrame -> DataFrame
                                          # or several [[transform]], each after the one before;
    name = "hourly"                       # SQL and the inputs of functions refer to them by name
    inputs = ["source"]

    [dead_letter]                         # for on_error = "dead_letter"
    kind = "topic"                        # topic, delta (with path)
    topic = "delays-dead"
    delivery = "exactly_once"             # of a topic: in transactions; at_least_once (default)

    [[sink]]                              # one or several, written in this order
    kind = "delta"                        # delta, iceberg, topic, parquet, console, function
    path = "tables/delays"
    keys = ["origin"]
    order_by = "offset"                   # optional: of rows with equal keys, the last counts
    partition_by = ["origin"]             # optional; of Iceberg also "day(at)", "bucket(16, id)"
    on_error = "stop"                     # at a row that does not fit: stop, drop, dead_letter

    [[sink]]
    kind = "topic"
    topic = "delays"
    delivery = "exactly_once"             # in transactions; at_least_once (default)
    avro = { registry = "URL" }           # optional: or protobuf, json_schema; else JSON
    keys = ["origin"]
    key.avro = { registry = "URL" }       # optional: keys with a schema, else text

    [[test]]                              # optional, for `pipeline test`
    name = "flights are counted by origin"
    input = [{ value = '{"origin": "JFK"}' }]
    expected = [{ origin = "JFK", flights = 1 }]

Paths are relative to the file. `${name}` is filled from `--set name=value`, else the environment.

Not here: running it (`run`), writing (`sinks`).
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkraft.pipeline.file_fields import (
    SpecError,
    as_strings,
    needed_text,
    one_of,
    refuse_others,
    sub_table,
)
from sparkraft.pipeline.value_formats import FORMATS, ValueFormat, sink_format, source_format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


__all__ = [
    "ONLY_SOURCE",
    "Case",
    "Pipeline",
    "Sink",
    "Source",
    "SpecError",
    "Stage",
    "Watermark",
    "load",
    "parse",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How late a record may be.

    Args:
        event_time: the expression.
        delay: an interval.
        deduplicate_by: expressions that are equal in a record and its repetitions.
    """

    event_time: str
    delay: str
    deduplicate_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Topics to read; `name` is its view in SQL.

    Args:
        options: of the connector.
        json_schema: of JSON values, as DDL; None if they are not JSON.
        format: of values that have a schema; None if they have none. If they are neither, they
            stay bytes.
        key_format: of keys that have a schema; None if keys are text.
        is_envelope: whether values are Debezium's change events of rows with the schema.
        is_framed: whether JSON values begin with the id of a registry's schema.
        on_error: the action for values that do not fit: stop, dead_letter or drop.
    """

    name: str
    options: Mapping[str, str]
    json_schema: str | None
    on_error: str
    watermark: Watermark | None
    is_envelope: bool = False
    is_framed: bool = False
    format: ValueFormat | None = None
    key_format: ValueFormat | None = None

    @property
    def has_values(self) -> bool:
        """Whether values become columns."""
        return self.json_schema is not None or self.format is not None

    @property
    def is_decoded(self) -> bool:
        """Whether values or keys become columns, so that records may be damaged."""
        return self.has_values or self.key_format is not None

    @property
    def place(self) -> str:
        """Its table in the file, for messages."""
        return "[source]" if self.name == ONLY_SOURCE else f"[[source]] {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A transformation; `name` is the view of its result in the SQL of later stages.

    Args:
        sql: over the views of sources and earlier stages.
        function: with one DataFrame for each of `inputs`.
        inputs: names of sources and earlier stages.
    """

    name: str
    sql: str | None
    function: str | None
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Destination of results; `kind` determines which fields apply."""

    kind: str
    path: str = ""
    table: str = ""
    keys: tuple[str, ...] = ()
    order_by: str = ""
    partition_by: tuple[str, ...] = ()
    compact_at: int = 0
    topic: str = ""
    delivery: str = "at_least_once"
    function: str = ""
    schema_changes: str = "fail"
    on_error: str = "stop"
    rows: int = 20
    options: Mapping[str, str] = field(default_factory=dict)
    format: ValueFormat | None = None
    key_format: ValueFormat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An example of what the pipeline makes of some records, for `pipeline test`.

    Args:
        name: its purpose, in a sentence.
        inputs: for each source, records with any of key, value, topic, partition, offset,
            timestamp, headers.
        expected: the rows of the result in any order; columns that are left out are null.
        damaged: records that do not fit their schema.
        error: a part of the message with which it stops; None if it must not.
    """

    name: str
    inputs: Mapping[str, Sequence[Mapping[str, Any]]]
    expected: Sequence[Mapping[str, Any]]
    damaged: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A checked pipeline file."""

    name: str
    checkpoint: str
    trigger: str
    output_mode: str
    group: str | None
    metrics: str
    batches_topic: str
    connector: str
    master: str
    spark: Mapping[str, str]
    sources: tuple[Source, ...]
    stages: tuple[Stage, ...]
    sinks: tuple[Sink, ...]
    dead_letter: Sink | None
    cases: tuple[Case, ...]
    folder: Path

    @property
    def loses_records(self) -> bool:
        """Whether damaged records are left out of the result, and counted."""
        return any(source.on_error != "stop" for source in self.sources)


ONLY_SOURCE: Final = "source"
"""The name of the source of a file with one."""

_TOP: Final = frozenset(
    {
        "name",
        "checkpoint",
        "trigger",
        "output_mode",
        "group",
        "metrics",
        "batches_topic",
        "connector",
        "master",
        "spark",
        "source",
        "transform",
        "sink",
        "dead_letter",
        "test",
    }
)
_TABLE_FIELDS: Final = frozenset(
    {"keys", "order_by", "partition_by", "compact_at", "schema_changes", "on_error"}
)
_SINK_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "topic": frozenset({"topic", "keys", "options", "delivery", "key", "on_error", *FORMATS}),
    "delta": _TABLE_FIELDS | {"path"},
    "iceberg": _TABLE_FIELDS | {"path", "table", "options"},
    "parquet": frozenset({"path", "partition_by"}),
    "console": frozenset({"rows"}),
    "function": frozenset({"function"}),
}
_SINK_NEEDS: Final = {
    "topic": "topic",
    "delta": "path",
    "iceberg": "table",
    "parquet": "path",
    "function": "function",
}
_DEAD_LETTER_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "topic": frozenset({"topic", "options", "delivery"}),
    "delta": frozenset({"path"}),
}
_ENVELOPES: Final = ("none", "debezium")
_FRAMINGS: Final = ("none", "confluent")
_ON_ERROR: Final = ("stop", "dead_letter", "drop")
_OUTPUT_MODES: Final = ("append", "update", "complete")
_SCHEMA_CHANGES: Final = ("fail", "add", "ignore")
_DELIVERIES: Final = ("at_least_once", "exactly_once")
_CONNECTORS: Final = {"sparkraft": "sparkraft", "official": "kafka"}


def load(path: Path, values: Mapping[str, str] | None = None) -> Pipeline:
    """Read and check a pipeline file; `SpecError` names the error."""
    try:
        text = path.read_text()
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from error
    try:
        return parse(text, folder=path.resolve().parent, values=values or {})
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def parse(text: str, *, folder: Path, values: Mapping[str, str]) -> Pipeline:
    """The pipeline in a file's text."""
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(str(error)) from error
    read = _filled(read, {**os.environ, **values})
    refuse_others(read, _TOP, "the file")
    connector = one_of(read, "connector", tuple(_CONNECTORS), "sparkraft")
    if connector != "sparkraft" and "group" in read:
        raise SpecError('group: only connector = "sparkraft" shows its offsets in a group')
    if connector != "sparkraft" and "batches_topic" in read:
        raise SpecError('batches_topic needs connector = "sparkraft"')
    sources, written = _sources(read, folder), _sinks(read, folder)
    letters = _dead_letter(read, folder, [*sources, *written])
    deliveries = {sink.delivery for sink in (*written, letters) if sink}
    checked = any(sink.kind == "topic" and sink.on_error != "stop" for sink in written)
    if connector != "sparkraft" and checked:
        raise SpecError('on_error of a topic sink needs connector = "sparkraft"')
    if connector != "sparkraft" and "exactly_once" in deliveries:
        raise SpecError('delivery = "exactly_once" needs connector = "sparkraft"')
    return Pipeline(
        name=needed_text(read, "name", "the file"),
        checkpoint=_path(needed_text(read, "checkpoint", "the file"), folder),
        trigger=str(read.get("trigger", "1 second")),
        output_mode=one_of(read, "output_mode", _OUTPUT_MODES, "append"),
        group=read.get("group"),
        metrics=str(read.get("metrics", "")),
        batches_topic=str(read.get("batches_topic", "")),
        connector=_CONNECTORS[connector],
        master=str(read.get("master", "local[*]")),
        spark=as_strings(sub_table(read, "spark", needed=False)),
        sources=sources,
        stages=_stages(read, [source.name for source in sources]),
        sinks=written,
        dead_letter=letters,
        cases=_cases(read, [source.name for source in sources]),
        folder=folder,
    )


_PLACEHOLDER: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    """The same with every `${name}` in a text replaced."""
    if isinstance(value, dict):
        return {key: _filled(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise SpecError(f"${{{match[1]}}} has no value: give --set {match[1]}=VALUE")
        return values[match[1]]

    return _PLACEHOLDER.sub(fill, value)


def _tables(read: Mapping[str, Any], name: str) -> list[tuple[dict[str, Any], bool]]:
    """The table of a name, or each of several; and whether there may be several."""
    found = read.get(name)
    if isinstance(found, list) and all(isinstance(each, dict) for each in found):
        return [(dict(each), True) for each in found]
    return [(dict(sub_table(read, name)), False)]


def _sources(read: Mapping[str, Any], folder: Path) -> tuple[Source, ...]:
    sources = []
    for given, is_named in _tables(read, "source"):
        name = _name(given.pop("name", None), "[[source]]") if is_named else ONLY_SOURCE
        sources.append(_source(name, given, folder))
    if "group" in read and len({s.options.get("kafka.bootstrap.servers") for s in sources}) > 1:
        raise SpecError("group: the sources read from different clusters")
    return tuple(sources)


def _source(name: str, given: dict[str, Any], folder: Path) -> Source:
    json_part = given.pop("json", None)
    watermark = given.pop("watermark", None)
    if json_part is not None:
        refuse_others(json_part, {"schema", "on_error", "envelope", "framing"}, "[source.json]")
    form, key_form = (source_format(given, folder, is_key=is_key) for is_key in (False, True))
    if json_part is not None and form is not None:
        raise SpecError(f"[source.json] and {form.place}: values are of one format")
    is_envelope = one_of(json_part or {}, "envelope", _ENVELOPES, "none") == "debezium"
    if is_envelope and key_form is not None:
        raise SpecError("[source.json] envelope reads keys as JSON: [source.key] is not for it")
    key_tables = given.pop("key", {})
    tables = [json_part, given.pop(form.kind) if form else None]
    tables.append(key_tables[key_form.kind] if key_form else None)
    schema = None if json_part is None else needed_text(json_part, "schema", "[source.json]")
    return Source(
        name=name,
        format=form,
        key_format=key_form,
        json_schema=schema,
        on_error=_on_error([each for each in tables if each is not None]),
        watermark=_watermark(watermark),
        is_envelope=is_envelope,
        is_framed=_is_framed(json_part or {}),
        options=as_strings(given),
    )


def _on_error(tables: Sequence[Mapping[str, Any]]) -> str:
    """The rule of a source, which the table of its values or that of its keys may have."""
    found = {one_of(each, "on_error", _ON_ERROR, "stop") for each in tables if "on_error" in each}
    if len(found) > 1:
        raise SpecError("on_error of values and of keys must be the same: it is for whole records")
    return found.pop() if found else "stop"


def _is_framed(json_part: Mapping[str, Any]) -> bool:
    framing = one_of(json_part, "framing", _FRAMINGS, "none")
    if framing != "none" and json_part.get("envelope", "none") != "none":
        raise SpecError("[source.json]: framing and envelope cannot be combined")
    return framing == "confluent"


def _stages(read: Mapping[str, Any], known: Sequence[str]) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    names = list(known)
    if len(set(names)) < len(names):
        raise SpecError("two [[source]] have the same name")
    for given, is_named in _tables(read, "transform") if "transform" in read else ():
        if not given:
            continue
        where = "[[transform]]" if is_named else "[transform]"
        refuse_others(
            given, {"sql", "function", "inputs"} | ({"name"} if is_named else set()), where
        )
        if ("sql" in given) == ("function" in given):
            raise SpecError(f"{where} has both sql and function, or neither; one is run")
        inputs = tuple(given.get("inputs", names[-1:] if stages else names))
        unknown = [each for each in inputs if each not in names]
        if unknown:
            raise SpecError(
                f"inputs of {where}: {unknown[0]} is unknown; known are {', '.join(names)}"
            )
        name = _name(given.get("name"), where) if is_named else "result"
        if name in names:
            raise SpecError(f"two sources or stages have the name {name}")
        names.append(name)
        stages.append(
            Stage(
                name=name,
                sql=given.get("sql"),
                function=given.get("function"),
                inputs=tuple(inputs),
            )
        )
    if not stages and len(known) > 1:
        raise SpecError("several [[source]] need a [transform] that joins or unites them")
    return tuple(stages)


def _cases(read: Mapping[str, Any], sources: Sequence[str]) -> tuple[Case, ...]:
    cases = []
    for given in read.get("test", ()):
        name = needed_text(given, "name", "[[test]]")
        refuse_others(given, {"name", "input", "expected", "damaged", "error"}, f"test {name!r}")
        found = given.get("input", [])
        inputs = {sources[0]: found} if isinstance(found, list) else found
        refuse_others(inputs, sources, f"input of test {name!r}")
        cases.append(
            Case(
                name=name,
                inputs=inputs,
                expected=given.get("expected", []),
                damaged=given.get("damaged", 0),
                error=given.get("error"),
            )
        )
    return tuple(cases)


def _name(given: Any, where: str) -> str:
    if not isinstance(given, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", given):
        raise SpecError(f"{where} needs name, letters, digits and _, not {given!r}")
    return given


def _sinks(read: Mapping[str, Any], folder: Path) -> tuple[Sink, ...]:
    given = read.get("sink")
    listed: list[Any] = given if isinstance(given, list) else [given]
    if not given or not all(isinstance(each, dict) for each in listed):
        raise SpecError(
            "the file has no [[sink]]: delta, iceberg, topic, parquet, console or function"
        )
    return tuple(_sink(each, folder) for each in listed)


def _sink(given: Mapping[str, Any], folder: Path) -> Sink:
    return _destination(given, folder, "", _SINK_FIELDS)


def _destination(
    given: Mapping[str, Any], folder: Path, where: str, fields: Mapping[str, frozenset[str]]
) -> Sink:
    kind = one_of(given, "kind", tuple(fields), "")
    where = where or f"the {kind} sink"
    refuse_others(given, fields[kind] | {"kind"}, where)
    if kind in _SINK_NEEDS:
        needed_text(given, _SINK_NEEDS[kind], where)
    keys, parts = (_columns(given, name, where) for name in ("keys", "partition_by"))
    key_form = sink_format(given, where, folder, is_key=True)
    if key_form is not None and not keys:
        raise SpecError(f"key.{key_form.kind} of {where} needs keys, the columns of the key")
    return Sink(
        kind=kind,
        path=_path(given.get("path", ""), folder),
        table=_iceberg_table(given) if kind == "iceberg" else "",
        keys=keys,
        order_by=_order_by(given, keys, where),
        partition_by=parts,
        compact_at=_number(given, "compact_at", where),
        topic=given.get("topic", ""),
        delivery=one_of(given, "delivery", _DELIVERIES, _DELIVERIES[0]),
        function=given.get("function", ""),
        schema_changes=one_of(given, "schema_changes", _SCHEMA_CHANGES, "fail"),
        on_error=one_of(given, "on_error", _ON_ERROR, "stop"),
        rows=int(given.get("rows", 20)),
        options=as_strings(given.get("options", {})),
        format=sink_format(given, where, folder, is_key=False),
        key_format=key_form,
    )


def _iceberg_table(given: Mapping[str, Any]) -> str:
    """`namespace.table`, if the sink also has a catalog."""
    name = str(given["table"])
    namespace, _, table = name.rpartition(".")
    if not namespace or not table:
        raise SpecError(f"table of the iceberg sink must be namespace.table, not {name!r}")
    if not given.get("path") and "uri" not in given.get("options", {}):
        raise SpecError("the iceberg sink needs path, or options with the uri of a catalog")
    return name


def _columns(given: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    columns = given.get(name, ())
    if isinstance(columns, str) or not all(isinstance(each, str) for each in columns):
        raise SpecError(f'{name} of {where} must be a list of columns, such as ["origin"]')
    return tuple(columns)


def _number(given: Mapping[str, Any], name: str, where: str) -> int:
    found = given.get(name, 0)
    if type(found) is not int or found < 0:
        raise SpecError(f"{name} of {where} must be a number of at least 0, not {found!r}")
    return found


def _order_by(given: Mapping[str, Any], keys: Sequence[str], where: str) -> str:
    name = given.get("order_by", "")
    if not isinstance(name, str):
        raise SpecError(f'order_by of {where} must be a column, such as "offset"')
    if name and (not keys or name in keys):
        raise SpecError(f"order_by of {where} needs keys, and a column that is none of them")
    return name


def _dead_letter(
    read: Mapping[str, Any], folder: Path, parts: Sequence[Source | Sink]
) -> Sink | None:
    needed = any(part.on_error == "dead_letter" for part in parts)
    if "dead_letter" not in read:
        if needed:
            raise SpecError('on_error = "dead_letter" needs [dead_letter]: a topic or a table')
        return None
    if not needed:
        raise SpecError(
            '[dead_letter] needs on_error = "dead_letter" in the format of a source or in a sink'
        )
    return _destination(
        sub_table(read, "dead_letter"), folder, "[dead_letter]", _DEAD_LETTER_FIELDS
    )


def _watermark(given: Any) -> Watermark | None:
    if given is None:
        return None
    where = "[source.watermark]"
    refuse_others(given, {"event_time", "delay", "deduplicate_by"}, where)
    keys = given.get("deduplicate_by", ())
    if isinstance(keys, str) or not all(isinstance(each, str) for each in keys):
        raise SpecError(f'deduplicate_by of {where} must be a list, such as ["value.id"]')
    return Watermark(
        event_time=needed_text(given, "event_time", where),
        delay=needed_text(given, "delay", where),
        deduplicate_by=tuple(keys),
    )


def _path(text: str, folder: Path) -> str:
    """Relative to the file, unless it is a URL or nothing."""
    return text if not text or "://" in text else str(folder / text)

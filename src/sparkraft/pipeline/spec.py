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

    [source.avro]                         # instead: values are Avro
    registry = "URL"                      # their framing; or schema alone, if they have none
    subject = "flights-value"             # its last schema; optional if one topic is read
    schema = "flight.avsc"                # optional: the schema of the columns, a file or JSON
    on_error = "stop"

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
    avro = { registry = "URL" }           # optional: Avro values, else JSON

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
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


class SpecError(ValueError):
    """An error in a pipeline file, and its location."""


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
class AvroValues:
    """How to read or write Avro values.

    Args:
        registry: the URL of a schema registry, whose framing values have; empty if they are bare.
        subject: of a source: the schema of the columns is its last version, if `schema` is empty.
            Of a sink: the schema is registered there.
        schema: of the columns, as JSON. Empty in a sink: one that follows from the columns.
    """

    registry: str
    subject: str
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Topics to read; `name` is its view in SQL.

    Args:
        options: of the connector.
        json_schema: of JSON values, as DDL; None if they are not JSON.
        avro: None if values are not Avro. If they are neither, they stay bytes.
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
    avro: AvroValues | None = None

    @property
    def is_decoded(self) -> bool:
        """Whether values become columns."""
        return self.json_schema is not None or self.avro is not None

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
    avro: AvroValues | None = None


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
    "topic": frozenset({"topic", "keys", "options", "delivery", "avro"}),
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
    "topic": frozenset({"topic", "options"}),
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
    _only(read, _TOP, "the file")
    connector = _one_of(read, "connector", tuple(_CONNECTORS), "sparkraft")
    if connector != "sparkraft" and "group" in read:
        raise SpecError('group: only connector = "sparkraft" shows its offsets in a group')
    if connector != "sparkraft" and "batches_topic" in read:
        raise SpecError('batches_topic needs connector = "sparkraft"')
    sources, written = _sources(read, folder), _sinks(read, folder)
    if connector != "sparkraft" and any(sink.delivery == "exactly_once" for sink in written):
        raise SpecError('delivery = "exactly_once" needs connector = "sparkraft"')
    return Pipeline(
        name=_text(read, "name", "the file"),
        checkpoint=_path(_text(read, "checkpoint", "the file"), folder),
        trigger=str(read.get("trigger", "1 second")),
        output_mode=_one_of(read, "output_mode", _OUTPUT_MODES, "append"),
        group=read.get("group"),
        metrics=str(read.get("metrics", "")),
        batches_topic=str(read.get("batches_topic", "")),
        connector=_CONNECTORS[connector],
        master=str(read.get("master", "local[*]")),
        spark=_strings(_table(read, "spark", needed=False)),
        sources=sources,
        stages=_stages(read, [source.name for source in sources]),
        sinks=written,
        dead_letter=_dead_letter(read, folder, [*sources, *written]),
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
    return [(dict(_table(read, name)), False)]


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
    avro_part = given.pop("avro", None)
    watermark = given.pop("watermark", None)
    if json_part is not None:
        _only(json_part, {"schema", "on_error", "envelope", "framing"}, "[source.json]")
    if avro_part is not None:
        if json_part is not None:
            raise SpecError("[source.json] and [source.avro]: values are of one format")
        _only(avro_part, {"registry", "subject", "schema", "on_error"}, "[source.avro]")
    return Source(
        name=name,
        avro=None if avro_part is None else _source_avro(avro_part, given, folder),
        json_schema=None if json_part is None else _text(json_part, "schema", "[source.json]"),
        on_error=_one_of(json_part or avro_part or {}, "on_error", _ON_ERROR, "stop"),
        watermark=_watermark(watermark),
        is_envelope=_one_of(json_part or {}, "envelope", _ENVELOPES, "none") == "debezium",
        is_framed=_is_framed(json_part or {}),
        options=_strings(given),
    )


def _is_framed(json_part: Mapping[str, Any]) -> bool:
    framing = _one_of(json_part, "framing", _FRAMINGS, "none")
    if framing != "none" and json_part.get("envelope", "none") != "none":
        raise SpecError("[source.json]: framing and envelope cannot be combined")
    return framing == "confluent"


def _source_avro(given: Mapping[str, Any], source: Mapping[str, Any], folder: Path) -> AvroValues:
    topic = str(source.get("subscribe", ""))
    found = _avro(given, topic, "[source.avro]", folder)
    if found.registry and not found.schema and not found.subject:
        raise SpecError("[source.avro] needs subject or schema, unless one topic is read")
    return found


def _avro(given: Mapping[str, Any], topic: str, where: str, folder: Path) -> AvroValues:
    registry, subject, schema = (str(given.get(k, "")) for k in ("registry", "subject", "schema"))
    if not registry and not schema:
        raise SpecError(f"{where} needs registry, or schema if values have no framing")
    if topic and "," not in topic:
        subject = subject or f"{topic}-value"
    if schema and not schema.lstrip().startswith(("{", "[", '"')):
        try:
            schema = (folder / schema).read_text()
        except OSError as error:
            raise SpecError(f"{where} schema {schema}: {error.strerror}") from None
    return AvroValues(registry=registry, subject=subject, schema=schema)


def _sink_avro(given: Mapping[str, Any], where: str, folder: Path) -> AvroValues | None:
    if "avro" not in given:
        return None
    avro, where = _table(given, "avro"), f"avro of {where}"
    _only(avro, {"registry", "subject", "schema"}, where)
    return _avro(avro, str(given.get("topic", "")), where, folder)


def _stages(read: Mapping[str, Any], known: Sequence[str]) -> tuple[Stage, ...]:
    stages: list[Stage] = []
    names = list(known)
    if len(set(names)) < len(names):
        raise SpecError("two [[source]] have the same name")
    for given, is_named in _tables(read, "transform") if "transform" in read else ():
        if not given:
            continue
        where = "[[transform]]" if is_named else "[transform]"
        _only(given, {"sql", "function", "inputs"} | ({"name"} if is_named else set()), where)
        if ("sql" in given) == ("function" in given):
            raise SpecError(f"{where} has both sql and function, or neither; one is run")
        inputs = tuple(given.get("inputs", names[-1:] if stages else names))
        unknown = [each for each in inputs if each not in names]
        if unknown:
            raise SpecError(f"inputs of {where}: there is no {unknown[0]}, only {', '.join(names)}")
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
        name = _text(given, "name", "[[test]]")
        _only(given, {"name", "input", "expected", "damaged", "error"}, f"test {name!r}")
        found = given.get("input", [])
        inputs = {sources[0]: found} if isinstance(found, list) else found
        _only(inputs, sources, f"input of test {name!r}")
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
    kind = _one_of(given, "kind", tuple(fields), "")
    where = where or f"the {kind} sink"
    _only(given, fields[kind] | {"kind"}, where)
    if kind in _SINK_NEEDS:
        _text(given, _SINK_NEEDS[kind], where)
    keys, parts = (_columns(given, name, where) for name in ("keys", "partition_by"))
    return Sink(
        kind=kind,
        path=_path(given.get("path", ""), folder),
        table=_iceberg_table(given) if kind == "iceberg" else "",
        keys=keys,
        order_by=_order_by(given, keys, where),
        partition_by=parts,
        compact_at=_number(given, "compact_at", where),
        topic=given.get("topic", ""),
        delivery=_one_of(given, "delivery", _DELIVERIES, _DELIVERIES[0]),
        function=given.get("function", ""),
        schema_changes=_one_of(given, "schema_changes", _SCHEMA_CHANGES, "fail"),
        on_error=_one_of(given, "on_error", _ON_ERROR, "stop"),
        rows=int(given.get("rows", 20)),
        options=_strings(given.get("options", {})),
        avro=_sink_avro(given, where, folder),
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
            '[dead_letter] needs on_error = "dead_letter" in [source.json], [source.avro] or a sink'
        )
    return _destination(_table(read, "dead_letter"), folder, "[dead_letter]", _DEAD_LETTER_FIELDS)


def _watermark(given: Any) -> Watermark | None:
    if given is None:
        return None
    where = "[source.watermark]"
    _only(given, {"event_time", "delay", "deduplicate_by"}, where)
    keys = given.get("deduplicate_by", ())
    if isinstance(keys, str) or not all(isinstance(each, str) for each in keys):
        raise SpecError(f'deduplicate_by of {where} must be a list, such as ["value.id"]')
    return Watermark(
        event_time=_text(given, "event_time", where),
        delay=_text(given, "delay", where),
        deduplicate_by=tuple(keys),
    )


def _path(text: str, folder: Path) -> str:
    """Relative to the file, unless it is a URL or nothing."""
    return text if not text or "://" in text else str(folder / text)


def _table(read: Mapping[str, Any], name: str, *, needed: bool = True) -> Mapping[str, Any]:
    found = read.get(name, None if needed else {})
    if not isinstance(found, dict):
        raise SpecError(f"there is no [{name}]")
    return found


def _text(given: Any, name: str, where: str) -> str:
    found = given.get(name) if isinstance(given, dict) else None
    if not isinstance(found, str) or not found:
        raise SpecError(f"{where} needs {name}, a text")
    return found


def _one_of(given: Mapping[str, Any], name: str, allowed: tuple[str, ...], default: str) -> str:
    found = given.get(name, default)
    if found not in allowed:
        raise SpecError(f"{name} is one of {', '.join(allowed)}, not {found!r}")
    return str(found)


def _strings(given: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark takes them: true, not True."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in given.items()
    }


def _only(given: Mapping[str, Any], allowed: Iterable[str], where: str) -> None:
    known = sorted(allowed)
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise SpecError(f"{where} has no {name}{hint}")

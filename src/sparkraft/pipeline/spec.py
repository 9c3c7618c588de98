"""The pipeline file: one small TOML file for source, transformation and sinks.

::

    name = "delays"                       # the query's name
    checkpoint = "state/delays"           # Spark's memory of what is done; the exactly-once half
    trigger = "2 seconds"                 # or "available now": stop when caught up
    output_mode = "update"                # append (default), update, complete
    group = "delays"                      # optional: processed offsets are shown in this group

    [source]                              # the options of format("sparkraft")
    "kafka.bootstrap.servers" = "${bootstrap}"
    subscribe = "flights"

    [source.json]                         # optional: value becomes a struct
    schema = "origin STRING, scheduled TIMESTAMP, delay DOUBLE"
    on_error = "stop"                     # at a value that does not fit: stop (default), drop,
                                          # dead_letter

    [source.watermark]                    # optional: adds column event_time
    event_time = "value.scheduled"
    delay = "24 hours"

    [transform]                           # one of the two; neither passes records on
    sql = "SELECT value.origin, count(*) AS flights FROM source GROUP BY 1"
    function = "flights.py:by_hour"       # DataFrame -> DataFrame

    [dead_letter]                         # for on_error = "dead_letter": where such records go
    kind = "topic"                        # topic, delta (with path)
    topic = "delays-dead"

    [[sink]]                              # one or several, written in this order
    kind = "delta"                        # delta, topic, parquet, console, function
    path = "tables/delays"
    keys = ["origin"]

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
    from collections.abc import Iterable, Mapping
    from pathlib import Path


class SpecError(ValueError):
    """An error in a pipeline file, and its location."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How late a record may be: `event_time` is the expression, `delay` an interval."""

    event_time: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Destination of results; `kind` determines which fields apply."""

    kind: str
    path: str = ""
    keys: tuple[str, ...] = ()
    topic: str = ""
    function: str = ""
    schema_changes: str = "fail"
    rows: int = 20
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A checked pipeline file."""

    name: str
    checkpoint: str
    trigger: str
    output_mode: str
    group: str | None
    connector: str
    master: str
    spark: Mapping[str, str]
    source: Mapping[str, str]
    json_schema: str | None
    json_on_error: str
    watermark: Watermark | None
    sql: str | None
    function: str | None
    sinks: tuple[Sink, ...]
    dead_letter: Sink | None
    folder: Path


_TOP: Final = frozenset(
    {
        "name",
        "checkpoint",
        "trigger",
        "output_mode",
        "group",
        "connector",
        "master",
        "spark",
        "source",
        "transform",
        "sink",
        "dead_letter",
    }
)
_SINK_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "topic": frozenset({"topic", "keys", "options"}),
    "delta": frozenset({"path", "keys", "schema_changes"}),
    "parquet": frozenset({"path"}),
    "console": frozenset({"rows"}),
    "function": frozenset({"function"}),
}
_SINK_NEEDS: Final = {
    "topic": "topic",
    "delta": "path",
    "parquet": "path",
    "function": "function",
}
_DEAD_LETTER_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "topic": frozenset({"topic", "options"}),
    "delta": frozenset({"path"}),
}
_ON_ERROR: Final = ("stop", "dead_letter", "drop")
_OUTPUT_MODES: Final = ("append", "update", "complete")
_SCHEMA_CHANGES: Final = ("fail", "add", "ignore")
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
    source = dict(_table(read, "source"))
    json_part = source.pop("json", None)
    watermark = source.pop("watermark", None)
    transform = _table(read, "transform", needed=False)
    _only(transform, {"sql", "function"}, "[transform]")
    if len(transform) > 1:
        raise SpecError("[transform] has both sql and function; one is run")
    connector = _one_of(read, "connector", tuple(_CONNECTORS), "sparkraft")
    if connector != "sparkraft" and "group" in read:
        raise SpecError('group: only connector = "sparkraft" shows its offsets in a group')
    name = _text(read, "name", "the file")
    on_error = _on_error({} if json_part is None else json_part)
    return Pipeline(
        name=name,
        checkpoint=_path(_text(read, "checkpoint", "the file"), folder),
        trigger=str(read.get("trigger", "1 second")),
        output_mode=_one_of(read, "output_mode", _OUTPUT_MODES, "append"),
        group=read.get("group"),
        connector=_CONNECTORS[connector],
        master=str(read.get("master", "local[*]")),
        spark=_strings(_table(read, "spark", needed=False)),
        source=_strings(source),
        json_schema=_text(json_part, "schema", "[source.json]") if json_part is not None else None,
        json_on_error=on_error,
        watermark=_watermark(watermark),
        sql=transform.get("sql"),
        function=transform.get("function"),
        sinks=_sinks(read, folder),
        dead_letter=_dead_letter(read, folder, on_error),
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


def _sinks(read: Mapping[str, Any], folder: Path) -> tuple[Sink, ...]:
    given = read.get("sink")
    listed: list[Any] = given if isinstance(given, list) else [given]
    if not given or not all(isinstance(each, dict) for each in listed):
        raise SpecError("there is no [[sink]]: delta, topic, parquet, console or function")
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
    keys = given.get("keys", ())
    if isinstance(keys, str) or not all(isinstance(each, str) for each in keys):
        raise SpecError(f'keys of {where} must be a list of columns, such as ["origin"]')
    return Sink(
        kind=kind,
        path=_path(given.get("path", ""), folder),
        keys=tuple(keys),
        topic=given.get("topic", ""),
        function=given.get("function", ""),
        schema_changes=_one_of(given, "schema_changes", _SCHEMA_CHANGES, "fail"),
        rows=int(given.get("rows", 20)),
        options=_strings(given.get("options", {})),
    )


def _on_error(json_part: Mapping[str, Any]) -> str:
    _only(json_part, {"schema", "on_error"}, "[source.json]")
    return _one_of(json_part, "on_error", _ON_ERROR, "stop")


def _dead_letter(read: Mapping[str, Any], folder: Path, on_error: str) -> Sink | None:
    if "dead_letter" not in read:
        if on_error == "dead_letter":
            raise SpecError('on_error = "dead_letter" needs [dead_letter]: a topic or a table')
        return None
    if on_error != "dead_letter":
        raise SpecError('[dead_letter] needs on_error = "dead_letter" in [source.json]')
    return _destination(_table(read, "dead_letter"), folder, "[dead_letter]", _DEAD_LETTER_FIELDS)


def _watermark(given: Any) -> Watermark | None:
    if given is None:
        return None
    where = "[source.watermark]"
    _only(given, {"event_time", "delay"}, where)
    return Watermark(
        event_time=_text(given, "event_time", where), delay=_text(given, "delay", where)
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

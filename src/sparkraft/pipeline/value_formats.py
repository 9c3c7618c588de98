"""How a pipeline file declares values and keys that have schemas: Avro, Protobuf, JSON Schema.

::

    [source.protobuf]                     # of values; of keys: [source.key.protobuf]
    registry = "URL"                      # their framing; or schema alone, if they have none
    subject = "flights-value"             # its last schema; optional if one topic is read
    schema = "flight.proto"               # optional: the schema of the columns, a file or its text
    imports = ["common.proto"]            # of protobuf: the imported files
    message = "Flight"                    # of protobuf: else the first one of the schema

A topic sink has the same fields in `protobuf = {…}` and `key.protobuf = {…}`.

Not here: the meaning of schemas (`value_codecs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkraft.pipeline.file_fields import SpecError, refuse_others, sub_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMATS: Final = ("avro", "protobuf", "json_schema")

_FIELDS: Final = frozenset({"registry", "subject", "schema"})
_PROTOBUF_FIELDS: Final = _FIELDS | {"message", "imports"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """How to read or write values or keys that have a schema.

    Args:
        kind: one of `FORMATS`.
        registry: the URL of a schema registry, whose framing values have; empty if they are bare.
        subject: of a source: the schema of the columns is its last version, if `schema` is empty.
            Of a sink: the schema is registered there.
        schema: of the columns, its text. Empty in a sink: one that follows from the columns.
        imports: names and texts of the files that a Protobuf schema imports.
        message: of Protobuf: the name of the message; empty for the first one.
        is_key: whether keys have the format, not values.
    """

    kind: str
    registry: str
    subject: str
    schema: str
    imports: tuple[tuple[str, str], ...] = ()
    message: str = ""
    is_key: bool = False

    @property
    def place(self) -> str:
        """Its table in a source, for messages."""
        return f"[source.key.{self.kind}]" if self.is_key else f"[source.{self.kind}]"


def source_format(source: Mapping[str, Any], folder: Path, *, is_key: bool) -> ValueFormat | None:
    """The format of a source's values or keys; None if they have no schema.

    Args:
        source: its table.
        folder: of the file.
        is_key: of its keys, in the table `key`.

    Raises:
        SpecError: a field is wrong or missing.
    """
    name = "[source.key]" if is_key else "[source]"
    given = sub_table(source, "key", needed=False) if is_key else source
    if is_key:
        refuse_others(given, FORMATS, name)
    kind = _kind(given, "keys are" if is_key else "values are")
    if not kind:
        return None
    where = f"[source.key.{kind}]" if is_key else f"[source.{kind}]"
    table = _format_table(given, kind, where)
    refuse_others(table, _fields(kind) | {"on_error"}, where)
    found = _format(table, kind, str(source.get("subscribe", "")), where, folder, is_key=is_key)
    if found.registry and not found.schema and not found.subject:
        raise SpecError(f"{where} needs subject or schema, unless one topic is read")
    return found


def sink_format(
    sink: Mapping[str, Any], where: str, folder: Path, *, is_key: bool
) -> ValueFormat | None:
    """The format of a sink's values or keys; None for JSON, and for keys that are text.

    Raises:
        SpecError: a field is wrong or missing.
    """
    given = sub_table(sink, "key", needed=False) if is_key else sink
    if is_key:
        refuse_others(given, FORMATS, f"key of {where}")
    kind = _kind(given, f"the {'keys' if is_key else 'values'} of {where} are")
    if not kind:
        return None
    where = f"{'key.' if is_key else ''}{kind} of {where}"
    table = _format_table(given, kind, where)
    refuse_others(table, _fields(kind), where)
    return _format(table, kind, str(sink.get("topic", "")), where, folder, is_key=is_key)


def _kind(given: Mapping[str, Any], what: str) -> str:
    kinds = [each for each in FORMATS if each in given]
    if len(kinds) > 1:
        raise SpecError(f"{kinds[0]} and {kinds[1]}: {what} of one format")
    return kinds[0] if kinds else ""


def _format_table(given: Mapping[str, Any], kind: str, where: str) -> Mapping[str, Any]:
    table = given[kind]
    if not isinstance(table, dict):
        raise SpecError(f'{where} must be a table, such as {kind} = {{ registry = "URL" }}')
    return table


def _fields(kind: str) -> frozenset[str]:
    return _PROTOBUF_FIELDS if kind == "protobuf" else _FIELDS


def _format(
    given: Mapping[str, Any], kind: str, topic: str, where: str, folder: Path, *, is_key: bool
) -> ValueFormat:
    registry, subject, schema, message = (
        str(given.get(each, "")) for each in ("registry", "subject", "schema", "message")
    )
    if not registry and not schema:
        raise SpecError(f"{where} needs registry, or schema if values have no framing")
    if topic and "," not in topic:
        subject = subject or f"{topic}-{'key' if is_key else 'value'}"
    if schema and not _is_text(schema, kind):
        schema = _file(folder, schema, f"{where} schema")
    imports = given.get("imports", [])
    if not isinstance(imports, list) or not all(isinstance(each, str) for each in imports):
        raise SpecError(f'imports of {where} must be a list, such as ["common.proto"]')
    if imports and not schema:
        raise SpecError(f"imports of {where} are the files that its schema imports: name schema")
    return ValueFormat(
        kind=kind,
        registry=registry,
        subject=subject,
        schema=schema,
        imports=tuple((each, _file(folder, each, f"imports of {where}:")) for each in imports),
        message=message,
        is_key=is_key,
    )


def _is_text(schema: str, kind: str) -> bool:
    """Whether `schema` is a schema's text, not the name of a file."""
    if kind == "protobuf":
        return "{" in schema
    return schema.lstrip().startswith(("{", "[", '"'))


def _file(folder: Path, name: str, where: str) -> str:
    try:
        return (folder / name).read_text()
    except OSError as error:
        raise SpecError(f"{where} {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{where} {name}: it is not UTF-8") from None

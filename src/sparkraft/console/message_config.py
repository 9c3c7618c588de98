"""The file of `console --config`: schemas of topics, and fields that no page may show.

    "registry" = "http://localhost:8081"    # a schema registry with Confluent's REST API
    hash_key = "secret.key"                 # of `action = "hash"`; without it, a new one each start

    [[schema]]
    topic = "flights|departures"            # a regular expression for the whole name
    part = "value"                          # or "key"
    format = "avro"                         # avro, protobuf or messagepack
    file = "flight.avsc"                    # of avro and protobuf, beside this file
    imports = ["common.proto"]              # of protobuf
    message = "Flight"                      # of protobuf; else the first one

    [[mask]]
    topic = "payments.*"
    fields = ["value.card.number", "value.**.iban", "key.customer", "headers.token"]
    action = "mask"                         # mask, hash or drop

Everything unknown is refused: a typing error must not show what a rule should hide.
"""

from __future__ import annotations

import re
import secrets
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import re2

from sparkraft.base.errors import InputError
from sparkraft.schemas.avro_schema import parse_any
from sparkraft.schemas.protobuf_schema import parse_protobuf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from sparkraft.schemas.avro_schema import Schema
    from sparkraft.schemas.protobuf_schema import ProtobufSchema

RULES_MAX = 1_000
FIELDS_MAX = 1_000
"""Of one rule."""

SEGMENTS_MAX = 50
"""Names in the path of a field."""

PARTS = ("key", "value")
FORMATS = ("avro", "protobuf", "messagepack")
ACTIONS = ("mask", "hash", "drop")
ANY, ANY_DEPTH = "*", "**"

_HASH_KEY_BYTES_MIN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRule:
    """How the keys or values of some topics are decoded."""

    topic: Any
    part: str
    format: str
    avro: Schema | None = None
    protobuf: ProtobufSchema | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskRule:
    """Fields of some topics that are hidden.

    Attributes:
        topic: a compiled regular expression.
        fields: paths; the first name of each is key, value or headers.
        action: of `ACTIONS`.
    """

    topic: Any
    fields: tuple[tuple[str, ...], ...]
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageConfig:
    """The content of the file."""

    registry: str = ""
    hash_key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    schemas: tuple[SchemaRule, ...] = ()
    masks: tuple[MaskRule, ...] = ()


def load_message_config(path: Path) -> MessageConfig:
    """Read and check the file.

    Raises:
        InputError: it is not readable or not valid.
    """
    try:
        read = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: {error}") from error
    try:
        return _config(read, path.parent)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: {error}") from error


def _config(read: Mapping[str, Any], folder: Path) -> MessageConfig:
    _check_names(read, {"registry", "hash_key", "schema", "mask"}, "the file")
    found = MessageConfig(
        registry=_one_text(read, "registry", ""),
        schemas=tuple(_schema(each, folder) for each in _tables(read, "schema")),
        masks=tuple(_mask(each) for each in _tables(read, "mask")),
    )
    if "hash_key" not in read:
        return found
    key = _text(folder / _one_text(read, "hash_key")).strip().encode()
    if len(key) < _HASH_KEY_BYTES_MIN:
        raise InputError(f"the file of hash_key has at least {_HASH_KEY_BYTES_MIN} characters")
    return MessageConfig(
        registry=found.registry, hash_key=key, schemas=found.schemas, masks=found.masks
    )


def _schema(read: Mapping[str, Any], folder: Path) -> SchemaRule:
    names = {"topic", "part", "format", "file", "imports", "message"}
    _check_names(read, names, "[[schema]]")
    form = _one_of(read, "format", FORMATS)
    has_file = form != "messagepack"
    if has_file != ("file" in read):
        raise InputError(f"[[schema]] of format {form} {'needs a' if has_file else 'has no'} file")
    if form != "protobuf" and ("message" in read or "imports" in read):
        raise InputError("message and imports are for format protobuf")
    text = _text(folder / _one_text(read, "file")) if has_file else ""
    protobuf = None
    if form == "protobuf":
        imports = _texts(read, "imports") if "imports" in read else []
        files = [(name, _text(folder / name)) for name in imports]
        protobuf = parse_protobuf(text, imported=files)
    return SchemaRule(
        topic=_pattern(read),
        part=_one_of(read, "part", PARTS, "value"),
        format=form,
        avro=parse_any(text) if form == "avro" else None,
        protobuf=protobuf,
        message=protobuf.message_named(_one_text(read, "message", "")) if protobuf else "",
    )


def _mask(read: Mapping[str, Any]) -> MaskRule:
    _check_names(read, {"topic", "fields", "action"}, "[[mask]]")
    fields = _texts(read, "fields")
    if not 0 < len(fields) <= FIELDS_MAX:
        raise InputError(f"fields of [[mask]] are 1 to {FIELDS_MAX}")
    return MaskRule(
        topic=_pattern(read),
        fields=tuple(map(parse_path, fields)),
        action=_one_of(read, "action", ACTIONS),
    )


_SEGMENT = re.compile(r'(?:\.|^)(?:"((?:[^"\\]|\\.)*)"|([^."\[\]]+))((?:\[\*\])*)')


def parse_path(text: str) -> tuple[str, ...]:
    """The names of a path such as `value.items[*].card`; a name with dots is in quotation marks.

    A name applies to each value of an array, with `[*]` or without; `*` is any name, and `**` any
    number of them.

    Raises:
        InputError: it is not a path.
    """
    found: list[str] = []
    at = 0
    while at < len(text):
        match = _SEGMENT.match(text, at)
        if match is None or match.end() == at:
            raise InputError(f"{text!r} is not the path of a field")
        quoted = match[1]
        name = match[2] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        if not (name == ANY_DEPTH and found[-1:] == [ANY_DEPTH]):
            found.append(name)
        at = match.end()
    if not found or found[0] not in {"key", "value", "headers"}:
        raise InputError(f"the path {text!r} does not begin with key, value or headers")
    if found[0] == "headers" and len(found) != len(("headers", "name")):
        raise InputError(f"{text!r}: a header has a name, and no fields")
    if len(found) > SEGMENTS_MAX:
        raise InputError(f"a path has at most {SEGMENTS_MAX} names")
    if len(found) > 1 and found[-1] == ANY_DEPTH:
        raise InputError(f"{text!r} ends with **: name a field, or leave it out")
    return tuple(found)


def _pattern(read: Mapping[str, Any]) -> Any:
    text = _one_text(read, "topic")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise InputError(f"topic {text!r} is not a regular expression: {error}") from error


# ---- checked values


def _check_names(read: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    unknown = sorted(set(read) - set(known))
    if unknown:
        raise InputError(
            f"{place} has no setting {unknown[0]}; there are {', '.join(sorted(known))}"
        )


def _tables(read: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = read.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InputError(f"{name} is written as [[{name}]]")
    if len(found) > RULES_MAX:
        raise InputError(f"there are more than {RULES_MAX} of [[{name}]]")
    return found


def _one_text(read: Mapping[str, Any], name: str, default: str | None = None) -> str:
    found = read.get(name, default)
    if not isinstance(found, str):
        raise InputError(f"{name} is missing" if found is None else f"{name} is not a text")
    return found


def _texts(read: Mapping[str, Any], name: str) -> list[str]:
    found = read.get(name)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InputError(f"{name} is a list of texts")
    return found


def _one_of(
    read: Mapping[str, Any], name: str, choices: tuple[str, ...], default: str | None = None
) -> str:
    found = _one_text(read, name, default)
    if found not in choices:
        raise InputError(f"{name} is one of {', '.join(choices)}, not {found!r}")
    return found

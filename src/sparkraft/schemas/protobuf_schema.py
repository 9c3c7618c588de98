"""Protobuf schemas: the messages and enums of `.proto` files, as values are decoded with them.

`parse_protobuf` reads the text of a file and of those that it imports, in the syntax of proto2,
proto3 and editions. Options, services and reserved numbers do not change the bytes of
a message, and are passed over. Extensions are unknown fields.

A name that no given file defines, as of an import that is missing, has no type; its values are
decoded without a schema (`protobuf_wire`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from sparkraft.schemas.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCALARS: Final = frozenset(
    {
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
        "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
    }
)  # fmt: skip

TEXT_BYTES_MAX: Final = 4 << 20
_DEPTH_MAX: Final = 50
"""Messages in messages."""

_NUMBER_MAX: Final = (1 << 29) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufField:
    """A field of a message.

    Attributes:
        type: of `SCALARS`, or the full name of a message or an enum; as written if it is unknown.
        has_presence: whether a message without it differs from one with its default.
        oneof: the name of its oneof; empty if it is in none.
        rivals: the other fields of the oneof, which this one removes.
        is_required: whether a message without it is invalid (proto2).
        is_group: whether its message is between two tags in place of a length (proto2).
        entry: the fields of key and value, if it is a map.
    """

    name: str
    number: int
    type: str
    is_repeated: bool = False
    has_presence: bool = True
    oneof: str = ""
    rivals: tuple[str, ...] = ()
    is_required: bool = False
    is_group: bool = False
    entry: tuple[ProtobufField, ProtobufField] | None = None


@dataclass(slots=True, kw_only=True)
class ProtobufMessage:
    """A message; `nested` are the names of the messages that it defines, in their order."""

    name: str
    fields: dict[int, ProtobufField] = field(default_factory=dict)
    nested: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ProtobufSchema:
    """Messages and enums of a file and its imports, by full name.

    Attributes:
        messages: the messages.
        enums: names of numbers.
        other_names: of enums with aliases, the numbers of all names but the first one.
        features: options of editions that the schema sets, which may change its values' bytes.
        first: the full names of the messages of the file itself, in their order.
    """

    messages: dict[str, ProtobufMessage] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)
    other_names: dict[str, dict[str, int]] = field(default_factory=dict)
    features: set[str] = field(default_factory=set)
    first: list[str] = field(default_factory=list)

    def message_at(self, indexes: Sequence[int]) -> str:
        """The name of a message by its place, and by those of the messages that it is nested in.

        Raises:
            SchemaError: there is none.
        """
        names, found = self.first, ""
        for index in indexes:
            if not 0 <= index < len(names):
                raise SchemaError(f"the schema has no message number {index}")
            found = names[index]
            names = self.messages[found].nested
        return found

    def place_of(self, name: str) -> list[int]:
        """The place of a message of the file itself: the inverse of `message_at`.

        Raises:
            SchemaError: another file defines it.
        """
        names, found = self.first, list[int]()
        while name not in names:
            outer = [n for n, each in enumerate(names) if name.startswith(f"{each}.")]
            if not outer:
                raise SchemaError(f"the schema imports {name}, and does not define it")
            found.append(outer[0])
            names = self.messages[names[outer[0]]].nested
        return [*found, names.index(name)]

    def message_named(self, name: str) -> str:
        """The full name of a message; the first message for an empty name.

        Raises:
            SchemaError: there is none.
        """
        if not name and self.first:
            return self.first[0]
        for each in self.messages:
            if each == name or each.endswith(f".{name}"):
                return each
        raise SchemaError(f"the schema has no message {name}")


def parse_protobuf(text: str, *, imported: Sequence[tuple[str, str]] = ()) -> ProtobufSchema:
    """The schema of a file.

    Args:
        text: of the file.
        imported: names and texts of the files that it imports, and of those that they import.

    Raises:
        SchemaError: a text is not a Protobuf schema.
    """
    schema = ProtobufSchema()
    others = [each for name, each in imported if not name.startswith("google/protobuf/")]
    for each in (_WELL_KNOWN, *others):
        _Parser(each, schema).parse()
    schema.first.clear()
    _Parser(text, schema).parse()
    for message in schema.messages.values():
        for number, each_field in message.fields.items():
            resolved = _resolved(each_field, message.name, schema)
            message.fields[number] = replace(resolved, rivals=_rivals(each_field, message))
    return schema


def _rivals(given: ProtobufField, message: ProtobufMessage) -> tuple[str, ...]:
    if not given.oneof:
        return ()
    same = (each.name for each in message.fields.values() if each.oneof == given.oneof)
    return tuple(name for name in same if name != given.name)


def _resolved(given: ProtobufField, scope: str, schema: ProtobufSchema) -> ProtobufField:
    """The field with the full name of its type: the innermost one in its message's scopes."""
    if given.entry is not None:
        key, value = given.entry
        return replace(given, entry=(key, _resolved(value, scope, schema)))
    if given.type in SCALARS:
        return given
    name = _full_name(given.type, scope, schema)
    return replace(given, type=name, has_presence=given.has_presence or name not in schema.enums)


def _full_name(name: str, scope: str, schema: ProtobufSchema) -> str:
    if name.startswith("."):
        return name[1:]
    while True:
        full = f"{scope}.{name}" if scope else name
        if full in schema.messages or full in schema.enums:
            return full
        if not scope:
            return name
        scope = scope.rpartition(".")[0]


_TOKENS: Final = re.compile(
    r"""(?:\s|//[^\n]*|/\*.*?\*/)*
    (?P<token>[A-Za-z_.][\w.]*|\d[\w.+-]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'
    |[-+={}\[\]()<>;,:/])""",
    re.VERBOSE | re.DOTALL,
)
_END: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*\Z", re.DOTALL)
_NAME: Final = re.compile(r"\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while found := _TOKENS.match(text, at):
        yield found["token"]
        at = found.end()
    if not _END.match(text, at):
        raise SchemaError(f"the Protobuf schema has an error at {text[at : at + 20].strip()!r}")


class _Parser:
    """Adds what one file defines to a schema."""

    def __init__(self, text: str, schema: ProtobufSchema) -> None:
        if len(text) > TEXT_BYTES_MAX:
            raise SchemaError(f"a Protobuf schema has at most {TEXT_BYTES_MAX} characters")
        self._tokens = list(_tokens(text))
        self._at = 0
        self._schema = schema
        schema.features |= {each for each in self._tokens if each.startswith("features.")}
        self._package = ""
        self._has_presence = True
        """Whether fields without a label have presence: not in proto3."""

    # ---- tokens

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        found = self._peek()
        if not found:
            raise SchemaError("the Protobuf schema ends too early")
        self._at += 1
        return found

    def _expect(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise SchemaError(f"the Protobuf schema has {found} in place of {wanted}")

    def _name(self) -> str:
        found = self._next()
        if not _NAME.fullmatch(found):
            raise SchemaError(f"the Protobuf schema has {found} in place of a name")
        return found

    def _number(self) -> int:
        sign = -1 if self._peek() == "-" else 1
        if sign < 0:
            self._next()
        text = self._next()
        try:
            octal = len(text) > 1 and text.isdigit() and text[0] == "0"
            return sign * int(text, 8 if octal else 0)
        except ValueError:
            raise SchemaError(f"the Protobuf schema has {text} in place of a number") from None

    def _pass_statement(self) -> None:
        """Pass over the rest of a statement, with the blocks in it."""
        depth = 0
        while True:
            token = self._next()
            depth += (token in {"{", "["}) - (token in {"}", "]"})
            if depth <= 0 and token in {";", "}"}:
                return

    def _pass_options(self) -> None:
        if self._peek() != "[":
            return
        depth = 0
        while True:
            token = self._next()
            depth += (token in {"[", "{"}) - (token in {"]", "}"})
            if not depth:
                return

    # ---- definitions

    def parse(self) -> None:
        while self._peek():
            match self._next():
                case ";":
                    pass
                case "syntax" | "edition":
                    self._expect("=")
                    self._has_presence = self._next()[1:-1] != "proto3"
                    self._expect(";")
                case "package":
                    self._package = self._name()
                    self._expect(";")
                case "message":
                    name = self._message(self._package, 0)
                    self._schema.first.append(name)
                case "enum":
                    self._enum(self._package)
                case "import" | "option" | "service" | "extend":
                    self._pass_statement()
                case other:
                    raise SchemaError(f"the Protobuf schema has {other} in place of a definition")

    def _message(self, scope: str, depth: int) -> str:
        name = self._name()
        return self._message_body(f"{scope}.{name}" if scope else name, depth)

    def _message_body(self, full: str, depth: int) -> str:
        if depth > _DEPTH_MAX:
            raise SchemaError(f"the Protobuf schema has more than {_DEPTH_MAX} nested messages")
        if full in self._schema.messages:
            raise SchemaError(f"the Protobuf schema defines {full} twice")
        message = ProtobufMessage(name=full)
        self._schema.messages[full] = message
        self._expect("{")
        while self._peek() != "}":
            self._member(message, depth, "")
        self._next()
        return full

    def _member(self, message: ProtobufMessage, depth: int, oneof: str) -> None:
        following = self._tokens[self._at + 1 : self._at + 2]
        word = self._peek()
        # A field may have a type with the name of a keyword, as in `option option = 1;`.
        is_definition = following not in (["="], [])
        if word == ";":
            self._next()
        elif word == "message" and is_definition:
            self._next()
            message.nested.append(self._message(message.name, depth + 1))
        elif word == "enum" and is_definition:
            self._next()
            self._enum(message.name)
        elif word == "oneof" and is_definition:
            self._next()
            self._oneof(message, depth)
        elif word in {"option", "extensions", "reserved", "extend"}:
            self._pass_statement()
        else:
            self._field(message, depth, oneof)

    def _oneof(self, message: ProtobufMessage, depth: int) -> None:
        name = self._name()
        self._expect("{")
        while self._peek() != "}":
            self._member(message, depth, name)
        self._next()

    def _field(self, message: ProtobufMessage, depth: int, oneof: str) -> None:
        label = self._next() if self._peek() in {"optional", "required", "repeated"} else ""
        if self._peek() == "map" and self._tokens[self._at + 1 : self._at + 2] == ["<"]:
            self._map(message)
            return
        kind = self._name()
        if kind == "group":
            self._group(message, depth, label, oneof)
            return
        name, number = self._name_and_number()
        self._pass_options()
        self._expect(";")
        self._add(
            message,
            ProtobufField(
                name=name,
                number=number,
                type=kind,
                is_repeated=label == "repeated",
                has_presence=self._has_presence or bool(label or oneof),
                oneof=oneof,
                is_required=label == "required",
            ),
        )

    def _group(self, message: ProtobufMessage, depth: int, label: str, oneof: str) -> None:
        """A field of proto2 and the message that is its type."""
        name, number = self._name_and_number()
        self._pass_options()
        full = self._message_body(f"{message.name}.{name}", depth + 1)
        message.nested.append(full)
        self._add(
            message,
            ProtobufField(
                name=name.lower(),
                number=number,
                type=f".{full}",
                is_repeated=label == "repeated",
                oneof=oneof,
                is_required=label == "required",
                is_group=True,
            ),
        )

    def _map(self, message: ProtobufMessage) -> None:
        self._next()
        self._expect("<")
        key = self._name()
        self._expect(",")
        value = self._name()
        self._expect(">")
        name, number = self._name_and_number()
        self._pass_options()
        self._expect(";")
        entry = (
            ProtobufField(name="key", number=1, type=key, has_presence=False),
            ProtobufField(name="value", number=2, type=value, has_presence=False),
        )
        found = ProtobufField(name=name, number=number, type="", is_repeated=True, entry=entry)
        self._add(message, found)

    def _name_and_number(self) -> tuple[str, int]:
        name = self._name()
        self._expect("=")
        number = self._number()
        if not 0 < number <= _NUMBER_MAX:
            raise SchemaError(f"the Protobuf schema has a field with number {number}")
        return name, number

    def _add(self, message: ProtobufMessage, found: ProtobufField) -> None:
        if found.number in message.fields:
            raise SchemaError(f"{message.name} has two fields with number {found.number}")
        if any(each.name == found.name for each in message.fields.values()):
            raise SchemaError(f"{message.name} has two fields of the name {found.name}")
        message.fields[found.number] = found

    def _enum(self, scope: str) -> None:
        name = self._name()
        full = f"{scope}.{name}" if scope else name
        names: dict[int, str] = {}
        others: dict[str, int] = {}
        self._schema.enums[full], self._schema.other_names[full] = names, others
        self._expect("{")
        while self._peek() != "}":
            word = self._next()
            if word == ";":
                continue
            if self._peek() != "=":
                self._at -= 1
                self._pass_statement()
                continue
            self._next()
            number = self._number()
            if names.setdefault(number, word) != word:
                others[word] = number
            self._pass_options()
            self._expect(";")
        self._next()


_WELL_KNOWN: Final = """
    syntax = "proto3";
    package google.protobuf;
    message Any { string type_url = 1; bytes value = 2; }
    message Duration { int64 seconds = 1; int32 nanos = 2; }
    message Empty {}
    message FieldMask { repeated string paths = 1; }
    message Timestamp { int64 seconds = 1; int32 nanos = 2; }
    message DoubleValue { double value = 1; }
    message FloatValue { float value = 1; }
    message Int64Value { int64 value = 1; }
    message UInt64Value { uint64 value = 1; }
    message Int32Value { int32 value = 1; }
    message UInt32Value { uint32 value = 1; }
    message BoolValue { bool value = 1; }
    message StringValue { string value = 1; }
    message BytesValue { bytes value = 1; }
    enum NullValue { NULL_VALUE = 0; }
    message Struct { map<string, Value> fields = 1; }
    message ListValue { repeated Value values = 1; }
    message Value {
      oneof kind {
        NullValue null_value = 1;
        double number_value = 2;
        string string_value = 3;
        bool bool_value = 4;
        Struct struct_value = 5;
        ListValue list_value = 6;
      }
    }
"""
"""Types that registries do not store, by their published field numbers."""

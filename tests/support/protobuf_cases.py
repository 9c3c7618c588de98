"""Generated Protobuf schemas and messages of Google's runtime, and what these are as columns."""

import random
import string
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    FIELD.TYPE_DOUBLE: "double", FIELD.TYPE_FLOAT: "float", FIELD.TYPE_INT64: "int64",
    FIELD.TYPE_UINT64: "uint64", FIELD.TYPE_INT32: "int32", FIELD.TYPE_FIXED64: "fixed64",
    FIELD.TYPE_FIXED32: "fixed32", FIELD.TYPE_BOOL: "bool", FIELD.TYPE_STRING: "string",
    FIELD.TYPE_BYTES: "bytes", FIELD.TYPE_UINT32: "uint32", FIELD.TYPE_SFIXED32: "sfixed32",
    FIELD.TYPE_SFIXED64: "sfixed64", FIELD.TYPE_SINT32: "sint32", FIELD.TYPE_SINT64: "sint64",
}  # fmt: skip
KEYS = (FIELD.TYPE_STRING, FIELD.TYPE_INT64, FIELD.TYPE_BOOL, FIELD.TYPE_UINT64, FIELD.TYPE_SINT32)
WRAPPERS = ("DoubleValue", "Int64Value", "UInt64Value", "BoolValue", "StringValue", "BytesValue")
TIMESTAMP = "google.protobuf.Timestamp"
LABELS = {FIELD.LABEL_OPTIONAL: "optional", FIELD.LABEL_REPEATED: "repeated"}
LABELS[FIELD.LABEL_REQUIRED] = "required"
INTEGERS = {
    **dict.fromkeys(("uint32", "fixed32"), (0, 2**32 - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, 2**64 - 1, 2**63)),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (0, -1, 2**31 - 1, -(2**31))),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (0, -1, 2**63 - 1, -(2**63))),
}
NESTED_MAX = 3
LETTERS = string.ascii_letters + "ü€😀\0 "
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS = range(-62_135_596_800, 253_402_300_800)


class DamagedError(Exception):
    """A message of Google's runtime that cannot be a column."""


class Generator:
    """Schemas and messages by seed."""

    def __init__(self, seed: int, syntax: str = "proto3", *, has_maps: bool = True) -> None:
        self.dice = random.Random(seed)
        self.syntax = syntax
        self.has_maps = has_maps
        self.files = 0

    def file(self, most: int = 9) -> Any:
        """A file with one message, `M`."""
        self.files += 1
        name = f"f{self.files}"
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{name}.proto", package=name, syntax=self.syntax
        )
        file.dependency.extend([timestamp_pb2.DESCRIPTOR.name, wrappers_pb2.DESCRIPTOR.name])
        self._fill(file.message_type.add(name="M"), f".{name}.M", 0, most)
        return file

    def _fill(self, message: Any, full: Any, depth: Any, most: Any) -> Any:
        numbers = self.dice.sample([*range(1, 40), 2000, 300_000, (1 << 29) - 1], most)
        for number in numbers[: self.dice.randrange(most + 1)]:
            self._field(message, full, number, depth)
        if self.dice.random() < 0.4:
            message.oneof_decl.add(name="choice")
            for name, number in (("left", 50), ("right", 51), ("middle", 49)):
                field = message.field.add(name=name, number=number, label=1, oneof_index=0)
                self._type(field, message, full, depth, field.number)
        for index, field in enumerate(each for each in message.field if each.proto3_optional):
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_optional{index}")

    def _field(self, message: Any, full: Any, number: Any, depth: Any) -> Any:
        field = message.field.add(name=f"f{number}", number=number, label=FIELD.LABEL_OPTIONAL)
        kind = self.dice.random()
        if kind < 0.15 and self.has_maps:
            self._map(field, message, full, depth)
            return
        self._type(field, message, full, depth, field.number)
        if kind < 0.4:
            field.label = FIELD.LABEL_REPEATED
            if field.type in SCALARS and field.type not in (FIELD.TYPE_STRING, FIELD.TYPE_BYTES):
                field.options.packed = self.dice.random() < 0.7
        elif self.syntax == "proto2" and kind < 0.5:
            field.label = FIELD.LABEL_REQUIRED
        elif self.syntax == "proto3" and kind < 0.6:
            field.proto3_optional = True

    def _type(self, field: Any, message: Any, full: Any, depth: Any, number: Any) -> Any:
        """Set the type; a new one is named by the number, which is unique in the message."""
        kinds = ["scalar"] * 6 + ["enum", "timestamp", "wrapper"]
        if depth < NESTED_MAX:
            kinds += ["message"] * 3
        match self.dice.choice(kinds):
            case "scalar":
                field.type = self.dice.choice(list(SCALARS))
            case "enum":
                name = f"E{number}"
                enum = message.enum_type.add(name=name)
                for text, value in (("NONE", 0), ("SOME", 1), ("OTHER", 7), ("NEGATIVE", -5)):
                    enum.value.add(name=f"{name}_{text}", number=value)
                field.type, field.type_name = FIELD.TYPE_ENUM, f"{full}.{name}"
            case "timestamp":
                field.type, field.type_name = FIELD.TYPE_MESSAGE, f".{TIMESTAMP}"
            case "wrapper":
                field.type = FIELD.TYPE_MESSAGE
                field.type_name = f".google.protobuf.{self.dice.choice(WRAPPERS)}"
            case _:
                name = f"N{number}"
                self._fill(message.nested_type.add(name=name), f"{full}.{name}", depth + 1, 4)
                field.type, field.type_name = FIELD.TYPE_MESSAGE, f"{full}.{name}"

    def _map(self, field: Any, message: Any, full: Any, depth: Any) -> Any:
        name = f"F{field.number}Entry"
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=self.dice.choice(KEYS))
        value = entry.field.add(name="value", number=2, label=1)
        self._type(value, message, full, depth + 1, field.number)
        field.label = FIELD.LABEL_REPEATED
        field.type, field.type_name = FIELD.TYPE_MESSAGE, f"{full}.{name}"

    # ---- messages

    def message(self, kind: Any) -> Any:
        """A message of a class."""
        found = kind()
        self._set(found)
        return found

    def _set(self, message: Any) -> Any:
        for field in message.DESCRIPTOR.fields:
            is_needed = field.is_required or message.DESCRIPTOR.full_name == TIMESTAMP
            if not is_needed and self.dice.random() < 0.3:
                continue
            if is_map(field):
                self._set_map(getattr(message, field.name), field)
            elif field.is_repeated:
                for _ in range(self.dice.choice([0, 1, 2, 5])):
                    self._add(getattr(message, field.name), field)
            elif field.message_type is None:
                setattr(message, field.name, self._single(field))
            else:
                getattr(message, field.name).SetInParent()
                self._set(getattr(message, field.name))

    def _set_map(self, into: Any, field: Any) -> Any:
        key, value = (field.message_type.fields_by_name[each] for each in ("key", "value"))
        for _ in range(self.dice.choice([0, 1, 3])):
            if value.message_type is None:
                into[self._single(key)] = self._single(value)
            else:
                self._set(into[self._single(key)])

    def _add(self, into: Any, field: Any) -> Any:
        if field.message_type is None:
            into.append(self._single(field))
        else:
            self._set(into.add())

    def _single(self, field: Any) -> Any:
        dice = self.dice
        if field.enum_type is not None:
            return dice.choice([each.number for each in field.enum_type.values])
        if field.containing_type.full_name == TIMESTAMP:
            seconds = dice.choice([0, SECONDS[0], SECONDS[-1], dice.randrange(-(10**10), 10**10)])
            return seconds if field.name == "seconds" else dice.randrange(10**6) * 1000
        kind = SCALARS[field.type]
        if kind in INTEGERS:
            return dice.choice([*INTEGERS[kind], dice.randrange(1000)])
        return {
            "double": dice.choice([0.0, -0.0, dice.uniform(-9, 9), float("inf")]),
            "float": struct.unpack("<f", struct.pack("<f", dice.uniform(-9, 9)))[0],
            "bool": dice.random() < 0.5,
            "string": "".join(dice.choices(LETTERS, k=dice.randrange(9))),
            "bytes": dice.randbytes(dice.randrange(9)),
        }[kind]


def is_map(field: Any) -> Any:
    """Whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def message_class(file: Any, name: Any = "M") -> Any:
    """The class of a message of a file."""
    pool = descriptor_pool.DescriptorPool()
    for each in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(each.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    full = f"{file.package}.{name}" if file.package else name
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(full))


# ---- columns


def as_column(message: Any) -> Any:
    """A message as pyarrow returns it.

    Raises:
        DamagedError: it cannot be a column.
    """
    if not message.IsInitialized():
        raise DamagedError(message)
    return _as_column(message)


def _as_column(message: Any) -> Any:
    kind = message.DESCRIPTOR.full_name
    if kind == TIMESTAMP:
        if message.seconds not in SECONDS or not 0 <= message.nanos < 10**9:
            raise DamagedError(message)
        return EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if kind.startswith("google.protobuf.") and kind.endswith("Value"):
        return _value(message.DESCRIPTOR.fields[0], message.value)
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if is_map(field):
            of = field.message_type.fields_by_name
            found[field.name] = [
                (_value(of["key"], each), _value(of["value"], value[each])) for each in value
            ]
        elif field.is_repeated:
            found[field.name] = [_value(field, each) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _as_column(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if SCALARS[field.type] in ("uint64", "fixed64"):
        return Decimal(value)
    return value


def comparable(value: Any) -> Any:
    """The same, so that equal columns are equal: maps without order, NaN, and the sign of zero."""
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return sorted((repr(key), comparable(each)) for key, each in value)
    if isinstance(value, list):
        return [comparable(each) for each in value]
    return repr(value) if isinstance(value, float) else value


# ---- text


def proto_text(file: Any) -> Any:
    """The text of a file, without options."""
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    if file.package:
        lines.append(f"package {file.package};")
    lines += [f'import "{each}";' for each in file.dependency]
    lines += [line for each in file.enum_type for line in _enum(each, "")]
    lines += [line for each in file.message_type for line in _message(each, "", file.syntax)]
    return "\n".join(lines) + "\n"


def _enum(enum: Any, indent: Any) -> Any:
    values = [f"{indent}  {each.name} = {each.number};" for each in enum.value]
    return [f"{indent}enum {enum.name} {{", *values, f"{indent}}}"]


def _message(message: Any, indent: Any, syntax: Any) -> Any:
    inner = indent + "  "
    maps = {f".{each.name}": each for each in message.nested_type if each.options.map_entry}
    lines = [line for each in message.enum_type for line in _enum(each, inner)]
    for each in message.nested_type:
        if not each.options.map_entry:
            lines += _message(each, inner, syntax)
    open_oneof = None
    for field in message.field:
        oneof = None
        if field.HasField("oneof_index") and not field.proto3_optional:
            oneof = message.oneof_decl[field.oneof_index].name
        if open_oneof and oneof != open_oneof:
            lines.append(f"{inner}}}")
        if oneof and oneof != open_oneof:
            lines.append(f"{inner}oneof {oneof} {{")
        open_oneof = oneof
        lines.append(f"{inner}{_field(field, maps, syntax, is_in_oneof=bool(oneof))}")
    if open_oneof:
        lines.append(f"{inner}}}")
    return [f"{indent}message {message.name} {{", *lines, f"{indent}}}"]


def _field(field: Any, maps: Any, syntax: Any, *, is_in_oneof: Any) -> Any:
    entry = next((each for name, each in maps.items() if field.type_name.endswith(name)), None)
    if entry is not None:
        key, value = (_type_name(each) for each in entry.field)
        return f"map<{key}, {value}> {field.name} = {field.number};"
    label = f"{LABELS[field.label]} "
    is_plain = syntax == "proto3" and not field.proto3_optional
    if is_in_oneof or (is_plain and field.label == FIELD.LABEL_OPTIONAL):
        label = ""
    packed = ""
    if field.options.HasField("packed"):
        packed = f" [packed = {str(field.options.packed).lower()}]"
    return f"{label}{_type_name(field)} {field.name} = {field.number}{packed};"


def _type_name(field: Any) -> Any:
    return field.type_name or SCALARS[field.type]

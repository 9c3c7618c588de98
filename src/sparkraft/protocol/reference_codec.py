"""The slow codec: it works field by field from the declarations and reports the position of errors.

The compiled code of `compiler` is several times faster but only knows that something is wrong;
the message is then read or written again here, for the sentence, the path and the place. It is
also the yardstick that the compiled code is tested against.

Invariant: for every input it accepts exactly what the compiled code accepts.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Field, Message
from sparkraft.protocol.errors import EncodeError, UnsupportedFieldError
from sparkraft.protocol.varint import Buffer, decode_unsigned, encode_unsigned

FIXED: Final = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "boolean": "?",
    "uuid": "16s",
}
"""Kinds of one length, with their letter in a struct format."""

FIXED_SIZE: Final = {kind: struct.calcsize(">" + letter) for kind, letter in FIXED.items()}

STRING_BYTES_MAX: Final = 0x7FFF
"""A string's length is an int16, and has the same bound if it is written as a varint."""


def element_size_min(field: Field, version: int, *, flexible: bool) -> int:
    """Fewest bytes an element of this array can have; at least 1."""
    if not isinstance(field.element, str):
        return max(1, _struct_size_min(field.struct.SCHEMA.fields, version, flexible=flexible))
    return FIXED_SIZE.get(field.element) or (1 if flexible else 2)


def _struct_size_min(fields: tuple[Field, ...], version: int, *, flexible: bool) -> int:
    here = (f for f in fields if version in f.versions and f.tag < 0)
    return int(flexible) + sum(_size_min(f, version, flexible=flexible) for f in here)


def _size_min(field: Field, version: int, *, flexible: bool) -> int:
    if field.kind in FIXED:
        return FIXED_SIZE[field.kind]
    if field.kind == "struct":
        if version in field.nullable:
            return 1
        return _struct_size_min(field.struct.SCHEMA.fields, version, flexible=flexible)
    if flexible and field.compact:
        return 1
    return 2 if field.kind == "string" else 4


class Reader:
    """Reads one message of one version.

    Args:
        data: the bytes to read. at: the start position.
        budget: how many array elements and tagged fields may be read.
        flexible: whether lengths are compact and tagged fields follow every struct.
    """

    def __init__(self, data: Buffer, at: int, *, version: int, flexible: bool, budget: int) -> None:
        """Start at `at` of `data`."""
        self.data = memoryview(data)
        self.at = at
        self.end = len(self.data)
        self.version = version
        self.flexible = flexible
        self.budget = budget
        self._path: list[str] = []

    def fail(self, reason: str, at: int | None = None) -> DecodeError:
        """A `DecodeError` that names the field being read."""
        path = ".".join(self._path).replace(".[", "[")
        return DecodeError(reason, path=path, at=self.at if at is None else at)

    def message(self, cls: type[Message]) -> Message:
        """Read a message or struct: fields in order, then the tagged ones."""
        made = cls()
        tagged = {}
        for field in cls.SCHEMA.fields:
            if self.version not in field.versions:
                continue
            if field.tag >= 0:
                tagged[field.tag] = field
                continue
            self._path.append(field.name)
            setattr(made, field.name, self.value(field))
            self._path.pop()
        if self.flexible:
            self._tagged_fields(made, tagged)
        return made

    def value(self, field: Field) -> Any:
        """Read one field."""
        if field.kind in FIXED:
            return self._fixed(field.kind)
        if field.kind == "struct":
            return self._struct(field)
        if field.kind == "array":
            return self._array(field)
        length = self._length(field)
        if length is None:
            return None
        if field.kind == "string":
            return self._text(length)
        taken = self._take(length)
        return taken if field.kind == "records" else bytes(taken)

    def _take(self, count: int) -> memoryview:
        if count > self.end - self.at:
            raise self.fail(f"{count} bytes are announced and {self.end - self.at} left")
        taken = self.data[self.at : self.at + count]
        self.at += count
        return taken

    def _fixed(self, kind: str) -> Any:
        taken = self._take(FIXED_SIZE[kind])
        if kind == "uuid":
            return Uuid(taken)
        return struct.unpack(">" + FIXED[kind], taken)[0]

    def _varint(self) -> int:
        try:
            value, self.at = decode_unsigned(self.data[: self.end], self.at)
        except DecodeError as error:
            raise self.fail(error.reason) from None
        return value

    def _length(self, field: Field) -> int | None:
        """The length or count that opens a value; None for null."""
        at = self.at
        if self.flexible and field.compact:
            length = self._varint() - 1
        else:
            length = self._fixed("int16" if field.kind == "string" else "int32")
        if length == -1 and self.version in field.nullable:
            return None
        if length < 0:
            what = "null in a field that is not nullable" if length == -1 else f"length {length}"
            raise self.fail(what, at)
        return int(length)

    def _text(self, length: int) -> str:
        at = self.at
        if length > STRING_BYTES_MAX:
            raise self.fail(f"a string of {length} bytes; {STRING_BYTES_MAX} are allowed")
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise self.fail("not UTF-8", at + error.start) from None

    def _struct(self, field: Field) -> Message | None:
        if self.version in field.nullable:
            marker = self._varint() - 1 if field.tag >= 0 else self._fixed("int8")
            if marker < 0:
                return None
        return self.message(field.struct)

    def _array(self, field: Field) -> list[Any] | None:
        at = self.at
        count = self._length(field)
        if count is None:
            return None
        size = element_size_min(field, self.version, flexible=self.flexible)
        if count * size > self.end - self.at:
            raise self.fail(
                f"{count} elements are announced and {self.end - self.at} bytes left", at
            )
        self._spend(count, at)
        read = self._element_reader(field)
        made = []
        for number in range(count):
            self._path.append(f"[{number}]")
            made.append(read())
            self._path.pop()
        return made

    def _element_reader(self, field: Field) -> Callable[[], Any]:
        if not isinstance(field.element, str):
            cls = field.struct
            return lambda: self.message(cls)
        element = Field(field.element, "0+", None)
        return lambda: self.value(element)

    def _spend(self, count: int, at: int) -> None:
        self.budget -= count
        if self.budget < 0:
            raise self.fail("more elements than one message may have", at)

    def _tagged_fields(self, made: Message, known: dict[int, Field]) -> None:
        at = self.at
        count = self._varint()
        if count * 2 > self.end - self.at:
            raise self.fail(f"{count} tagged fields are announced", at)
        self._spend(count, at)
        last = -1
        for _ in range(count):
            at = self.at
            tag, size = self._varint(), self._varint()
            if tag <= last:
                raise self.fail(f"tag {tag} after tag {last}", at)
            last = tag
            if tag in known:
                self._tagged_field(made, known[tag], size)
            else:
                self._take(size)

    def _tagged_field(self, made: Message, field: Field, size: int) -> None:
        self._path.append(field.name)
        at, end = self.at, self.end
        if size > end - at:
            raise self.fail(f"{size} bytes are announced and {end - at} left")
        self.end = at + size
        setattr(made, field.name, self.value(field))
        if self.at != self.end:
            raise self.fail(f"{size} bytes are announced and {self.at - at} read", at)
        self.end = end
        self._path.pop()


class Writer:
    """Writes one message of one version as a list of parts."""

    def __init__(self, *, version: int, flexible: bool) -> None:
        """Start empty."""
        self.version = version
        self.flexible = flexible
        self.parts: list[bytes | memoryview] = []
        self._path: list[str] = []

    def message(self, message: Message) -> None:
        """Write a message or struct: fields in order, then the tagged ones."""
        tagged = []
        for field in message.SCHEMA.fields:
            self._path.append(field.name)
            value = getattr(message, field.name)
            if self.version not in field.versions:
                self._check_absent(field, value)
            elif field.tag >= 0:
                if not field.is_default(value):
                    tagged.append((field.tag, field, value))
            else:
                self.value(field, value)
            self._path.pop()
        if self.flexible:
            self._tagged_fields(sorted(tagged, key=lambda entry: entry[0]))

    def _fail(self, reason: str) -> EncodeError:
        return EncodeError(reason, path=".".join(self._path).replace(".[", "["))

    def _check_absent(self, field: Field, value: Any) -> None:
        if not field.ignorable and not field.is_default(value):
            path = ".".join(self._path).replace(".[", "[")
            raise UnsupportedFieldError(f"version {self.version} has no such field", path=path)

    def value(self, field: Field, value: Any) -> None:
        """Write one field."""
        if field.kind in FIXED:
            self._fixed(field.kind, value)
        elif field.kind == "struct":
            self._struct(field, value)
        elif field.kind == "array":
            self._array(field, value)
        elif field.kind == "records":
            self._records(field, value)
        else:
            self._sized(field, value)

    def _fixed(self, kind: str, value: Any) -> None:
        if kind == "uuid" and len(value) != FIXED_SIZE["uuid"]:
            raise self._fail(f"a Uuid of {len(value)} bytes")
        try:
            self.parts.append(struct.pack(">" + FIXED[kind], value))
        except (struct.error, TypeError) as error:
            raise self._fail(f"{value!r} is no {kind}: {error}") from None

    def _length(self, field: Field, length: int) -> None:
        if self.flexible and field.compact:
            self.parts.append(encode_unsigned(length + 1))
        else:
            self._fixed("int16" if field.kind == "string" else "int32", length)

    def _null(self, field: Field) -> None:
        if self.version not in field.nullable:
            raise self._fail(f"None is not allowed in version {self.version}")
        self._length(field, -1)

    def _sized(self, field: Field, value: Any) -> None:
        if value is None:
            self._null(field)
            return
        try:
            raw = value.encode() if field.kind == "string" else bytes(memoryview(value))
        except (AttributeError, TypeError, UnicodeEncodeError) as error:
            raise self._fail(f"{value!r:.60} is no {field.kind}: {error}") from None
        if field.kind == "string" and len(raw) > STRING_BYTES_MAX:
            raise self._fail(f"a string of {len(raw)} bytes; {STRING_BYTES_MAX} are allowed")
        self._length(field, len(raw))
        self.parts.append(raw)

    def _records(self, field: Field, value: Any) -> None:
        if value is None:
            self._null(field)
            return
        pieces = [value] if isinstance(value, bytes | bytearray | memoryview) else value
        views = [memoryview(piece).cast("B") for piece in pieces]
        self._length(field, sum(view.nbytes for view in views))
        self.parts.extend(views)

    def _struct(self, field: Field, value: Any) -> None:
        nullable = self.version in field.nullable
        if value is None and not nullable:
            raise self._fail(f"None is not allowed in version {self.version}")
        if nullable:
            present = b"\x01"
            absent = b"\x00" if field.tag >= 0 else b"\xff"
            self.parts.append(absent if value is None else present)
        if value is not None:
            self._element(field.struct, value)

    def _element(self, cls: type[Message], value: Any) -> None:
        if not isinstance(value, cls):
            raise self._fail(f"{value!r:.60} is no {cls.__name__}")
        self.message(value)

    def _array(self, field: Field, value: Any) -> None:
        if value is None:
            self._null(field)
            return
        self._length(field, len(value))
        for number, element in enumerate(value):
            self._path.append(f"[{number}]")
            if isinstance(field.element, str):
                self.value(Field(field.element, "0+", None), element)
            else:
                self._element(field.struct, element)
            self._path.pop()

    def _tagged_fields(self, tagged: list[tuple[int, Field, Any]]) -> None:
        self.parts.append(encode_unsigned(len(tagged)))
        for tag, field, value in tagged:
            outer, self.parts = self.parts, []
            self._path.append(field.name)
            self.value(field, value)
            self._path.pop()
            inner, self.parts = b"".join(self.parts), outer
            self.parts += [encode_unsigned(tag), encode_unsigned(len(inner)), inner]

"""Writes the decoder of one message in one version as straight-line code.

Neighbouring fields of fixed width, together with the length, count or number of tagged fields
that follows them, are read by one `unpack_from`:

    m1.partition, m1.fetch_offset, n2 = U_iqB(data, at); at += 13

Whether a value ended inside the bytes is checked once at the end: `at` never decreases, so an
overrun is found there at the latest, or earlier by an `IndexError` or `struct.error`. Counts are
checked before they are used, because they multiply work.

Invariant: the written code builds no more than `budget` elements, and raises `Malformed`,
`IndexError`, `struct.error` or `UnicodeDecodeError` for bad bytes.
"""

import struct
from collections.abc import Callable, Generator
from typing import Any, Final

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import Uuid
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.declare import Field, Message
from sparkraft.protocol.reference_codec import FIXED, STRING_BYTES_MAX, element_size_min
from sparkraft.protocol.source import Malformed, Source, absent, literal, present, tagged
from sparkraft.protocol.varint import Buffer, decode_unsigned

Decoder = Callable[[Buffer, int, int, int], tuple[Any, int]]
"""(data, at, end, budget) -> (message, place after it)."""

_SMALL: Final = 17
"""Number arrays shorter than this are read by a ready-made struct."""


SlicedDecoder = Callable[[Buffer, int, int, int], Generator[int, None, tuple[Any, int]]]
"""As `Decoder`; yields the elements decoded since the last time, a few hundred."""

SLICE_ELEMENTS: Final[LoopBound] = 250
"""Elements between two yields: at most half a millisecond."""


def write_decoder(cls: type[Message], version: int) -> Decoder:
    """Compile the decoder of `cls` in `version`."""
    flexible = version in cls.SCHEMA.flexible
    decoder: Decoder = _DecoderWriter(version, flexible=flexible).write(cls)
    return decoder


def write_sliced_decoder(cls: type[Message], version: int) -> SlicedDecoder:
    """Compile a decoder of `cls` in `version` that can be interrupted."""
    flexible = version in cls.SCHEMA.flexible
    decoder: SlicedDecoder = _DecoderWriter(version, flexible=flexible, sliced=True).write(cls)
    return decoder


class _DecoderWriter:
    def __init__(self, version: int, *, flexible: bool, sliced: bool = False) -> None:
        self.version = version
        self.flexible = flexible
        self.sliced = sliced
        self.source = Source("def decode(data, at, end, budget):")
        self.source.scope |= _RUNTIME
        self.batch: list[tuple[str, str]] = []
        """Targets and struct letters not read yet."""
        self.after: list[str] = []
        """Lines that must follow the reading of the batch."""

    def write(self, cls: type[Message]) -> Any:
        if self.sliced:
            self.source.emit("left = SLICE_ELEMENTS", "yield 0")
        made = self.struct(cls)
        self.flush()
        self.source.emit("if at > end: raise Malformed", f"return {made}, at")
        return self.source.function("decode")

    def flush(self) -> None:
        """Read what the batch holds."""
        emit = self.source.emit
        if self.batch:
            letters = "".join(letter for _, letter in self.batch)
            targets = ", ".join(target for target, _ in self.batch)
            if letters == "B":
                emit(f"{targets} = data[at]", "at += 1")
            else:
                emit(f"({targets},) = {self.source.unpack(letters)}(data, at)")
                emit(f"at += {struct.calcsize('>' + letters)}")
        emit(*self.after)
        self.batch, self.after = [], []

    def struct(self, cls: type[Message]) -> str:
        """Read a struct into a new local; gives its name."""
        made = self.new(cls, [*absent(cls, self.version), *tagged(cls, self.version)])
        for field in present(cls, self.version):
            self.value(field, f"{made}.{field.name}")
        if self.flexible:
            self.tagged_fields(made, tagged(cls, self.version))
        return made

    def new(self, cls: type[Message], at_default: list[Field]) -> str:
        """Make a message whose fields `at_default` have their defaults; gives its local name."""
        source = self.source
        made = source.name("m")
        source.emit(f"{made} = new({source.constant(cls, cls.__name__)})")
        for field in at_default:
            if not field.is_fresh:
                value = literal(source, field)
            elif field.kind == "array":
                value = "[]"
            else:
                value = self.new(field.struct, list(field.struct.SCHEMA.fields))
            source.emit(f"{made}.{field.name} = {value}")
        return made

    def value(self, field: Field, target: str) -> None:
        """Read one field into `target`."""
        if field.kind == "uuid":
            raw = self.source.name("u")
            self.batch.append((raw, "16s"))
            self.after.append(f"{target} = new_bytes(Uuid, {raw})")
        elif field.kind in FIXED:
            self.batch.append((target, FIXED[field.kind]))
        elif field.kind == "struct":
            self.inner_struct(field, target)
        else:
            self.sized(field, target)

    def inner_struct(self, field: Field, target: str) -> None:
        source = self.source
        if self.version not in field.nullable:
            source.emit(f"{target} = {self.struct(field.struct)}")
            return
        marker = self.length("varint" if field.tag >= 0 else "b")
        source.emit(f"if {marker} {'==' if field.tag >= 0 else '<'} 0: {target} = None", "else:")
        source.depth += 1
        made = self.struct(field.struct)
        self.flush()
        source.emit(f"{target} = {made}")
        source.depth -= 1

    def length(self, form: str) -> str:
        """Read a length as "varint" or a struct letter; gives its local name."""
        name = self.source.name("n")
        self.batch.append((name, "B" if form.endswith("varint") else form))
        self.flush()
        if form == "varint":
            self.source.emit(f"if {name} > 127: {name}, at = varint(data, at - 1)")
        elif form == "string varint":
            self.source.emit(f"if {name} > 127: {name}, at = string_varint(data, at - 1)")
        return name

    def sized(self, field: Field, target: str) -> None:
        """Read what a length or count opens."""
        source, compact = self.source, self.flexible and field.compact
        if compact:
            name = self.length("string varint" if field.kind == "string" else "varint")
            is_null, null = f"not {name}", f"not {name}"
            less = " - 1"
        else:
            name = self.length("h" if field.kind == "string" else "i")
            is_null, null, less = f"{name} < 0", f"{name} == -1", ""
        if self.version not in field.nullable:
            source.emit(f"if {is_null}: raise Malformed")
            self.filled(field, target, name, less)
            return
        source.emit(f"if {null}: {target} = None")
        if is_null != null:
            source.emit(f"elif {is_null}: raise Malformed")
        source.emit("else:")
        source.depth += 1
        self.filled(field, target, name, less)
        source.depth -= 1

    def filled(self, field: Field, target: str, length: str, less: str) -> None:
        """Read a value that is not null; `length``less` is its length or count."""
        emit = self.source.emit
        if field.kind == "array":
            if less:
                emit(f"{length} -= 1")
            self.array(field, target, length)
            return
        stop = self.source.name("e")
        emit(f"{stop} = at + {length}{less}")
        taken = {
            "string": f"str(data[at:{stop}], 'utf-8')",
            "blob": f"bytes(data[at:{stop}])",
            "records": f"memoryview(data)[at:{stop}]",
        }[field.kind]
        emit(f"{target} = {taken}", f"at = {stop}")

    def array(self, field: Field, target: str, count: str) -> None:
        emit = self.source.emit
        size = element_size_min(field, self.version, flexible=self.flexible)
        times = f" * {size}" if size > 1 else ""
        emit(f"if {count}{times} > end - at: raise Malformed")
        emit(f"budget -= {count}", "if budget < 0: raise Malformed")
        if field.element in FIXED and field.element != "uuid":
            letter = FIXED[str(field.element)]
            tables = self.source.constant(_unpackers(letter), f"A_{letter}")
            long = f"unpack_from(f'>{{{count}}}{letter}', data, at)"
            short = f"{tables}[{count}](data, at)"
            emit(f"{target} = list({short} if {count} < {_SMALL} else {long})")
            emit(f"at += {count}{times}")
            return
        self.loop(field, target, count)

    def loop(self, field: Field, target: str, count: str) -> None:
        source = self.source
        made = source.name("l")
        source.emit(f"{target} = {made} = []", f"for _ in range({count}):")
        source.depth += 1
        if isinstance(field.element, str):
            each = source.name("v")
            self.value(Field(field.element, "0+", None), each)
        else:
            each = self.struct(field.struct)
        self.flush()
        source.emit(f"{made}.append({each})")
        if self.sliced:
            source.emit("left -= 1")
            source.emit("if not left: left = SLICE_ELEMENTS; yield SLICE_ELEMENTS")
        source.depth -= 1

    def tagged_fields(self, made: str, known: list[Field]) -> None:
        source = self.source
        name = source.name("n")
        self.batch.append((name, "B"))
        self.flush()
        if not known:
            source.emit(f"if {name}: at, budget = skip_tagged(data, at - 1, end, budget)")
            return
        source.emit(f"if {name}:")
        source.depth += 1
        source.emit(f"if {name} > 127: {name}, at = varint(data, at - 1)")
        source.emit(f"budget -= {name}")
        source.emit(f"if budget < 0 or {name} * 2 > end - at: raise Malformed")
        self.tag_loop(made, name, known)
        source.depth -= 1

    def tag_loop(self, made: str, count: str, known: list[Field]) -> None:
        source = self.source
        last, tag, stop = source.name("last"), source.name("t"), source.name("e")
        source.emit(f"{last} = -1", f"for _ in range({count}):")
        source.depth += 1
        source.emit(f"{tag} = data[at]", "at += 1")
        source.emit(f"if {tag} > 127: {tag}, at = varint(data, at - 1)")
        source.emit(f"{stop} = data[at]", "at += 1")
        source.emit(f"if {stop} > 127: {stop}, at = varint(data, at - 1)")
        source.emit(f"{stop} += at")
        source.emit(f"if {tag} <= {last} or {stop} > end: raise Malformed", f"{last} = {tag}")
        word = "if"
        for field in known:
            source.emit(f"{word} {tag} == {field.tag}:")
            source.depth += 1
            self.value(field, f"{made}.{field.name}")
            self.flush()
            source.depth -= 1
            word = "elif"
        source.emit(f"else: at = {stop}", f"if at != {stop}: raise Malformed")
        source.depth -= 1


def _unpackers(letter: str) -> list[Any]:
    if letter not in _UNPACKERS:
        made = [struct.Struct(f">{count}{letter}").unpack_from for count in range(_SMALL)]
        _UNPACKERS[letter] = made
    return _UNPACKERS[letter]


_UNPACKERS: Final[dict[str, list[Any]]] = {}


def _string_varint(data: Buffer, at: int) -> tuple[int, int]:
    length, at = decode_unsigned(data, at)
    if length > STRING_BYTES_MAX + 1:
        raise Malformed
    return length, at


def _skip_tagged(data: Buffer, at: int, end: int, budget: int) -> tuple[int, int]:
    """Skip unknown tagged fields; return the position and the remaining budget."""
    count, at = decode_unsigned(data, at)
    budget -= count
    if budget < 0 or count * 2 > end - at:
        raise Malformed
    last = -1
    for _ in range(count):
        tag, at = decode_unsigned(data, at)
        size, at = decode_unsigned(data, at)
        at += size
        if tag <= last or at > end:
            raise Malformed
        last = tag
    return at, budget


_RUNTIME: Final = {
    "SLICE_ELEMENTS": SLICE_ELEMENTS,
    "new": object.__new__,
    "new_bytes": bytes.__new__,
    "Uuid": Uuid,
    "varint": decode_unsigned,
    "string_varint": _string_varint,
    "skip_tagged": _skip_tagged,
    "unpack_from": struct.unpack_from,
}

DECODER_ERRORS: Final = (Malformed, IndexError, struct.error, UnicodeDecodeError, DecodeError)
"""All that a written decoder raises."""

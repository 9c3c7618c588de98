"""Writes the encoder of one message in one version as straight-line code.

Neighbouring fields of fixed width, arrays of numbers between them and the length or count that
follows become one `pack`:

    w(P_hiiB(m1.error_code, m1.partition_index, m1.leader_id, n2))

If the batch has arrays of numbers, the packer is looked up by their lengths: the partitions of one
cluster have few different shapes.

Invariant: the written code raises one of `ENCODER_ERRORS` for values that do not fit.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from sparkraft.protocol.declare import Field, Message
from sparkraft.protocol.reference_codec import FIXED, STRING_BYTES_MAX
from sparkraft.protocol.source import Malformed, Source, absent, literal, present, tagged
from sparkraft.protocol.varint import encode_unsigned

Encoder = Callable[[Any, list[bytes | memoryview], list[int]], None]
"""(message, parts, cuts): appends to `parts`; `cuts` gets the places around records' buffers."""


class Encoded:
    """Elements of an array of structs that are encoded already.

    The array is a field of the message or element that is being encoded, or of a struct in it.
    `encode_parts` hands the buffers on without copying them, so responses can share them.

    Attributes:
        count: of the elements.
        buffers: their bytes, in order; an element may begin in one buffer and end in another.
    """

    __slots__ = ("buffers", "count")

    def __init__(self, count: int, buffers: Sequence[bytes | memoryview]) -> None:
        self.count = count
        self.buffers = buffers

    def __len__(self) -> int:
        """As the list of the elements."""
        return self.count


class _Numbers(NamedTuple):
    """An array of numbers in a batch: the encoding of its count, and its elements."""

    count_letter: str
    letter: str


class _Item(NamedTuple):
    """Something of a batch: a struct letter or an array, with the expressions for its values."""

    form: str | _Numbers
    value: str
    elements: str = ""


def write_encoder(cls: type[Message], version: int, *, flexible: bool | None = None) -> Encoder:
    """Compile the encoder of `cls` in `version`; `flexible`: as its message, for an element."""
    if flexible is None:
        flexible = version in cls.SCHEMA.flexible
    return _EncoderWriter(version, flexible=flexible).write(cls)


class _EncoderWriter:
    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = Source("def encode(m, parts, cuts):")
        self.source.scope |= _RUNTIME
        self.batch: list[_Item] = []
        self.w = "w"
        """Local name of the function that takes parts."""
        self.parts = "parts"
        self.loops = 0
        """How many loops over elements the present line is in."""

    def write(self, cls: type[Message]) -> Encoder:
        self.source.emit("w = parts.append")
        self.struct(cls, "m")
        self.flush()
        encoder: Encoder = self.source.function("encode")
        return encoder

    def flush(self, varint: str = "") -> None:
        """Write what the batch holds, then the local `varint` as an unsigned varint."""
        if any(isinstance(item.form, _Numbers) for item in self.batch):
            self.source.emit(f"{self.w}({self.packer_by_shape()}({self.arguments()}))")
            self.batch = []
        if not varint:
            if self.batch:
                self.source.emit(f"{self.w}({self.pack('')})")
        elif self.batch:
            emit = self.source.emit
            emit(f"if {varint} < 128: {self.w}({self.pack(varint)})")
            emit(f"else: {self.w}({self.pack('')}); {self.w}(long_varint({varint}))")
        else:
            short = f"VARINT[{varint}] if {varint} < 128 else long_varint({varint})"
            self.source.emit(f"{self.w}({short})")
        self.batch = []

    def pack(self, last: str) -> str:
        """The batch and perhaps one more byte as the result of one `pack`."""
        letters = "".join(str(item.form) for item in self.batch) + ("B" if last else "")
        if letters.strip("x") == "":
            return repr(bytes(len(letters)))
        name = self.source.pack(letters)
        values = [item.value for item in self.batch if item.form != "x"]
        return f"{name}({', '.join([*values, last] if last else values)})"

    def packer_by_shape(self) -> str:
        """The packer for the lengths that the arrays in the batch have."""
        counts = [item.value for item in self.batch if isinstance(item.form, _Numbers)]
        shape = f"({', '.join(counts)},)"
        packers = _Packers([item.form for item in self.batch])
        name = self.source.name("PACKERS")
        self.source.scope[name] = packers
        return f"({name}.get({shape}) or {name}.make({shape}))"

    def arguments(self) -> str:
        values = []
        for item in self.batch:
            if item.form != "x":
                values.append(item.value)
            if item.elements:
                values.append("*" + item.elements)
        return ", ".join(values)

    def struct(self, cls: type[Message], var: str) -> None:
        """Write the struct in the local `var`."""
        refused = [f for f in absent(cls, self.version) if not f.ignorable]
        if refused:
            self.source.emit(f"if {self.any_set(refused, var)}: raise Malformed")
        for field in present(cls, self.version):
            self.value(field, f"{var}.{field.name}")
        if self.flexible:
            self.tagged_fields(tagged(cls, self.version), var)

    def any_set(self, fields: Sequence[Field], var: str) -> str:
        """An expression: whether one of the fields differs from its default."""
        return " or ".join(self.is_set(field, f"{var}.{field.name}") for field in fields)

    def is_set(self, field: Field, value: str) -> str:
        if field.default is None:
            return f"{value} is not None"
        if not field.is_fresh:
            return f"{value} != {literal(self.source, field)}"
        if field.kind == "array":
            return f"{value} is None or len({value})"
        inner = self.any_set(field.struct.SCHEMA.fields, value)
        return f"{value} is None or {inner}"

    def value(self, field: Field, value: str) -> None:
        """Write one field that has the expression `value`."""
        if field.kind == "uuid":
            name = self.source.name("u")
            self.source.emit(f"{name} = {value}", f"if len({name}) != 16: raise Malformed")
            self.batch.append(_Item("16s", name))
        elif field.kind in FIXED:
            self.batch.append(_Item(FIXED[field.kind], value))
        elif field.kind == "struct":
            self.inner_struct(field, value)
        elif field.kind == "array":
            self.array(field, value)
        else:
            self.sized(field, value)

    def inner_struct(self, field: Field, value: str) -> None:
        source = self.source
        name = source.name("m")
        source.emit(f"{name} = {value}")
        if self.version not in field.nullable:
            self.struct(field.struct, name)
            return
        self.flush()
        null = b"\0" if field.tag >= 0 else b"\xff"
        source.emit(f"if {name} is None: {self.w}({null!r})", "else:")
        source.depth += 1
        self.batch.append(_Item("B", "1"))
        self.struct(field.struct, name)
        self.flush()
        source.depth -= 1

    def length(self, field: Field, name: str) -> None:
        """Write the local `name`, which holds a length in wire form."""
        if self.flexible and field.compact:
            self.flush(varint=name)
        else:
            self.batch.append(_Item("h" if field.kind == "string" else "i", name))
            self.flush()

    def sized(self, field: Field, value: str) -> None:
        """Write a string, bytes or records."""
        source = self.source
        raw, length = source.name("s"), source.name("n")
        compact = self.flexible and field.compact
        source.emit(f"{raw} = {value}")
        if self.version in field.nullable:
            empty = "()" if field.kind == "records" else 'b""'
            source.emit(f"if {raw} is None: {raw} = {empty}; {length} = {0 if compact else -1}")
            source.emit("else:")
            source.depth += 1
        self.raw_and_length(field, raw, length, " + 1" if compact else "")
        if self.version in field.nullable:
            source.depth -= 1
        self.length(field, length)
        if field.kind == "records":
            source.emit(f"cuts.append(len({self.parts}))", f"{self.parts}.extend({raw})")
            source.emit(f"cuts.append(len({self.parts}))")
        else:
            source.emit(f"{self.w}({raw})")

    def raw_and_length(self, field: Field, raw: str, length: str, more: str) -> None:
        emit = self.source.emit
        if field.kind == "records":
            emit(f"{raw}, {length} = pieces_and_length({raw})")
            if more:
                emit(f"{length} += 1")
            return
        if field.kind == "string":
            emit(f"{raw} = {raw}.encode()")
        else:
            emit(f"{raw} = {raw} if type({raw}) is bytes else bytes(memoryview({raw}))")
        emit(f"{length} = len({raw}){more}")
        if field.kind == "string" and more:
            emit(f"if {length} > {STRING_BYTES_MAX + 1}: raise Malformed")

    def array(self, field: Field, value: str) -> None:
        source = self.source
        name = source.name("l")
        source.emit(f"{name} = {value}")
        own = not self.loops and self.parts == "parts"
        if self.version not in field.nullable:
            self.elements(field, name, own=own)
            return
        self.flush()
        null = b"\0" if self.flexible else b"\xff\xff\xff\xff"
        source.emit(f"if {name} is None: {self.w}({null!r})", "else:")
        source.depth += 1
        self.elements(field, name, own=own)
        self.flush()
        source.depth -= 1

    def elements(self, field: Field, name: str, *, own: bool) -> None:
        """Write the list in the local `name`; `own`: of no element, so it may be `Encoded`."""
        source = self.source
        length = source.name("n")
        source.emit(f"{length} = len({name}){' + 1' if self.flexible else ''}")
        if field.element in FIXED and field.element != "uuid":
            form = _Numbers("B" if self.flexible else "i", FIXED[str(field.element)])
            self.batch.append(_Item(form, length, name))
            return
        self.length(field, length)
        if own and not isinstance(field.element, str):
            source.emit(f"if type({name}) is Encoded:")
            source.emit(f"    cuts.append(len(parts)); parts.extend({name}.buffers)")
            source.emit(f"    cuts.append(len(parts)); {name} = ()")
        each = source.name("m")
        source.emit(f"for {each} in {name}:")
        source.depth += 1
        self.loops += 1
        if isinstance(field.element, str):
            self.value(Field(field.element, "0+", None), each)
        else:
            self.struct(field.struct, each)
        self.flush()
        if source.lines[-1].endswith(":"):
            source.emit("pass")
        source.depth -= 1
        self.loops -= 1

    def tagged_fields(self, fields: list[Field], var: str) -> None:
        if not fields:
            self.batch.append(_Item("x", ""))
            return
        self.flush()
        source = self.source
        source.emit(f"if not ({self.any_set(fields, var)}): {self.w}(b'\\0')", "else:")
        source.depth += 1
        number, entries = source.name("k"), source.name("q")
        source.emit(f"{number} = 0", f"{entries} = []")
        for field in fields:
            self.tagged_field(field, var, number, entries)
        source.emit(f"{self.w}(long_varint({number}))", f"{self.parts}.extend({entries})")
        source.depth -= 1

    def tagged_field(self, field: Field, var: str, number: str, entries: str) -> None:
        source = self.source
        source.emit(f"if {self.any_set([field], var)}:")
        source.depth += 1
        outer = self.w, self.parts
        self.w, self.parts = source.name("w"), source.name("p")
        source.emit(f"{number} += 1", f"{self.parts} = []", f"{self.w} = {self.parts}.append")
        self.value(field, f"{var}.{field.name}")
        self.flush()
        source.emit(f"add_tagged({entries}, {field.tag}, {self.parts})")
        self.w, self.parts = outer
        source.depth -= 1


_SHAPES_MAX: Final = 256
"""Shapes whose packers a batch remembers; partitions seldom have more than a dozen."""

_CACHED_COUNT_MAX: Final = 127
"""Counts above this need a varint of two bytes and are not worth remembering."""


class _Packers(dict[tuple[int, ...], Callable[..., bytes]]):
    """Packers of one batch, by the counts of its arrays on the wire."""

    def __init__(self, forms: list[str | _Numbers]) -> None:
        super().__init__()
        self.forms = forms

    def make(self, shape: tuple[int, ...]) -> Callable[..., bytes]:
        """The packer for `shape`."""
        if max(shape) > _CACHED_COUNT_MAX:
            return self._long(shape)
        if len(self) >= _SHAPES_MAX:
            self.clear()
        packer = self[shape] = struct.Struct(self._format(shape)).pack
        return packer

    def _format(self, shape: tuple[int, ...]) -> str:
        counts = iter(shape)
        letters = [">"]
        for form in self.forms:
            if isinstance(form, str):
                letters.append(form)
                continue
            count = next(counts)
            length = count - 1 if form.count_letter == "B" else count
            prefix = form.count_letter
            if prefix == "B" and count > _CACHED_COUNT_MAX:
                prefix = f"{len(encode_unsigned(count))}s"
            letters.append(f"{prefix}{length}{form.letter}")
        return "".join(letters)

    def _long(self, shape: tuple[int, ...]) -> Callable[..., bytes]:
        """A packer that writes counts above 127 as varints."""
        pack = struct.Struct(self._format(shape)).pack
        places, place = [], 0
        counts = iter(shape)
        for form in self.forms:
            if isinstance(form, str):
                place += form != "x"
                continue
            count = next(counts)
            if form.count_letter == "B" and count > _CACHED_COUNT_MAX:
                places.append(place)
            place += count if form.count_letter == "B" else count + 1

        def packer(*values: Any) -> bytes:
            arguments = list(values)
            for at in places:
                arguments[at] = encode_unsigned(arguments[at])
            return pack(*arguments)

        return packer


def pieces_and_length(records: Any) -> tuple[Sequence[Any], int]:
    """The buffers of a records field and their bytes together; views must be of bytes."""
    if type(records) is list:
        return records, sum(map(len, records))
    if isinstance(records, (bytes, bytearray, memoryview)):
        return (records,), len(records)
    return tuple(records), sum(map(len, records))


def _add_tagged(entries: list[bytes], tag: int, parts: list[bytes]) -> None:
    value = b"".join(parts)
    entries += (encode_unsigned(tag), encode_unsigned(len(value)), value)


_RUNTIME: Final = {
    "VARINT": [encode_unsigned(value) for value in range(128)],
    "long_varint": encode_unsigned,
    "pieces_and_length": pieces_and_length,
    "add_tagged": _add_tagged,
    "Encoded": Encoded,
}

ENCODER_ERRORS: Final = (
    Malformed,
    struct.error,
    AttributeError,
    TypeError,
    ValueError,
    OverflowError,
)
"""All that a written encoder raises."""

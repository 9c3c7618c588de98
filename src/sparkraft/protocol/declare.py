"""The language of the declarations: message classes whose fields know their versions.

    class FetchTopic(Message):
        topic: str = string("0-12", ignorable=True)
        topic_id: Uuid = uuid("13+", ignorable=True)
        partitions: list[FetchPartition] = array(FetchPartition)

A message is a mutable record with slots, keyword-only constructor, `==` and `repr`. Every field
has a default. Version ranges are written as in Kafka's documents: "4-18", "12+", "3"; no range
means every version of the message.

Invariant: a class costs no more than its slots until it is constructed, encoded or decoded;
    `__init__` and the codecs are compiled at first use.

Words used for a field:
    versions   in which it is on the wire; in others it decodes to its default.
    nullable   in which versions None may be written.
    tag        it travels among the tagged fields, only when it differs from its default (KIP-482).
    secret     `repr`, and so a log or a traceback, does not show its value.
    ignorable  whether encoding may drop a value in a version that lacks the field; otherwise
               a value other than the default is refused there.
"""

from collections.abc import Sequence
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

from sparkraft.base.ids import Uuid

T = TypeVar("T")

Records = bytes | bytearray | memoryview | Sequence[bytes | memoryview]
"""Record batches: one buffer after decoding; one buffer or pieces of it when encoding."""

Nullable = str | Literal[True]
"""Versions in which a field may be None; True for all that have the field."""

NO_VERSION: Final = 1 << 15
"""First version of something that no version has."""

LAST_VERSION: Final = (1 << 15) - 1
"""Upper end of an open range: versions are int16."""


class Versions(NamedTuple):
    """A closed range of versions; empty if `first` is above `last`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        """Whether `version` lies in the range."""
        return isinstance(version, int) and self.first <= version <= self.last


FRESH: Final = object()
"""Default of arrays and structs: every message gets a new empty one of its own."""

HIDDEN: Final = "[hidden]"
"""The value of a secret in a `repr`, as in Kafka's logs."""

ALL_VERSIONS: Final = Versions(0, LAST_VERSION)
NO_VERSIONS: Final = Versions(NO_VERSION, -1)


def parse_versions(text: str) -> Versions:
    """Read "4-18", "12+", "3" or "none"."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), LAST_VERSION)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class Field:
    """One field of a message, as declared.

    Args:
        kind: "int32", "string", "array" …
        versions: range in which it is on the wire. default: its default; arrays and structs create
            a new one each time, unless the default is None.
        element: of an array: a kind or a message class; of a struct: its class.
        compact: False if a flexible version still writes the old length prefix.
    """

    __slots__ = (
        "_json",
        "_nullable",
        "_versions",
        "compact",
        "default",
        "element",
        "ignorable",
        "is_secret",
        "kind",
        "name",
        "tag",
    )

    def __init__(  # noqa: PLR0913 (the words of the declaration language)
        self,
        kind: str,
        versions: str,
        default: object,
        *,
        nullable: Nullable | None = None,
        tag: int = -1,
        ignorable: bool = False,
        element: "str | type[Message]" = "",
        compact: bool = True,
        json: str = "",
    ) -> None:
        """Store the declaration; version ranges are parsed at first use."""
        self.name = ""
        self.kind = kind
        self._versions = versions
        self.default = default
        self._nullable = nullable
        self.tag = tag
        self.ignorable = ignorable
        self.element = element
        self.compact = compact
        self._json = json
        self.is_secret = False

    @property
    def versions(self) -> Versions:
        """Versions in which the field is on the wire."""
        return parse_versions(self._versions)

    @property
    def nullable(self) -> Versions:
        """Versions in which it may be None."""
        if self._nullable is None:
            return NO_VERSIONS
        return self.versions if self._nullable is True else parse_versions(self._nullable)

    @property
    def json_name(self) -> str:
        """Kafka's name of the field, in camel case."""
        if self._json:
            return self._json
        first, *rest = self.name.split("_")
        return first + "".join(word[:1].upper() + word[1:] for word in rest)

    @property
    def is_fresh(self) -> bool:
        """Whether every message gets a default of its own."""
        return self.default is not None and self.kind in ("array", "struct")

    def new_default(self) -> Any:
        """The value of the field in an empty message."""
        if not self.is_fresh:
            return self.default
        return [] if self.kind == "array" else self.struct()

    def is_default(self, value: Any) -> bool:
        """Whether `value` is the field's default."""
        if self.kind == "array" and self.is_fresh:
            return value is not None and len(value) == 0
        return bool(value == self.new_default())

    @property
    def struct(self) -> "type[Message]":
        """The message class of a struct or of an array's elements."""
        if isinstance(self.element, str):
            raise TypeError(f"{self.name} holds no struct")
        return self.element

    def __repr__(self) -> str:
        """The field as it might stand in a declaration."""
        return f"<{self.name}: {self.kind} {self._versions}>"


class Schema(NamedTuple):
    """The declared properties of a message as a whole.

    Args:
        key: API key of a request or response, type of a record; -1 for a nested struct.
        versions: the versions that exist.
        flexible: the versions with compact lengths and tagged fields (KIP-482).
        fields: in wire order.
    """

    name: str
    key: int
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in self.fields)


class MessageType(type):
    """Turns a declaration into a class with slots and a `SCHEMA`."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        versions: str = "0+",
        flexible: str = "none",
        key: int = -1,
    ) -> "MessageType":
        """Take the fields out of the class body and leave slots."""
        fields = tuple(value for value in namespace.values() if isinstance(value, Field))
        names = tuple(key for key, value in namespace.items() if isinstance(value, Field))
        for field, field_name in zip(fields, names, strict=True):
            field.name = field_name
            del namespace[field_name]
        namespace["__slots__"] = names
        namespace["SCHEMA"] = Schema(
            name, key, parse_versions(versions), parse_versions(flexible), fields
        )
        return super().__new__(mcs, name, bases, namespace)


@dataclass_transform(kw_only_default=True)
class Message(metaclass=MessageType):
    """A message or a struct in one; see the module's docstring."""

    SCHEMA: ClassVar[Schema]

    def __init__(self, **values: Any) -> None:
        """Compile the constructor of this class, then use it."""
        cls = type(self)
        build = _compile_init(cls.SCHEMA)
        cls.__init__ = build  # type: ignore[method-assign]
        build(self, **values)

    def __eq__(self, other: object) -> bool:
        """Whether `other` is of the same class with equal fields."""
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.SCHEMA.names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The constructor call that makes an equal message, without fields at their default.

        Secrets are hidden.
        """
        values = ((field, getattr(self, field.name)) for field in self.SCHEMA.fields)
        shown = ", ".join(
            f"{field.name}={HIDDEN if field.is_secret else repr(value)}"
            for field, value in values
            if value != field.new_default()
        )
        return f"{type(self).__name__}({shown})"


def _compile_init(schema: Schema) -> Any:
    """A keyword-only `__init__` with all defaults, as fast as one written out."""
    scope: dict[str, Any] = {"FRESH": FRESH}
    arguments, lines = [], []
    for field in schema.fields:
        name = field.name
        scope[f"d_{name}"] = FRESH if field.is_fresh else field.default
        arguments.append(f"{name}=d_{name}")
        value = name
        if field.is_fresh:
            fresh = "[]" if field.kind == "array" else f"s_{name}()"
            scope[f"s_{name}"] = field.element
            value = f"{fresh} if {name} is FRESH else {name}"
        lines.append(f"    self.{name} = {value}")
    head = f"def __init__(self, *, {', '.join(arguments)}):" if arguments else "def __init__(self):"
    exec("\n".join([head, *lines, "    return None"]), scope)
    return scope["__init__"]


class Value(Protocol[T]):
    """Declares a field of one kind, whose default may be given."""

    def __call__(
        self, versions: str = ..., *, default: T = ..., tag: int = ..., ignorable: bool = ...
    ) -> T: ...


def _value(kind: str, zero: T) -> Value[T]:
    def declare(
        versions: str = "0+", *, default: T = zero, tag: int = -1, ignorable: bool = False
    ) -> T:
        return cast("T", Field(kind, versions, default, tag=tag, ignorable=ignorable))

    return declare


int8 = _value("int8", 0)
"""A signed byte."""

int16 = _value("int16", 0)
"""A signed 16-bit number, big-endian as all numbers."""

uint16 = _value("uint16", 0)
"""An unsigned 16-bit number, such as a port."""

int32 = _value("int32", 0)
"""A signed 32-bit number."""

uint32 = _value("uint32", 0)
"""An unsigned 32-bit number."""

int64 = _value("int64", 0)
"""A signed 64-bit number."""

float64 = _value("float64", 0.0)
"""A double."""

boolean = _value("boolean", False)  # noqa: FBT003 (the default)
"""A byte, 0 for false."""


def secret(field: T) -> T:
    """Declare that the value of a field is a secret, or may contain one."""
    cast("Field", field).is_secret = True
    return field


def uuid(versions: str = "0+", *, tag: int = -1, ignorable: bool = False) -> Uuid:
    """16 bytes; all zero for none."""
    return cast("Uuid", Field("uuid", versions, Uuid.ZERO, tag=tag, ignorable=ignorable))


@overload
def string(
    versions: str = ..., *, default: str = ..., tag: int = ..., ignorable: bool = ...
) -> str: ...
@overload
def string(
    versions: str = ...,
    *,
    nullable: Nullable,
    default: str | None = ...,
    tag: int = ...,
    ignorable: bool = ...,
    compact: bool = ...,
) -> str | None: ...
def string(
    versions: str = "0+",
    *,
    nullable: Nullable | None = None,
    default: str | None = "",
    tag: int = -1,
    ignorable: bool = False,
    compact: bool = True,
) -> str | None:
    """UTF-8 text of at most 32,767 bytes."""
    field = Field(
        "string",
        versions,
        default,
        nullable=nullable,
        tag=tag,
        ignorable=ignorable,
        compact=compact,
    )
    return cast("str", field)


@overload
def blob(
    versions: str = ..., *, default: bytes = ..., tag: int = ..., ignorable: bool = ...
) -> bytes: ...
@overload
def blob(
    versions: str = ...,
    *,
    nullable: Nullable,
    default: bytes | None = ...,
    tag: int = ...,
    ignorable: bool = ...,
) -> bytes | None: ...
def blob(
    versions: str = "0+",
    *,
    nullable: Nullable | None = None,
    default: bytes | None = b"",
    tag: int = -1,
    ignorable: bool = False,
) -> bytes | None:
    """Bytes that another layer interprets."""
    field = Field(
        "blob",
        versions,
        default,
        nullable=nullable,
        tag=tag,
        ignorable=ignorable,
    )
    return cast("bytes", field)


def records(
    versions: str = "0+",
    *,
    nullable: Nullable | None = None,
    default: bytes | None = None,
    tag: int = -1,
) -> Records | None:
    """Record batches as they are; a view on the received frame after decoding."""
    return cast("Records", Field("records", versions, default, nullable=nullable, tag=tag))


@overload
def struct(of: type[T], versions: str = ..., *, tag: int = ..., ignorable: bool = ...) -> T: ...
@overload
def struct(
    of: type[T],
    versions: str = ...,
    *,
    nullable: Nullable,
    default: None = ...,
    tag: int = ...,
    ignorable: bool = ...,
) -> T | None: ...
def struct(
    of: type[T],
    versions: str = "0+",
    *,
    nullable: Nullable | None = None,
    default: object = FRESH,
    tag: int = -1,
    ignorable: bool = False,
) -> T | None:
    """One message inside another; a default one unless `default` is None."""
    field = Field(
        "struct",
        versions,
        default,
        nullable=nullable,
        tag=tag,
        ignorable=ignorable,
        element=cast("type[Message]", of),
    )
    return cast("T", field)


@overload
def array(
    of: type[T], versions: str = ..., *, tag: int = ..., ignorable: bool = ...
) -> list[T]: ...
@overload
def array(
    of: type[T],
    versions: str = ...,
    *,
    nullable: Nullable,
    default: None = ...,
    tag: int = ...,
    ignorable: bool = ...,
) -> list[T] | None: ...
def array(
    of: type[T],
    versions: str = "0+",
    *,
    nullable: Nullable | None = None,
    default: object = FRESH,
    tag: int = -1,
    ignorable: bool = False,
) -> list[T] | None:
    """Messages in a row; empty by default unless `default` is None."""
    field = Field(
        "array",
        versions,
        default,
        nullable=nullable,
        tag=tag,
        ignorable=ignorable,
        element=cast("type[Message]", of),
    )
    return cast("list[T]", field)


class Values(Protocol[T]):
    """Declares a field with values of one kind in a row."""

    @overload
    def __call__(
        self, versions: str = ..., *, tag: int = ..., ignorable: bool = ...
    ) -> list[T]: ...
    @overload
    def __call__(
        self,
        versions: str = ...,
        *,
        nullable: Nullable,
        default: None = ...,
        tag: int = ...,
        ignorable: bool = ...,
    ) -> list[T] | None: ...


def _values(kind: str, of: type[T]) -> Values[T]:
    _ = of  # its type alone matters

    def declare(
        versions: str = "0+",
        *,
        nullable: Nullable | None = None,
        default: object = FRESH,
        tag: int = -1,
        ignorable: bool = False,
    ) -> Field:
        return Field(
            "array",
            versions,
            default,
            nullable=nullable,
            tag=tag,
            ignorable=ignorable,
            element=kind,
        )

    return cast("Values[T]", declare)


int8s = _values("int8", int)
"""Signed bytes in a row."""

int16s = _values("int16", int)
"""Signed 16-bit numbers in a row."""

int32s = _values("int32", int)
"""Signed 32-bit numbers in a row."""

int64s = _values("int64", int)
"""Signed 64-bit numbers in a row."""

strings = _values("string", str)
"""Texts in a row."""

uuids = _values("uuid", Uuid)
"""Uuids in a row."""

"""Messages of any class and version made from their declarations: drawn, or with all fields set."""

import itertools
from typing import Any

from hypothesis import strategies as st

from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import API_INFO
from sparkraft.protocol.declare import Field, Message

BOUNDS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(*bounds) for kind, bounds in BOUNDS.items()},
    "float64": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "uuid": st.one_of(st.just(Uuid.ZERO), st.binary(min_size=16, max_size=16).map(Uuid)),
    "string": st.one_of(st.text(max_size=12), st.just("é" * 90)),
    "blob": st.one_of(st.binary(max_size=12), st.just(bytes(200))),
    "records": st.one_of(st.binary(max_size=12), st.just(bytes(200))),
}

_COUNTS = st.integers(0, 2)


def message_classes(*, kafkas_only: bool = False) -> list[type[Message]]:
    """Every request and response, with ours or without."""
    infos = [info for info in API_INFO.values() if info.is_kafka_4 or not kafkas_only]
    return [cls for info in infos for cls in (info.request_class(), info.response_class())]


def versions_of(cls: type[Message]) -> range:
    """The versions that exist."""
    return range(cls.SCHEMA.versions.first, cls.SCHEMA.versions.last + 1)


class Filler:
    """Draws messages of one version; `limits` narrows fields by (class name, field name)."""

    def __init__(
        self,
        draw: Any,
        version: int,
        limits: dict[tuple[str, str], st.SearchStrategy[Any]] | None = None,
    ) -> None:
        self.draw = draw
        self.version = version
        self.limits = limits or {}

    def message(self, cls: type[Message]) -> Message:
        """A message in which only fields of this version differ from their defaults."""
        here = [f for f in cls.SCHEMA.fields if self.version in f.versions]
        return cls(**{field.name: self.field(cls, field) for field in here})

    def field(self, cls: type[Message], field: Field) -> Any:
        limit = self.limits.get((cls.__name__, field.name))
        if limit is not None and field.kind != "array":
            return self.draw(limit)
        if self.version in field.nullable and self.draw(st.integers(0, 3)) == 0:
            return None
        if field.kind == "struct":
            return self.message(field.struct)
        if field.kind == "array":
            return [self.element(field, limit) for _ in range(self.draw(_COUNTS))]
        return self.draw(_SCALARS[field.kind])

    def element(self, field: Field, limit: st.SearchStrategy[Any] | None) -> Any:
        if isinstance(field.element, str):
            return self.draw(limit if limit is not None else _SCALARS[field.element])
        return self.message(field.struct)


@st.composite
def messages(
    draw: Any,
    cls: type[Message],
    version: int,
    limits: dict[tuple[str, str], st.SearchStrategy[Any]] | None = None,
) -> Message:
    """Messages of `cls` with any values that `version` can carry."""
    return Filler(draw, version, limits).message(cls)


_VALUES = {
    "int8": 7,
    "int16": 1234,
    "uint16": 40000,
    "int32": 123456789,
    "uint32": 4000000000,
    "int64": 1234567890123456789,
    "float64": 1.5,
    "boolean": True,
    "blob": b"\x00\xffbytes",
    "records": b"batches",
}


class Fill:
    """Makes messages of one version, each field unlike its default and unlike its neighbours."""

    def __init__(self, version: int, *, nulls: bool = False) -> None:
        self.version = version
        self.nulls = nulls
        self.numbers = itertools.count(1)

    def message(self, cls: type[Message]) -> Message:
        here = [f for f in cls.SCHEMA.fields if self.version in f.versions]
        return cls(**{field.name: self.field(field) for field in here})

    def field(self, field: Field) -> Any:
        if self.nulls and self.version in field.nullable:
            return None
        if field.kind == "struct":
            return self.message(field.struct)
        if field.kind == "array":
            return [self.element(field) for _ in range(2)]
        return self.scalar(field.kind, field.name)

    def element(self, field: Field) -> Any:
        if isinstance(field.element, str):
            return self.scalar(field.element, field.name)
        return self.message(field.struct)

    def scalar(self, kind: str, name: str) -> Any:
        number = next(self.numbers)
        if kind == "string":
            return f"{name} {number} é"
        if kind == "uuid":
            return Uuid(number.to_bytes(16, "big"))
        if kind in ("float64", "boolean", "blob", "records"):
            return _VALUES[kind]
        return _VALUES[kind] - number

"""Shared by the two code generators: lines, names of constants, and batches of fixed fields."""

import struct
from functools import cache
from typing import Any

from sparkraft.protocol.declare import Field, Message


@cache
def big_endian(letters: str) -> struct.Struct:
    """The one struct of this format; the declarations know some hundreds."""
    return struct.Struct(">" + letters)


class Malformed(Exception):  # noqa: N818 (raised by compiled code for want of words)
    """Compiled code found invalid bytes or values; `reference_codec` finds out which."""


class Source:
    """A function being written.

    Args:
        head: its `def` line.
    """

    def __init__(self, head: str) -> None:
        """Begin with `head`."""
        self.lines = [head]
        self.depth = 1
        self.scope: dict[str, Any] = {"Malformed": Malformed}
        self._names = 0

    def emit(self, *lines: str) -> None:
        """Add lines at the current depth."""
        self.lines += ["    " * self.depth + line for line in lines]

    def name(self, prefix: str) -> str:
        """A unique local name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, value: Any, name: str) -> str:
        """Make `value` known to the function under `name`; gives the name."""
        known = self.scope.setdefault(name, value)
        if known is value or (type(known) is type(value) and known == value):
            return name
        return self.constant(value, name + "_")

    def pack(self, letters: str) -> str:
        """The name under which the function knows `Struct(letters).pack`."""
        return self._method("P_", letters, "pack")

    def unpack(self, letters: str) -> str:
        """The name under which the function knows `Struct(letters).unpack_from`."""
        return self._method("U_", letters, "unpack_from")

    def _method(self, prefix: str, letters: str, method: str) -> str:
        name = prefix + letters.replace("?", "t")
        if name not in self.scope:
            self.scope[name] = getattr(big_endian(letters), method)
        return name

    def function(self, name: str) -> Any:
        """Compile what was written and give the function called `name`."""
        exec("\n".join(self.lines), self.scope)
        return self.scope[name]


def literal(source: Source, field: Field) -> str:
    """An expression for the default of a field that is neither array nor struct."""
    if field.kind == "uuid":
        return source.constant(field.default, "ZERO")
    return repr(field.default)


def present(cls: type[Message], version: int) -> list[Field]:
    """The fields in the order of the wire, without the tagged ones."""
    return [f for f in cls.SCHEMA.fields if f.tag < 0 and version in f.versions]


def tagged(cls: type[Message], version: int) -> list[Field]:
    """The tagged fields by rising tag."""
    found = [f for f in cls.SCHEMA.fields if f.tag >= 0 and version in f.versions]
    return sorted(found, key=lambda field: field.tag)


def absent(cls: type[Message], version: int) -> list[Field]:
    """The fields that this version lacks."""
    return [f for f in cls.SCHEMA.fields if version not in f.versions]

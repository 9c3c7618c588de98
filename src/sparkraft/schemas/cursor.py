"""A position in the bytes of one value, and the bounds of what is decoded from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkraft.schemas.errors import UndecodableError

if TYPE_CHECKING:
    import struct

VALUES_MAX: Final = 100_000
"""Numbers, texts, arrays and so on in one value, those without bytes included: 0.1 s."""

DEPTH_MAX: Final = 64
"""Values in values: each is a recursive call."""

_MORE: Final = 0x80
_VARINT_BITS_MAX: Final = 70


class Bounds:
    """The rest of the bounds of one value; several cursors share it."""

    __slots__ = ("depth", "values")

    def __init__(self) -> None:
        self.values = VALUES_MAX
        self.depth = 0

    def spend(self, count: int = 1) -> None:
        """Count values."""
        self.values -= count
        if self.values < 0:
            raise UndecodableError(f"more than {VALUES_MAX:,} values")

    def enter(self) -> None:
        """Begin a value within a value."""
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise UndecodableError(f"more than {DEPTH_MAX} nested values")

    def leave(self) -> None:
        """End it."""
        self.depth -= 1


class Cursor:
    """Reads `data` from `at` to `end`."""

    __slots__ = ("at", "bounds", "data", "end")

    def __init__(
        self, data: bytes, at: int = 0, end: int | None = None, *, bounds: Bounds | None = None
    ) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end
        self.bounds = Bounds() if bounds is None else bounds

    @property
    def left(self) -> int:
        """Bytes up to the end."""
        return self.end - self.at

    def take(self, size: int) -> bytes:
        """The next bytes."""
        if not 0 <= size <= self.end - self.at:
            raise UndecodableError(f"{size} bytes are expected, and {self.end - self.at} follow")
        start = self.at
        self.at = start + size
        return self.data[start : self.at]

    def byte(self) -> int:
        """The next byte."""
        if self.at >= self.end:
            raise UndecodableError("the value ends too early")
        found = self.data[self.at]
        self.at += 1
        return found

    def number(self, form: struct.Struct) -> Any:
        """A number of a fixed size."""
        return form.unpack(self.take(form.size))[0]

    def varint(self) -> int:
        """A number of seven bits a byte, the lowest first; at most 64 bits of it count."""
        found = shift = 0
        while True:
            byte = self.byte()
            found |= (byte & 0x7F) << shift
            if byte < _MORE:
                return found & 0xFFFF_FFFF_FFFF_FFFF
            shift += 7
            if shift >= _VARINT_BITS_MAX:
                raise UndecodableError("a number has more than 10 bytes")

    def text(self, size: int) -> str:
        """UTF-8 of a number of bytes."""
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise UndecodableError("a text is not UTF-8") from None

    def finish(self) -> None:
        """Check that the value ends here."""
        if self.left:
            raise UndecodableError(f"{self.left} bytes follow the value")


def zigzag(number: int) -> int:
    """The signed number that an unsigned one encodes."""
    return (number >> 1) ^ -(number & 1)

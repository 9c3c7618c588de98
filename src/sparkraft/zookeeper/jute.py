"""Jute, ZooKeeper's serialization: big-endian numbers, strings and vectors with int32 lengths.

bool 1 byte    int 4    long 8    buffer int32 length (-1: null), bytes
string as buffer, UTF-8           vector int32 count (-1: null), elements
"""

import struct
from typing import Any

from sparkraft.base.errors import DecodeError

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_LENGTH_MAX = 2**31 - 1


def encode_bool(value: bool) -> bytes:  # noqa: FBT001 (the value is all there is)
    return b"\x01" if value else b"\x00"


def encode_int(value: int) -> bytes:
    return _INT.pack(value)


def encode_long(value: int) -> bytes:
    return _LONG.pack(value)


def encode_buffer(value: bytes | None) -> bytes:
    return _INT.pack(-1) if value is None else _INT.pack(len(value)) + value


def encode_string(value: str) -> bytes:
    return encode_buffer(value.encode())


def encode_strings(values: list[str]) -> bytes:
    return _INT.pack(len(values)) + b"".join(map(encode_string, values))


class Reader:
    """Reads values one after another.

    Every read raises `DecodeError` if the bytes end too early or a length is impossible.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        """Offset of the next value."""

    @property
    def has_more(self) -> bool:
        """Whether bytes are left."""
        return self.at < len(self._data)

    def _take(self, size: int, what: str) -> bytes:
        end = self.at + size
        if end > len(self._data):
            left = len(self._data) - self.at
            raise DecodeError(f"{what} takes {size} bytes, {left} are left", at=self.at)
        taken = self._data[self.at : end]
        self.at = end
        return taken

    def read_bool(self) -> bool:
        return self._take(1, "bool") != b"\x00"

    def read_int(self) -> int:
        value: int = _INT.unpack(self._take(4, "int"))[0]
        return value

    def read_long(self) -> int:
        value: int = _LONG.unpack(self._take(8, "long"))[0]
        return value

    def read_struct(self, form: struct.Struct, what: str) -> tuple[Any, ...]:
        """Return neighboring values of fixed width; `form` is big-endian."""
        return form.unpack(self._take(form.size, what))

    def read_buffer(self) -> bytes | None:
        size = self.read_int()
        if size < -1:
            raise DecodeError(f"buffer of negative length {size}", at=self.at)
        return None if size == -1 else self._take(size, "buffer")

    def read_string(self) -> str:
        """Return a string; null is read as empty, since no path or scheme is null."""
        raw = self.read_buffer() or b""
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise DecodeError("string that is not UTF-8", at=self.at) from error

    def read_strings(self) -> list[str]:
        return [self.read_string() for _ in range(self.read_count())]

    def read_count(self) -> int:
        """Return the number of elements of a vector; null is read as empty."""
        count = self.read_int()
        if count < -1 or count > len(self._data):
            raise DecodeError(f"vector of {count} elements is too long", at=self.at)
        return max(count, 0)

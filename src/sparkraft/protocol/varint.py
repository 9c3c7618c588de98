"""Variable-length integers: 7 bits a byte, lowest first, the high bit is set if more follow.

Lengths and tags are unsigned of at most 32 bits (5 bytes); records use zigzag of 32 and 64 bits
(5 and 10 bytes), in which 0, -1, 1, -2 are written 0, 1, 2, 3.

Invariant: no reader looks at more than 5 or 10 bytes, whatever they say.
"""

from typing import Final

from sparkraft.base.errors import DecodeError

Buffer = bytes | bytearray | memoryview

_MAX_BYTES_32: Final = 5
_MAX_BYTES_64: Final = 10
_TABLE_SIZE: Final = 1 << 11
"""Lengths below this are encoded by a look-up; longer ones are rare enough to be computed."""


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 (7 bits a byte)
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT: Final = [_encode(value) for value in range(128)]
_TABLE: list[bytes] = []


def encode_unsigned(value: int) -> bytes:
    """Write 0 ≤ `value` < 2**64."""
    return _SHORT[value] if 0 <= value < 128 else _encode_long(value)  # noqa: PLR2004


def _encode_long(value: int) -> bytes:
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is not an unsigned 64-bit number")
    if value >= _TABLE_SIZE:
        return _encode(value)
    if not _TABLE:
        _TABLE.extend(_encode(number) for number in range(_TABLE_SIZE))
    return _TABLE[value]


def decode_unsigned(data: Buffer, at: int) -> tuple[int, int]:
    """Read an unsigned 32-bit number; gives it and the place after it."""
    pair = data[at : at + 2]
    if len(pair) == 2 and pair[1] < 0x80 <= pair[0]:  # noqa: PLR2004 (most have two bytes)
        return pair[0] & 0x7F | pair[1] << 7, at + 2
    return _decode(data, at, _MAX_BYTES_32, 32)


def _decode(data: Buffer, at: int, bytes_max: int, bits_max: int) -> tuple[int, int]:
    value = 0
    try:
        for number in range(bytes_max):
            byte = data[at + number]
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:  # noqa: PLR2004 (7 bits a byte)
                if value >> bits_max:
                    raise DecodeError(f"a varint of more than {bits_max} bits", at=at)
                return value, at + number + 1
    except IndexError:
        raise DecodeError("the bytes end inside a varint", at=at) from None
    raise DecodeError(f"a varint of more than {bytes_max} bytes", at=at)


def encode_zigzag(value: int) -> bytes:
    """Write a signed number of at most 64 bits."""
    return encode_unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def decode_zigzag32(data: Buffer, at: int) -> tuple[int, int]:
    """Read a signed 32-bit number; gives it and the place after it."""
    value, after = _decode(data, at, _MAX_BYTES_32, 32)
    return value >> 1 ^ -(value & 1), after


def decode_zigzag64(data: Buffer, at: int) -> tuple[int, int]:
    """Read a signed 64-bit number; gives it and the place after it."""
    value, after = _decode(data, at, _MAX_BYTES_64, 64)
    return value >> 1 ^ -(value & 1), after


def size_of_unsigned(value: int) -> int:
    """How many bytes `encode_unsigned(value)` has."""
    return max(1, (value.bit_length() + 6) // 7)

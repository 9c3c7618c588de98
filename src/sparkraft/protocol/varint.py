"""Unsigned varints: 7 bits a byte, lowest first, the high bit is set if more follow.

They are lengths and tags of at most 32 bits (5 bytes). The zigzag varints of records are read and
written by `records.record`.

Invariant: no reader looks at more than 5 bytes, whatever they contain.
"""

from typing import Final

from sparkraft.base.errors import DecodeError

Buffer = bytes | bytearray | memoryview

_BYTES_MAX: Final = 5
_BITS_MAX: Final = 32
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
    return _decode(data, at)


def _decode(data: Buffer, at: int) -> tuple[int, int]:
    value = 0
    try:
        for number in range(_BYTES_MAX):
            byte = data[at + number]
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:  # noqa: PLR2004 (7 bits a byte)
                if value >> _BITS_MAX:
                    raise DecodeError(f"a varint of more than {_BITS_MAX} bits", at=at)
                return value, at + number + 1
    except IndexError:
        raise DecodeError("the bytes end inside a varint", at=at) from None
    raise DecodeError(f"a varint of more than {_BYTES_MAX} bytes", at=at)

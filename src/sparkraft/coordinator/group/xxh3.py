"""XXH3-64 with seed 0, the hash of subscribed topics in group records.

Specification: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. About 70 ns a byte.
"""

import struct

from sparkraft.base.steps import complete
from sparkraft.coordinator.steps import Steps

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8"
    "fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb17"
    "0ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_LANES = 8
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // 8
_SHORT_MAX, _MEDIUM_MAX, _MID_MAX = 16, 128, 240
_MID_ROUNDS = 8
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_STRIPE_WORDS = struct.Struct("<8Q")


def xxh3_64(data: bytes) -> int:
    """The unsigned 64-bit hash of `data`."""
    size = len(data)
    if size <= _SHORT_MAX:
        return _hash_up_to_16(data)
    if size <= _MEDIUM_MAX:
        return _hash_up_to_128(data)
    if size <= _MID_MAX:
        return _hash_up_to_240(data)
    return complete(_hash_long(data))


def xxh3_64_in_steps(data: bytes) -> Steps[int]:
    """The same; a unit is a stripe of 64 bytes."""
    if len(data) <= _MID_MAX:
        return xxh3_64(data)
    return (yield from _hash_long(data))


def _secret(at: int) -> int:
    return int(_U64.unpack_from(_SECRET, at)[0])


def _word(data: bytes, at: int) -> int:
    return int(_U64.unpack_from(data, at)[0])


def _fold(left: int, right: int) -> int:
    """The 128-bit product, folded to 64 bits."""
    product = left * right
    return (product & _M64) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _MX1 & _M64
    return value ^ value >> 32


def _xxh64_avalanche(value: int) -> int:
    value ^= value >> 33
    value = value * _P64_2 & _M64
    value ^= value >> 29
    value = value * _P64_3 & _M64
    return value ^ value >> 32


def _swap64(value: int) -> int:
    return int.from_bytes(value.to_bytes(8, "little"), "big")


def _hash_up_to_16(data: bytes) -> int:
    size = len(data)
    if size > 8:  # noqa: PLR2004 (the sizes of the specification)
        low = _word(data, 0) ^ _secret(24) ^ _secret(32)
        high = _word(data, size - 8) ^ _secret(40) ^ _secret(48)
        return _avalanche((size + _swap64(low) + high + _fold(low, high)) & _M64)
    if size >= 4:  # noqa: PLR2004
        first, last = _U32.unpack_from(data, 0)[0], _U32.unpack_from(data, size - 4)[0]
        return _rrmxmx((last + (first << 32)) ^ _secret(8) ^ _secret(16), size)
    if size:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        flip = _U32.unpack_from(_SECRET, 0)[0] ^ _U32.unpack_from(_SECRET, 4)[0]
        return _xxh64_avalanche(combined ^ flip)
    return _xxh64_avalanche(_secret(56) ^ _secret(64))


def _rrmxmx(value: int, size: int) -> int:
    value ^= (value << 49 | value >> 15) & _M64 ^ (value << 24 | value >> 40) & _M64
    value = value * _MX2 & _M64
    value ^= (value >> 35) + size & _M64
    value = value * _MX2 & _M64
    return value ^ value >> 28


def _mix16(data: bytes, at: int, secret_at: int) -> int:
    return _fold(_word(data, at) ^ _secret(secret_at), _word(data, at + 8) ^ _secret(secret_at + 8))


def _hash_up_to_128(data: bytes) -> int:
    size = len(data)
    value = size * _P64_1
    for at in reversed(range((size - 1) // 32 + 1)):
        value += _mix16(data, 16 * at, 32 * at)
        value += _mix16(data, size - 16 * (at + 1), 32 * at + 16)
    return _avalanche(value & _M64)


def _hash_up_to_240(data: bytes) -> int:
    size = len(data)
    value = size * _P64_1
    for at in range(_MID_ROUNDS):
        value += _mix16(data, 16 * at, 16 * at)
    value = _avalanche(value & _M64)
    for at in range(_MID_ROUNDS, size // 16):
        value += _mix16(data, 16 * at, 16 * (at - _MID_ROUNDS) + 3)
    value += _mix16(data, size - 16, 136 - 17)
    return _avalanche(value & _M64)


def _hash_long(data: bytes) -> Steps[int]:
    size = len(data)
    lanes = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    secrets = [_STRIPE_WORDS.unpack_from(_SECRET, 8 * at) for at in range(_STRIPES_PER_BLOCK)]
    scramble = _STRIPE_WORDS.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
    for stripe in range((size - 1) // _STRIPE):
        at = stripe % _STRIPES_PER_BLOCK
        if stripe and not at:
            yield _STRIPES_PER_BLOCK
            _scramble(lanes, scramble)
        _accumulate(lanes, _STRIPE_WORDS.unpack_from(data, stripe * _STRIPE), secrets[at])
    # A scramble follows each full block, also the last one.
    if (size - 1) // _STRIPE % _STRIPES_PER_BLOCK == 0:
        _scramble(lanes, scramble)
    last_secret = _STRIPE_WORDS.unpack_from(_SECRET, len(_SECRET) - _STRIPE - 7)
    _accumulate(lanes, _STRIPE_WORDS.unpack_from(data, size - _STRIPE), last_secret)
    value = size * _P64_1
    for at in range(0, _LANES, 2):
        value += _fold(lanes[at] ^ _secret(11 + 8 * at), lanes[at + 1] ^ _secret(19 + 8 * at))
    return _avalanche(value & _M64)


def _accumulate(lanes: list[int], words: tuple[int, ...], secret: tuple[int, ...]) -> None:
    for at in range(_LANES):
        word = words[at]
        keyed = word ^ secret[at]
        lanes[at ^ 1] = lanes[at ^ 1] + word & _M64
        lanes[at] = lanes[at] + (keyed & _M32) * (keyed >> 32) & _M64


def _scramble(lanes: list[int], secret: tuple[int, ...]) -> None:
    for at in range(_LANES):
        lane = lanes[at]
        lanes[at] = (lane ^ lane >> 47 ^ secret[at]) * _P32_1 & _M64

"""The records of a Produce request whose other bytes are known: found only if all bytes agree."""

import pytest

from sparkraft.protocol.varint import encode_unsigned
from sparkraft.server.api.k00_produce import _records_of

TAIL = b"\0\0\0"


def found(body, at=0):
    return _records_of(memoryview(body), at, flexible=True)


@pytest.mark.parametrize("size", [61, 100, 127, 128, 16_382, 16_384, 3 << 20])
def test_records_of_every_length_are_found(size):
    records = bytes(range(256)) * (size // 256 + 1)
    body = b"head" + encode_unsigned(size + 1) + records[:size] + TAIL
    assert found(body, 4) == records[:size]


@pytest.mark.parametrize("size", [61, 200])
def test_bodies_at_odds_with_their_length_are_left_to_the_full_decoder(size):
    body = encode_unsigned(size + 1) + bytes([1]) * size + TAIL
    assert found(body) is not None
    for end in range(len(body)):
        assert found(body[:end]) is None, end
    assert found(body + b"\0") is None
    assert found(body[:-1] + b"\1") is None
    assert found(encode_unsigned(size) + body[1:]) is None
    assert found(b"\xff" * len(body)) is None

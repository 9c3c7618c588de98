"""Workers without the codecs' packages decompress the same with pyarrow."""

import random
import sys

import pytest

from sparkraft.base.errors import DecodeError
from sparkraft.records.compression import Codec, compress, decompress

PLAIN = random.Random(1).randbytes(70_000) + b"x" * 3_000_000
CODECS = (Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


@pytest.fixture
def packed():
    return {codec: compress(codec, PLAIN) for codec in CODECS}


@pytest.fixture
def bare(packed, monkeypatch):
    """The compressed data, in a process whose codec packages cannot be imported."""
    for package in ("cramjam", "lz4", "lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, package, None)
    return packed


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_bytes(bare, codec):
    assert decompress(codec, bare[codec]) == PLAIN
    assert decompress(codec, memoryview(bare[codec])) == PLAIN
    with pytest.raises(ModuleNotFoundError):
        compress(codec, PLAIN)


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_is_allowed_and_broken_data_are_refused(bare, codec):
    with pytest.raises(DecodeError, match="the batch inflates to more than"):
        decompress(codec, bare[codec], 100_000)
    with pytest.raises(DecodeError):
        decompress(codec, bare[codec][: len(bare[codec]) // 2])


def test_a_raw_snappy_block(bare):
    block = bytes(bare[Codec.SNAPPY][20:])
    size = int.from_bytes(bare[Codec.SNAPPY][16:20], "big")
    assert decompress(Codec.SNAPPY, block[:size]) == PLAIN[: 32 * 1024]
    for broken in (b"\xff" * 10, b""):
        with pytest.raises(DecodeError):
            decompress(Codec.SNAPPY, broken)

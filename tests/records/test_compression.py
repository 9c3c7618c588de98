"""Gzip by zlib-ng: its levels keep what zlib's promise, and zlib reads and replaces it."""

import gzip
import json
import random
import sys
import zlib

import pytest

from sparkraft.base.errors import DecodeError
from sparkraft.records.compression import Codec, compress, decompress

LEVELS = (None, *range(1, 10))


def words() -> bytes:
    dice = random.Random(1)
    known = [dice.randbytes(4).hex()[: dice.randint(3, 8)] for _ in range(2_000)]
    return " ".join(dice.choices(known, k=12_000)).encode()


def lines() -> bytes:
    dice = random.Random(2)
    events = (
        {"id": number, "user": f"user-{dice.randint(1, 900)}", "amount": dice.random()}
        for number in range(1_000)
    )
    return "\n".join(map(json.dumps, events)).encode()


PLAIN = {"words": words(), "lines": lines(), "nothing": b""}


@pytest.fixture
def bare(monkeypatch):
    """A process without the package zlib-ng."""
    for module in ("zlib_ng", "zlib_ng.zlib_ng"):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", PLAIN)
def test_zlib_reads_each_level_and_would_not_have_made_it_smaller(what, level):
    plain = PLAIN[what]
    packed = compress(Codec.GZIP, plain, level)
    assert gzip.decompress(packed) == plain
    by_zlib = zlib.compress(plain, -1 if level is None else level, 31)
    assert len(packed) <= len(by_zlib) * 1.05


def test_without_the_package_zlib_does_the_same(bare):
    plain = PLAIN["words"]
    for level in LEVELS:
        packed = compress(Codec.GZIP, plain, level)
        assert packed == zlib.compress(plain, -1 if level is None else level, 31)
        assert decompress(Codec.GZIP, packed) == plain
    with pytest.raises(DecodeError, match="inflates to more than"):
        decompress(Codec.GZIP, packed, len(plain) - 1)
    with pytest.raises(DecodeError):
        decompress(Codec.GZIP, packed[:-9])


def test_the_package_is_what_compresses():
    plain = PLAIN["words"]
    assert compress(Codec.GZIP, plain) != zlib.compress(plain, -1, 31)


def test_members_follow_each_other():
    plain = PLAIN["lines"]
    packed = compress(Codec.GZIP, plain) + gzip.compress(plain, 1) + compress(Codec.GZIP, b"end", 9)
    assert decompress(Codec.GZIP, packed) == plain * 2 + b"end"

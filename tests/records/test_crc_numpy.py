"""The CRC of Spark's workers without the package crc32c equals the package's."""

import random

import pytest

from sparkraft.records.crc import crc32c
from sparkraft.records.crc_numpy import crc32c as slow


def test_the_check_value_of_crc_32c():
    # From RFC 3720, B.4, and the catalogue of parametrized CRC algorithms.
    assert slow(b"123456789") == 0xE3069283
    assert slow(bytes(32)) == 0x8A9136AA


@pytest.mark.parametrize("size", [0, 1, 7, 255, 256, 257, 511, 512, 767, 768, 1024, 100_003])
def test_it_equals_the_package_s(size):
    data = random.Random(size).randbytes(size)
    assert slow(data) == crc32c(data)
    assert slow(memoryview(data)[1:], 12345) == crc32c(data[1:], 12345)

"""The partitioner agrees with Java's and kafka-python's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from sparkraft.client.partitioner import StickyChoice, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_what_java_gives(key: bytes, java: int):
    assert murmur2(key) == java % (1 << 32)


@given(st.binary(max_size=200))
def test_murmur2_gives_what_kafka_python_gives(key: bytes):
    assert murmur2(key) == kafka_python_murmur2(key) % (1 << 32)


@given(st.binary(max_size=50), st.integers(1, 1000))
def test_a_key_always_finds_the_same_existing_partition(key: bytes, count: int):
    partition = partition_of_key(key, count)
    assert 0 <= partition < count
    assert partition == partition_of_key(key, count)


class Dice:
    def __init__(self, *throws: int) -> None:
        self.throws = list(throws)

    def random_bytes(self, count: int) -> bytes:
        raise NotImplementedError

    def below(self, bound: int) -> int:
        return self.throws.pop(0) % bound


def test_records_without_a_key_stay_together_until_a_batch_is_full():
    choice = StickyChoice(Dice(1, 0), batch_bytes=100)
    assert [choice.choose("t", [0, 1, 2], 60) for _ in range(3)] == [1, 1, 0]


def test_a_partition_that_lost_its_leader_is_left():
    choice = StickyChoice(Dice(1, 1), batch_bytes=100)
    assert choice.choose("t", [0, 1, 2], 10) == 1
    assert choice.choose("t", [0, 2], 10) == 2

"""Keys are found in the partition that Java's `String.hashCode` gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.java_hash import java_string_hash, partition_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("The quick brown fox jumps over the lazy dog", -609428141),
        ("polygenelubricants", -(1 << 31)),
        ("\u00e9", 233),
        ("\U0001f600", 1772899),
    ],
)
def test_the_hash_is_that_of_java(text: str, value: int) -> None:
    assert java_string_hash(text) == value


@given(st.text(st.characters(), max_size=20).map(lambda text: text * 40))
def test_texts_of_any_length_are_hashed_unit_by_unit(text: str) -> None:
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(encoded), 2):
        value = 31 * value + int.from_bytes(encoded[at : at + 2], "big")
    assert java_string_hash(text) % (1 << 32) == value % (1 << 32)


def test_the_smallest_hash_is_in_the_first_partition() -> None:
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("hello", 50) == 22

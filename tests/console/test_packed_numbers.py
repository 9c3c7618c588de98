"""A compressed sequence of numbers behaves as a list of them."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.console import packed_numbers
from sparkraft.console.packed_numbers import PackedNumbers


@given(st.lists(st.integers(-(2**62), 2**62 - 1), max_size=40), st.integers(1, 8))
def test_it_has_the_numbers_in_their_order(given_numbers, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_numbers, "BLOCK", block)
        numbers = sorted(given_numbers)
        packed = PackedNumbers()
        for count, number in enumerate(numbers, 1):
            packed.append(number)
            assert (len(packed), packed[-1], packed[0]) == (count, number, numbers[0])
        assert list(packed) == numbers
        assert [packed[at] for at in range(-len(numbers), len(numbers))] == numbers * 2
        for number in numbers:
            for wanted in (number - 1, number, number + 1):
                assert packed.last_up_to(wanted) == bisect_right(numbers, wanted) - 1
        for at in (len(numbers), -len(numbers) - 1):
            with pytest.raises(IndexError):
                packed[at]


def test_a_million_offsets_and_times_are_small():
    packed = PackedNumbers()
    for number in range(1_000_000):
        packed.append(1_700_000_000_000 + number // 4 * 37)
    assert sum(map(len, packed._blocks)) < 1_000_000
    assert packed.last_up_to(1_700_000_000_000 + 37 * 1000) == 4003

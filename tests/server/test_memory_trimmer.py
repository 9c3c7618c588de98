"""Freed memory is returned to the system, although malloc would keep it."""

import asyncio

import pytest

from sparkraft.server import limits
from sparkraft.server.limits import TRIM_BYTES_MIN, MemoryTrimmer


def test_memory_is_trimmed_once_much_more_is_free_than_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = [0]
    monkeypatch.setattr(MemoryTrimmer, "free_bytes", property(lambda _: free[0]))
    monkeypatch.setattr(limits, "TRIM_CHECK_SECONDS", 0.001)

    async def test() -> list[int]:
        trimmer, trims = MemoryTrimmer(), []
        if trimmer._info is None:
            pytest.skip("not glibc 2.33 or later")
        trimmer.start()
        for free[0] in (TRIM_BYTES_MIN - 1, TRIM_BYTES_MIN, TRIM_BYTES_MIN, 1, TRIM_BYTES_MIN + 1):
            await asyncio.sleep(0.02)
            trims.append(trimmer.trims)
        return trims

    assert asyncio.run(test()) == [0, 1, 1, 1, 2]


def test_malloc_tells_how_much_of_its_memory_is_free() -> None:
    trimmer = MemoryTrimmer()
    if trimmer._info is None:
        pytest.skip("not glibc 2.33 or later")
    assert 0 < trimmer.free_bytes < 1 << 40

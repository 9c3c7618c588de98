"""Which bytes of a file are in the page cache, and how they get there."""

import os
import time

import pytest

from sparkraft.storage import mapped
from sparkraft.storage.disk import USELESS_WARMS_MAX, FilePart, OsDisk
from sparkraft.storage.page_cache import PageCache

SIZE = 6 << 20
KINDS = {
    "both": {},
    "cachestat": {"probes": False},
    "preadv2": {"counts": False},
}


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "00000000000000000000.log"
    made.write_bytes(os.urandom(SIZE))
    return str(made)


def drop(path: str) -> None:
    """Take a file out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        for _ in range(100):  # pages that another processor has just added stay for a moment
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if not PageCache(probes=False).holds(fd, 1, 0):
                return
            time.sleep(0.01)
        pytest.skip("this file system keeps its files in memory")
    finally:
        os.close(fd)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_dropped_is_not_held(path, kind):
    cache = PageCache(**KINDS[kind])
    with open(path, "rb") as file:
        fd = file.fileno()
        assert cache.holds(fd, SIZE, 0)
        drop(path)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
        assert len(os.pread(fd, 1 << 20, 0)) == 1 << 20
        assert cache.holds(fd, 1 << 20, 0)
        assert not cache.holds(fd, 1 << 20, (1 << 20) + 100)
        assert not cache.holds(fd, SIZE, 0)
        assert cache.holds(fd, 0, 1 << 20)


def test_without_either_question_everything_counts_as_held(path):
    drop(path)
    with open(path, "rb") as file:
        assert PageCache(counts=False, probes=False).holds(file.fileno(), SIZE, 0)


def test_a_system_call_that_is_refused_is_not_tried_again(path):
    cache = PageCache()
    asked = []
    cache._syscall = lambda *_: asked.append(1) or -1
    with open(path, "rb") as file:
        assert cache.holds(file.fileno(), SIZE, 0)
        drop(path)
        assert not cache.holds(file.fileno(), SIZE, 0), "the probes decide"
    assert asked == [1]


def test_a_warmed_part_is_read_without_waiting(path):
    disk = OsDisk()
    drop(path)
    part = disk.cold_part(path, 100_000, 50)
    assert part == FilePart(path, 50, 100_000)
    disk.warm(part)
    assert disk.cold_part(path, 100_000, 50) is None
    assert disk.cold_part(path, 100_000, 4 << 20) is not None
    disk.close()


def test_the_whole_windows_of_a_view_are_warmed(path):
    disk = OsDisk()
    drop(path)
    window = mapped.WINDOW_BYTES
    part = disk.cold_part(path, 1 << 20, window - 100_000, to_send=True)
    assert part == FilePart(path, 0, SIZE), "to the end of the file, which is in the second window"
    disk.warm(part)
    assert disk.cold_part(path, 1 << 20, window - 100_000, to_send=True) is None
    disk.close()


def test_the_last_window_of_a_growing_file_is_not_mapped_and_not_warmed(path):
    disk = OsDisk()
    drop(path)
    at = mapped.WINDOW_BYTES + 4096
    part = disk.cold_part(path, 1 << 20, at, to_send=True, grows=True)
    assert part == FilePart(path, mapped.WINDOW_BYTES, at + (1 << 20) - mapped.WINDOW_BYTES)
    disk.close()


def test_a_file_that_is_gone_is_the_readers_error(path):
    disk = OsDisk()
    disk.warm(FilePart(path + ".deleted", 0, 10))
    with pytest.raises(FileNotFoundError):
        disk.cold_part(path + ".deleted", 10, 0)


def test_a_file_system_without_a_page_cache_is_read_in_place(path, monkeypatch):
    disk = OsDisk()
    monkeypatch.setattr(PageCache, "holds", lambda *_: False)
    for _ in range(USELESS_WARMS_MAX):
        part = disk.cold_part(path, 100, 0)
        assert part is not None
        disk.warm(part)
    assert disk.cold_part(path, 100, 0) is None
    disk.close()

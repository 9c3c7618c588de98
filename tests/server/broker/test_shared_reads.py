"""One read serves every consumer that wants the same bytes."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.server.broker import shared_reads
from sparkraft.server.broker.shared_reads import SharedReads
from sparkraft.storage.log_view import ReadResult


class FakeLog:
    """100 bytes an offset; counts what is read."""

    def __init__(self) -> None:
        self.truncations = 0
        self.log_start_offset = 0
        self.fault: object = None
        self.reads: list[int] = []

    def read(self, offset: int, *, max_bytes: int, up_to: int, **_: Any) -> ReadResult:
        if offset < self.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.reads.append(offset)
        size = min(max_bytes, 100 * (up_to - offset))
        return ReadResult([bytes(size)] if size else [], size)


class FakeWheel:
    def __init__(self) -> None:
        self.callbacks: list[Any] = []

    def add(self, _wait_ms: int, callback: Any) -> Any:
        self.callbacks.append(callback)
        return SimpleNamespace(cancel=lambda: None)


@pytest.fixture
def wheel():
    return FakeWheel()


@pytest.fixture
def reads(wheel):
    return SharedReads(wheel)


def read(reads: SharedReads, log: Any, offset: int = 0, *, max_bytes: int = 1_000, up_to: int = 5):
    return reads.read(
        log, offset, max_bytes=max_bytes, up_to=up_to, min_one_batch=True, to_send=True
    )


def test_the_same_bytes_are_read_once_and_shared(reads):
    log = FakeLog()
    first = read(reads, log)
    assert all(read(reads, log).pieces is first.pieces for _ in range(7))
    assert read(reads, log, max_bytes=500).pieces is first.pieces
    assert log.reads == [0]


def test_other_bytes_are_read(reads):
    log = FakeLog()
    read(reads, log)
    read(reads, log, 1)
    read(reads, log, up_to=6)
    read(reads, FakeLog())
    assert log.reads == [0, 1, 0]


def test_a_read_that_was_cut_off_serves_nobody_else(reads):
    log = FakeLog()
    assert read(reads, log, max_bytes=150).size == 150
    assert read(reads, log).size == 500
    assert read(reads, log, max_bytes=150).size == 150
    assert len(log.reads) == 3


def test_a_truncation_a_moved_start_and_a_fault_end_it(reads):
    log = FakeLog()
    read(reads, log)
    log.truncations += 1
    read(reads, log)
    assert len(log.reads) == 2
    log.log_start_offset = 1
    with pytest.raises(KafkaError):
        read(reads, log)
    log.log_start_offset = 0
    log.fault = OSError()
    read(reads, log)
    assert len(log.reads) == 3


def test_memory_is_bounded_and_returned(reads, wheel, monkeypatch):
    monkeypatch.setattr(shared_reads, "BYTES_MAX", 1_000)
    log = FakeLog()
    for offset in range(5):
        read(reads, log, offset, up_to=offset + 4)
    assert reads.bytes <= 1_000
    assert len(wheel.callbacks) == 1
    wheel.callbacks[0]()
    assert reads.bytes == 0
    read(reads, log, 4, up_to=8)
    assert log.reads[-1] == 4
    assert len(wheel.callbacks) == 2

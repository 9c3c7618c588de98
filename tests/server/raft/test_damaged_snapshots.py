"""A leader whose snapshot comes damaged, or in the wrong pieces: the node lives and asks again."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from sparkraft.base.ids import LeaderEpoch, Millis, Offset
from sparkraft.raft.events import FetchSnapshotResponse
from sparkraft.records.batch import iter_batches
from sparkraft.records.control import ControlType, control_batch
from sparkraft.records.record import decode_records
from sparkraft.storage.snapshot_files import snapshot_batches
from tests.server.raft.test_driver import Member, run, topics, until
from tests.support.ports import lasting_ports

CHUNK_BYTES = 700
"""A tenth of the snapshot: there is a first, a last and a middle chunk."""

NAMES = [f"t{number}" for number in range(200)]

FOOTER_BYTES = len(
    list(
        snapshot_batches(
            [], epoch=LeaderEpoch(1), now=Millis(0), last_contained_log_timestamp=Millis(0)
        )
    )[-1]
)

PATIENT = {
    "controller_quorum_fetch_timeout_ms": 30_000,
    "controller_quorum_request_timeout_ms": 30_000,
}
"""Nobody stands for election, or asks twice, because the machine had other work."""


def flipped(answer: FetchSnapshotResponse) -> FetchSnapshotResponse:
    chunk = bytearray(answer.chunk)
    chunk[len(chunk) // 2] ^= 0x10
    return replace(answer, chunk=bytes(chunk))


def is_first(answer: FetchSnapshotResponse) -> bool:
    return answer.position == 0


def is_middle(answer: FetchSnapshotResponse) -> bool:
    return 0 < answer.position < answer.size - len(answer.chunk)


def is_last(answer: FetchSnapshotResponse) -> bool:
    return answer.position + len(answer.chunk) == answer.size


def of_another(answer: FetchSnapshotResponse) -> FetchSnapshotResponse:
    assert answer.snapshot is not None
    newer = replace(answer.snapshot, offset=Offset(answer.snapshot.offset + 1))
    return replace(answer, snapshot=newer)


def shorter(answer: FetchSnapshotResponse, count: int) -> FetchSnapshotResponse:
    """As if the snapshot ended `count` bytes sooner."""
    assert len(answer.chunk) > count
    return replace(answer, chunk=answer.chunk[:-count], size=answer.size - count)


class Spoil(NamedTuple):
    """Which chunk is spoilt, and how."""

    which: Callable[[FetchSnapshotResponse], bool]
    how: Callable[[FetchSnapshotResponse], FetchSnapshotResponse]


DAMAGED = {
    "a byte flipped in the header": Spoil(is_first, flipped),
    "a byte flipped in the middle": Spoil(is_middle, flipped),
    "a byte flipped in the footer": Spoil(is_last, flipped),
    "cut off within the footer": Spoil(is_last, lambda a: shorter(a, 10)),
    "cut off before the footer": Spoil(is_last, lambda a: shorter(a, FOOTER_BYTES)),
    "another footer behind the footer": Spoil(
        is_last,
        lambda a: replace(
            a, chunk=bytes(a.chunk) + bytes(a.chunk[-FOOTER_BYTES:]), size=a.size + FOOTER_BYTES
        ),
    ),
}
"""It shows when the file is whole and its sums are checked."""

OUT_OF_PLACE = {
    "a chunk skipped": Spoil(is_middle, lambda a: replace(a, position=a.position + CHUNK_BYTES)),
    "a chunk once more": Spoil(is_middle, lambda a: replace(a, position=a.position - CHUNK_BYTES)),
    "a chunk before the beginning": Spoil(is_first, lambda a: replace(a, position=-CHUNK_BYTES)),
    "no bytes": Spoil(is_middle, lambda a: replace(a, chunk=b"")),
    "more bytes than there are": Spoil(is_last, lambda a: replace(a, chunk=bytes(a.chunk) + b"\0")),
    "a size below the position": Spoil(is_middle, lambda a: replace(a, size=a.position)),
    "another snapshot's chunk": Spoil(is_middle, of_another),
}
"""It shows at once, and the chunks before are worth nothing."""


def with_unreadable_voters(answer: FetchSnapshotResponse) -> FetchSnapshotResponse:
    """The sums are right; what stands behind the header makes no sense."""
    first = next(header.size_in_bytes for header, _ in iter_batches(answer.chunk))
    header = next(record.value or b"" for record in decode_records(answer.chunk[:first]))
    typed = [(ControlType.SNAPSHOT_HEADER, header), (ControlType.KRAFT_VOTERS, b"\0\0\x7f")]
    epoch = answer.snapshot.epoch if answer.snapshot is not None else LeaderEpoch(0)
    spoilt = control_batch(typed, timestamp=Millis(0), base_offset=0, leader_epoch=epoch)
    longer = len(spoilt) - first
    return replace(answer, chunk=spoilt + answer.chunk[first:], size=answer.size + longer)


class Served:
    """Has a leader serve its snapshot in chunks, and one of them spoilt, once."""

    def __init__(self, leader: Member, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._read = leader.driver.read_snapshot
        leader.driver.read_snapshot = self.read  # type: ignore[method-assign]
        self.begun = 0
        self.to_spoil: list[Spoil] = []

    def spoil(self, spoil: Spoil) -> None:
        """From now on: the first chunk that it is about."""
        self.begun, self.to_spoil = 0, [spoil]

    def read(self, answer: FetchSnapshotResponse) -> FetchSnapshotResponse:
        whole = self._read(replace(answer, max_bytes=self._chunk_bytes))
        self.begun += is_first(whole)
        if not any(spoil.which(whole) for spoil in self.to_spoil):
            return whole
        return self.to_spoil.pop().how(whole)


async def leads_with_a_snapshot(members: list[Member]) -> Member:
    """Whoever of them is elected, with a snapshot of NAMES."""
    for member in members:
        await member.start()
    await until(lambda: any(member.driver.is_leader for member in members))
    leader = next(member for member in members if member.driver.is_leader)
    await leader.add(*NAMES)
    await until(lambda: leader.names.names == NAMES)
    end, epoch = leader.names.next_offset, leader.names.epoch
    assert await leader.driver.create_snapshot(end, epoch, topics(NAMES))
    return leader


def test_a_damaged_snapshot_is_named_and_fetched_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ports = lasting_ports(3)

    async def work() -> None:
        members = [Member(node_id, ports, tmp_path, **PATIENT) for node_id in (1, 2)]
        leader = await leads_with_a_snapshot(members)
        served = Served(leader)
        for what, spoil in (DAMAGED | OUT_OF_PLACE).items():
            caplog.clear()
            fresh = Member(3, ports, tmp_path, **PATIENT)
            served.spoil(spoil)
            await fresh.start()
            await until(lambda: bool(fresh.failures) or fresh.names.names == NAMES)  # noqa: B023
            assert not fresh.failures, what
            assert not served.to_spoil, what
            assert served.begun == 2, what
            assert len(fresh.names.loaded) == 1, what
            said = [line for line in caplog.messages if "is damaged; fetching it again" in line]
            assert len(said) == (what in DAMAGED), (what, said)
            assert not list(fresh.root.rglob("*.part*")), what
            await fresh.stop()
            shutil.rmtree(fresh.root)
        for member in members:
            assert not member.failures
            await member.stop()

    with caplog.at_level(logging.WARNING, "sparkraft.raft"):
        run(work)


def test_a_snapshot_whose_voters_make_no_sense_is_fetched_anew_before_the_log_is_touched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ports = lasting_ports(3)

    async def work() -> None:
        members = [Member(node_id, ports, tmp_path, **PATIENT) for node_id in (1, 2)]
        leader = await leads_with_a_snapshot(members)
        served = Served(leader, chunk_bytes=1 << 20)
        served.spoil(Spoil(is_first, with_unreadable_voters))
        fresh = Member(3, ports, tmp_path, **PATIENT)
        await fresh.start()
        await until(lambda: bool(fresh.failures) or fresh.names.names == NAMES)
        assert not fresh.failures
        assert served.begun == 2
        assert len(fresh.names.loaded) == 1
        assert [line for line in caplog.messages if "is damaged; fetching it again" in line]
        for member in (*members, fresh):
            assert not member.failures
            await member.stop()

    with caplog.at_level(logging.WARNING, "sparkraft.raft"):
        run(work)

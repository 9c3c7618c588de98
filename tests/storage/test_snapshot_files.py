"""Snapshot files and quorum-state: what is written is read back, and damage is named."""

import pytest

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset, Uuid
from sparkraft.records.control import ControlType
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.storage.quorum_state import (
    BadQuorumState,
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from sparkraft.storage.snapshot_files import (
    SnapshotId,
    open_snapshot,
    parse_snapshot_name,
    snapshot_batches,
)

PATH = "/d/snapshot"


def file_with(records: list[bytes], controls: list[tuple[ControlType, bytes]]) -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("/d")
    batches = snapshot_batches(
        records,
        epoch=LeaderEpoch(3),
        now=Millis(2000),
        last_contained_log_timestamp=Millis(1999),
        controls=controls,
    )
    disk.put(PATH, b"".join(batches))
    return disk


def test_a_snapshot_is_read_back() -> None:
    records = [b"r%d" % number for number in range(25_000)]
    disk = file_with(records, [(ControlType.KRAFT_VERSION, b"version")])
    snapshot = open_snapshot(disk, PATH)
    snapshot.verify()
    assert snapshot.content() == (1999, [(ControlType.KRAFT_VERSION, b"version")])
    batches = list(snapshot.records())
    assert [record for batch in batches for record in batch] == records
    assert max(map(len, batches)) <= 10_000


@pytest.mark.parametrize("missing", [1, 75, 100, 200])
def test_a_snapshot_that_is_cut_off_is_refused(missing: int) -> None:
    disk = file_with([b"a", b"b"], [])
    disk.put(PATH, disk.files()[PATH][:-missing])
    with pytest.raises(DecodeError, match=r"snapshot|footer|cut off"):
        open_snapshot(disk, PATH).verify()


def test_every_flipped_byte_behind_an_offset_is_noticed() -> None:
    raw = file_with([b"a", b"b"], []).files()[PATH]
    disk = MemoryDisk()
    disk.mkdir("/d")
    unseen = []
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x55
        disk.put(PATH, bytes(damaged))
        try:
            open_snapshot(disk, PATH).verify()
        except DecodeError:
            continue
        except Exception as error:
            pytest.fail(f"{error!r} for byte {at}")
        unseen.append(at)
    # Base offset and leader epoch stand before the CRC's range, as in every batch.
    starts = [0, 83, 83 + 75] if len(raw) != 83 + 77 + 75 else [0, 83, 160]
    for at in unseen:
        nearest = max(start for start in starts if start <= at)
        assert at - nearest < 16


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000042-0000000007.checkpoint", (42, 7, True)),
        ("00000000000000000042-0000000007.checkpoint.part", (42, 7, False)),
        ("00000000000000000042-0000000007-1234.checkpoint.part", (42, 7, False)),
        ("00000000000000000042-0000000007.checkpoint.deleted", (42, 7, False)),
        ("00000000000000000042.snapshot", None),
        ("42-7.checkpoint", None),
        ("quorum-state", None),
    ],
)
def test_names_of_snapshots(name: str, parsed: tuple[int, int, bool] | None) -> None:
    found = parse_snapshot_name(name)
    if parsed is None:
        assert found is None
        return
    offset, epoch, whole = parsed
    assert found == (SnapshotId(Offset(offset), LeaderEpoch(epoch)), whole)
    if whole:
        assert found[0].file_name == name


KAFKA_V1 = (
    b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,'
    b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
KAFKA_V0 = (
    b'{"clusterId":"","leaderId":-1,"leaderEpoch":5,"votedId":3,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1},{"voterId":3}],"data_version":0}'
)


def test_quorum_state_has_kafkas_bytes() -> None:
    leads = QuorumState(leader_epoch=LeaderEpoch(2), leader_id=BrokerId(1), version=1)
    assert leads.format() == KAFKA_V1
    assert QuorumState.parse(KAFKA_V1) == leads
    voted = QuorumState(
        leader_epoch=LeaderEpoch(5),
        voted_id=BrokerId(3),
        voter_ids=(BrokerId(1), BrokerId(3)),
    )
    assert voted.format() == KAFKA_V0
    assert QuorumState.parse(KAFKA_V0) == voted


def test_quorum_state_remembers_the_voted_directory() -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    directory = Uuid(bytes(range(16)))
    state = QuorumState(
        leader_epoch=LeaderEpoch(9), voted_id=BrokerId(2), voted_directory_id=directory, version=1
    )
    assert read_quorum_state(disk, "/d") is None
    write_quorum_state(disk, "/d", state)
    assert read_quorum_state(disk, "/d") == state


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"leaderId":1}',
        KAFKA_V1.replace(b'"data_version":1', b'"data_version":2'),
        KAFKA_V1.replace(b'"leaderEpoch":2', b'"leaderEpoch":"two"'),
        KAFKA_V1.replace(b"AAAAAAAAAAAAAAAAAAAAAA", b"?"),
        KAFKA_V0.replace(b'{"voterId":1}', b"1"),
    ],
)
def test_a_damaged_quorum_state_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(BadQuorumState, match="quorum-state"):
        QuorumState.parse(data)

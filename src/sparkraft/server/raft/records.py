"""Translates the core's batches, control records and voters to and from bytes on disk."""

from collections.abc import Sequence

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset, Uuid
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.messages.raft_records import (
    Endpoint as EndpointRecord,
)
from sparkraft.protocol.messages.raft_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
    VotersRecordVoter,
)
from sparkraft.raft.events import (
    ControlRecord,
    ElectionState,
    EpochAndOffset,
    KRaftVersionChange,
    LeaderChange,
    LogBatch,
    VotersChange,
)
from sparkraft.raft.log_view import RecoveredLog
from sparkraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from sparkraft.records.batch import BatchHeader, crc_ok, iter_batches
from sparkraft.records.control import ControlType, control_batch
from sparkraft.records.errors import CorruptRecords
from sparkraft.records.record import BatchBuilder
from sparkraft.storage.quorum_state import QuorumState
from sparkraft.storage.raft_log import RaftLog, control_records
from sparkraft.storage.snapshot_files import SnapshotContent, SnapshotId


def directory_or_none(directory_id: bytes) -> Uuid | None:
    """A directory id from the wire; the zero id means none."""
    return Uuid(directory_id) if any(directory_id) else None


def encode_voters(voters: VoterSet) -> bytes:
    """A KRaftVoters record."""
    return encode(
        VotersRecord(
            version=0,
            voters=[
                VotersRecordVoter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id or Uuid.ZERO,
                    endpoints=[
                        EndpointRecord(name=e.listener, host=e.host, port=e.port)
                        for e in voter.endpoints
                    ],
                    k_raft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.min_kraft_version,
                        max_supported_version=voter.max_kraft_version,
                    ),
                )
                for voter in voters.voters
            ],
        ),
        0,
    )


def decode_voters(data: bytes) -> VoterSet:
    """The voters of a KRaftVoters record; `DecodeError` for a duplicate id."""
    record = decode(VotersRecord, 0, data)
    try:
        return VoterSet.of(
            Voter(
                key=ReplicaKey(
                    BrokerId(voter.voter_id), directory_or_none(voter.voter_directory_id)
                ),
                endpoints=tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
                min_kraft_version=voter.k_raft_version_feature.min_supported_version,
                max_kraft_version=voter.k_raft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )
    except ValueError as error:
        raise DecodeError(str(error), path="voters") from error


def encode_kraft_version(level: int) -> bytes:
    """A KRaftVersion record."""
    return encode(KRaftVersionRecord(version=0, k_raft_version=level), 0)


def _encode_leader_change(change: LeaderChange) -> bytes:
    return encode(
        LeaderChangeMessage(
            version=0,
            leader_id=change.leader_id,
            voters=[LeaderChangeMessageVoter(voter_id=voter) for voter in change.voter_ids],
            granting_voters=[
                LeaderChangeMessageVoter(voter_id=voter) for voter in change.granting_voter_ids
            ],
        ),
        0,
    )


def _encode_control(control: ControlRecord) -> tuple[ControlType, bytes]:
    match control:
        case LeaderChange():
            return ControlType.LEADER_CHANGE, _encode_leader_change(control)
        case KRaftVersionChange(kraft_version=level):
            return ControlType.KRAFT_VERSION, encode_kraft_version(level)
        case VotersChange(voters=voters):
            return ControlType.KRAFT_VOTERS, encode_voters(voters)


def snapshot_controls(kraft_version: int, voters: VoterSet) -> list[tuple[ControlType, bytes]]:
    """The control records after a snapshot's header."""
    if kraft_version == 0:
        return []
    return [
        (ControlType.KRAFT_VERSION, encode_kraft_version(kraft_version)),
        (ControlType.KRAFT_VOTERS, encode_voters(voters)),
    ]


def encode_batch(batch: LogBatch, records: BatchBuilder, now: Millis) -> bytes:
    """The bytes of a batch of our own: its control records, or `records`."""
    if batch.controls:
        return control_batch(
            [_encode_control(control) for control in batch.controls if control is not None],
            timestamp=now,
            base_offset=batch.base_offset,
            leader_epoch=batch.epoch,
        )
    records.place(base_offset=batch.base_offset, leader_epoch=batch.epoch)
    return records.build()


def _decode_control(kind: ControlType, value: bytes) -> ControlRecord | None:
    if kind is ControlType.KRAFT_VERSION:
        level = decode(KRaftVersionRecord, 0, value).k_raft_version
        return KRaftVersionChange(kraft_version=level)
    if kind is ControlType.KRAFT_VOTERS:
        return VotersChange(voters=decode_voters(value))
    if kind is ControlType.LEADER_CHANGE:
        return _decode_leader_change(value)
    return None  # Transaction markers: not used here.


def _decode_leader_change(value: bytes) -> LeaderChange | None:
    """None for a later version: only the election journal uses it."""
    version = int.from_bytes(value[:2], "big")
    if version not in LeaderChangeMessage.SCHEMA.versions:
        return None
    message = decode(LeaderChangeMessage, version, value)
    return LeaderChange(
        leader_id=BrokerId(message.leader_id),
        voter_ids=tuple(BrokerId(voter.voter_id) for voter in message.voters),
        granting_voter_ids=tuple(BrokerId(voter.voter_id) for voter in message.granting_voters),
    )


def parse_batches(pieces: Sequence[bytes | memoryview]) -> tuple[LogBatch, ...]:
    """Fetched bytes as batches, up to the first incomplete one; their payload is their bytes.

    Raises:
        CorruptRecords, DecodeError: a CRC is wrong, or a control record is invalid.
    """
    return tuple(_parse(header, view) for piece in pieces for header, view in iter_batches(piece))


def _parse(header: BatchHeader, view: memoryview) -> LogBatch:
    if not crc_ok(view):
        raise CorruptRecords(f"the CRC of the batch at offset {header.base_offset} is wrong")
    controls: tuple[ControlRecord | None, ...] = ()
    if header.is_control:
        # Kept by index: a record's offset is the base offset plus its index.
        controls = tuple(_decode_control(kind, value) for _, kind, value in control_records(view))
    return LogBatch(
        base_offset=Offset(header.base_offset),
        last_offset=header.last_offset,
        epoch=LeaderEpoch(header.partition_leader_epoch),
        controls=controls,
        payload=view,
    )


def core_id(snapshot: SnapshotId) -> EpochAndOffset:
    """A storage snapshot id in the core's form."""
    return EpochAndOffset(snapshot.epoch, snapshot.offset)


def file_id(snapshot: EpochAndOffset) -> SnapshotId:
    """A core snapshot id in storage's form."""
    return SnapshotId(snapshot.offset, snapshot.epoch)


def read_snapshot_controls(content: SnapshotContent) -> tuple[int, VoterSet | None]:
    """kraft.version and voters of a snapshot; 0 and None if absent."""
    level, voters = 0, None
    for kind, value in content.controls:
        control = _decode_control(kind, value)
        if isinstance(control, KRaftVersionChange):
            level = control.kraft_version
        elif isinstance(control, VotersChange):
            voters = control.voters
    return level, voters


def election_of(state: QuorumState) -> ElectionState:
    """The core's election state, from the `quorum-state` file."""
    voted = None
    if state.voted_id >= 0:
        voted = ReplicaKey(state.voted_id, directory_or_none(state.voted_directory_id))
    return ElectionState(
        epoch=state.leader_epoch,
        leader_id=state.leader_id if state.leader_id >= 0 else None,
        voted=voted,
        voter_ids=state.voter_ids,
        kraft_version=state.version,
    )


def quorum_state_of(election: ElectionState) -> QuorumState:
    """The content of the `quorum-state` file."""
    voted = election.voted
    return QuorumState(
        leader_epoch=election.epoch,
        leader_id=BrokerId(-1) if election.leader_id is None else election.leader_id,
        voted_id=BrokerId(-1) if voted is None else voted.id,
        voted_directory_id=(voted.directory_id if voted else None) or Uuid.ZERO,
        voter_ids=election.voter_ids,
        version=min(election.kraft_version, 1),
    )


def recover(log: RaftLog) -> RecoveredLog:
    """The core's view of a log on disk: its bounds, epochs, snapshots and voter sets."""
    voters: list[tuple[Offset, VoterSet]] = []
    versions: list[tuple[Offset, int]] = []
    for snapshot in sorted(log.snapshots)[-1:]:
        level, found = read_snapshot_controls(log.open_snapshot(snapshot).content())
        if level:
            versions.append((Offset(snapshot.offset - 1), level))
        if found is not None:
            voters.append((Offset(snapshot.offset - 1), found))
    for offset, kind, value in log.control_records():
        control = _decode_control(kind, value)
        if isinstance(control, KRaftVersionChange):
            versions.append((offset, control.kraft_version))
        elif isinstance(control, VotersChange):
            voters.append((offset, control.voters))
    return RecoveredLog(
        start=log.start,
        end=log.end,
        epochs=tuple((LeaderEpoch(epoch), Offset(start)) for epoch, start in log.epochs),
        snapshots={core_id(snapshot): size for snapshot, size in log.snapshots.items()},
        voters=tuple(sorted(voters, key=lambda entry: entry[0])),
        kraft_versions=tuple(sorted(versions)),
    )

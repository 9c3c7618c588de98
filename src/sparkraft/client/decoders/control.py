"""Control records as text, as Kafka prints them: transaction markers and the quorum's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sparkraft.base.errors import DecodeError
from sparkraft.protocol import codec
from sparkraft.protocol.json_form import to_json
from sparkraft.records.control import ControlType, parse_control_key

if TYPE_CHECKING:
    from sparkraft.protocol.declare import Message
    from sparkraft.records.record import Record


def control_text(record: Record) -> str:
    """Describe a control record."""
    try:
        kind = parse_control_key(record.key)
        if kind in {ControlType.ABORT, ControlType.COMMIT}:
            epoch = int.from_bytes((record.value or b"")[2:6], "big", signed=True)
            return f"endTxnMarker: {kind.name} coordinatorEpoch: {epoch}"
        return _raft_control(kind, record)
    except DecodeError as error:
        return f"controlType: can't be read: {error}"


def _raft_control(kind: ControlType, record: Record) -> str:
    from sparkraft.protocol.messages import raft_records

    known: dict[ControlType, tuple[str, type[Message]]] = {
        ControlType.LEADER_CHANGE: ("LeaderChange:", raft_records.LeaderChangeMessage),
        ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", raft_records.SnapshotHeaderRecord),
        ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", raft_records.SnapshotFooterRecord),
        ControlType.KRAFT_VERSION: ("KRaftVersion", raft_records.KRaftVersionRecord),
        ControlType.KRAFT_VOTERS: ("KRaftVoters", raft_records.VotersRecord),
    }
    if kind not in known:
        number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
        return f"controlType: {kind.name}({number})"
    name, cls = known[kind]
    raw = record.value or b""
    # Each begins with its own version.
    version = int.from_bytes(raw[:2], "big", signed=True)
    shown = to_json(codec.decode(cls, version, raw), version)
    return f"{name} {json.dumps(shown, separators=(',', ':'))}"

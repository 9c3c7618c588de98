"""One member of a classic group."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparkraft.coordinator.runtime import ReplyTo

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata), in the member's order of preference."""


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """A member of a classic group; changed by its group and the rebalancer alone.

    Attributes:
        group_instance_id: set for a static member.
        protocols: Invariant: contains the group's protocol. After loading, contains no other.
        assignment: from the leader, for the current generation; opaque.
        awaiting_join: the parked JoinGroup. Invariant: None except in PREPARING_REBALANCE, or
            while the replacement of a static member is being appended.
        awaiting_sync: the parked SyncGroup. Invariant: None except in COMPLETING_REBALANCE.
        is_new: has joined, but has not received its member id. Use: its parked JoinGroup does not
            replace heartbeats.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: ReplyTo | None = field(default=None)
    awaiting_sync: ReplyTo | None = field(default=None)
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        """Whether it keeps its membership across restarts (KIP-345)."""
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for `protocol_name`, which it must support."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"member {self.member_id} does not support protocol {protocol_name}")

    def protocol_names(self) -> list[str]:
        """In order of preference."""
        return [name for name, _ in self.protocols]

    @property
    def bytes(self) -> int:
        """Bytes of its metadata and assignment."""
        return len(self.assignment) + sum(len(metadata) for _, metadata in self.protocols)

    def has_satisfied_heartbeat(self) -> bool:
        """Whether a parked request replaces heartbeats.

        Not for a new member: a client that disconnected would otherwise never be removed.
        """
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None


def as_protocols(requested: Sequence[tuple[str, bytes]]) -> Protocols:
    """The protocols of a request; the first of two with the same name is used."""
    seen: dict[str, bytes] = {}
    for name, metadata in requested:
        seen.setdefault(name, bytes(metadata))
    return tuple(seen.items())

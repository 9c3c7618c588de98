"""One member of a classic group."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sparkraft.coordinator.group.outcome import ReplyTo

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata), in the member's order of preference."""


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """What a classic group knows of a member; the group alone changes it.

    Args:
        group_instance_id: set for a static member.
        protocols: after loading, only the one the group had chosen.
        assignment: as the leader gave it for the current generation; opaque.
        awaiting_join: the parked JoinGroup.
        awaiting_sync: the parked SyncGroup.
        is_new: joined, but has not yet been told its member id.
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
        """Whether it keeps its place over restarts (KIP-345)."""
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it sent along with `protocol_name`, which it must know."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise AssertionError(f"member {self.member_id} does not know protocol {protocol_name}")

    def protocol_names(self) -> list[str]:
        """In order of preference."""
        return [name for name, _ in self.protocols]

    def has_satisfied_heartbeat(self) -> bool:
        """Whether a parked request of its stands for heartbeats.

        Not for a new member: a client that is gone would else stay for ever.
        """
        if self.is_new:
            return False
        return self.awaiting_join is not None or self.awaiting_sync is not None


def as_protocols(requested: Sequence[tuple[str, bytes]]) -> Protocols:
    """The protocols of a request: of two with the same name the first counts."""
    seen: dict[str, bytes] = {}
    for name, metadata in requested:
        seen.setdefault(name, bytes(metadata))
    return tuple(seen.items())

"""The knowledge of all members of a consumer group in a simulated cluster.

K1  two members never own a partition at once: if one is given a partition that another has not
    given up, the other is fenced; the same coordinator never confirms its epoch again
K8  a member cannot commit in an earlier epoch of its own for a partition that a later epoch has
    given to another. In its current epoch it may commit for any partition, even for one that it
    lost in that epoch by a new subscription (Kafka's ConsumerGroup.validateOffsetCommit)
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sparkraft.simulation.workload.client_env import ClientEnv

Owned = tuple[bytes, int]
"""Topic id and partition."""


class Taken(NamedTuple):
    """A partition that a member was given."""

    member: str
    epoch: int


class Conflict(NamedTuple):
    """A partition that was given to `other` by `host` while a member still owned it."""

    partition: Owned
    other: str
    host: str


class GroupLedger:
    """See the module docstring."""

    def __init__(self, world: "ClientEnv") -> None:
        self.world = world
        self._owners: dict[Owned, dict[str, int]] = {}
        """Partition → the members that read it, with their epochs."""
        self._last: dict[Owned, Taken] = {}
        self._conflicts: dict[str, list[Conflict]] = {}
        self._next = 0

    def next_offset(self) -> int:
        """Return an offset that no member has committed yet."""
        self._next += 1
        return self._next

    def owned(self) -> dict[Owned, dict[str, int]]:
        """The partitions that members read, and their epochs."""
        return {one: owners for one, owners in self._owners.items() if owners}

    def on_given(self, member: str, partition: Owned, epoch: int, host: str) -> None:
        """Note that a member begins to read a partition."""
        owners = self._owners.setdefault(partition, {})
        for other in owners:
            if other != member:
                self._conflicts.setdefault(other, []).append(Conflict(partition, member, host))
        owners[member] = epoch
        self._last[partition] = Taken(member, epoch)

    def on_released(self, member: str, partition: Owned) -> None:
        """Note that a member has stopped to read a partition."""
        self._owners.get(partition, {}).pop(member, None)
        found = self._conflicts.get(member, [])
        self._conflicts[member] = [one for one in found if one.partition != partition]

    def conflicts_of(self, member: str) -> list[Conflict]:
        """The partitions of the member that others have been given, before it sends a request."""
        return list(self._conflicts.get(member, ()))

    def on_confirmed(self, member: str, before: list[Conflict], host: str) -> None:
        """Check a heartbeat that was accepted; `before` are the conflicts when it was sent."""
        for conflict in before:
            self.world.demand(
                conflict.host != host,
                "K1",
                f"{host} accepts a heartbeat of {member}, whose partition {conflict.partition} "
                f"it has given to {conflict.other}",
            )

    def taken_from(
        self, member: str, partition: Owned, epoch: int, *, current: int
    ) -> Taken | None:
        """The member that has been given a partition since `epoch` and still owns it, if any.

        None if `epoch` is `current`, the epoch of the member's last response.
        """
        last = None if epoch == current else self._last.get(partition)
        if last is None or last.member == member or last.epoch <= epoch:
            return None
        return last if last.member in self._owners.get(partition, {}) else None

    def on_committed(
        self, member: str, partition: Owned, epoch: int, taken: Taken | None, host: str
    ) -> None:
        """Check a commit that was accepted; `taken` is of when it was sent."""
        self.world.counts["offsets committed"] += 1
        self.world.demand(
            taken is None,
            "K8",
            f"{host} accepts a commit of {member} in epoch {epoch} for {partition}, taken: {taken}",
        )

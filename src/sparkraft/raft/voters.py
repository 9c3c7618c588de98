"""Replica keys, voters with their endpoints, and voter sets (KIP-853).

Invariants:
    * A voter set has at most one voter per id, and is sorted by id.
    * A voter without a directory id (kraft.version 0) is matched by its id alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sparkraft.base.ids import BrokerId, Uuid


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """A replica of the metadata log: its node, and the directory that holds its copy.

    `directory_id` is None if unknown. `id` is -1 for a client without an id.
    """

    id: BrokerId
    directory_id: Uuid | None = None

    def __str__(self) -> str:
        return f"{self.id}" if self.directory_id is None else f"{self.id}@{self.directory_id}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A replica's address on the listener of that name."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Node:
    """An address to connect to; bootstrap servers have ids from -2 downwards."""

    id: BrokerId
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    """One member of a voter set; kraft versions are an inclusive range."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    min_kraft_version: int = 0
    max_kraft_version: int = 1

    def matches(self, key: ReplicaKey) -> bool:
        """Whether `key` is this voter; an unknown directory id matches any."""
        if self.key.id != key.id:
            return False
        return self.key.directory_id is None or self.key.directory_id == key.directory_id

    def supports(self, kraft_version: int) -> bool:
        """Whether the voter supports `kraft_version`."""
        return self.min_kraft_version <= kraft_version <= self.max_kraft_version


@dataclass(frozen=True, slots=True)
class VoterSet:
    """An immutable set of voters, sorted by id."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> "VoterSet":
        """Sort `voters` into a set; `ValueError` for a duplicate id."""
        found = tuple(sorted(voters, key=lambda voter: voter.key.id))
        if len({voter.key.id for voter in found}) != len(found):
            raise ValueError(f"duplicate voter id in {[str(voter.key) for voter in found]}")
        return cls(found)

    @property
    def ids(self) -> tuple[BrokerId, ...]:
        """Ids of the voters, ascending."""
        return tuple(voter.key.id for voter in self.voters)

    @property
    def majority(self) -> int:
        """The number of voters that form a majority."""
        return len(self.voters) // 2 + 1

    def __len__(self) -> int:
        return len(self.voters)

    def get(self, voter_id: BrokerId) -> Voter | None:
        """The voter with this id."""
        return next((voter for voter in self.voters if voter.key.id == voter_id), None)

    def endpoints(self, voter_id: BrokerId) -> tuple[Endpoint, ...]:
        """The voter's endpoints; empty if it is not a member."""
        voter = self.get(voter_id)
        return voter.endpoints if voter else ()

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether `key` is a member; directory ids must match if the set has one."""
        voter = self.get(key.id)
        return voter is not None and voter.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Whether `key` is the only voter."""
        return len(self.voters) == 1 and self.is_voter(key)

    def add(self, voter: Voter) -> "VoterSet | None":
        """This set with `voter`; None if its id is taken."""
        return None if self.get(voter.key.id) else VoterSet.of((*self.voters, voter))

    def remove(self, key: ReplicaKey) -> "VoterSet | None":
        """This set without `key`; None if it is not a member, or the only one."""
        if not self.is_voter(key) or len(self.voters) == 1:
            return None
        return VoterSet(tuple(voter for voter in self.voters if voter.key.id != key.id))

    def update(self, voter: Voter) -> "VoterSet | None":
        """This set with new endpoints and versions for `voter`; None if it is not a member."""
        return self._replace(voter) if self.is_voter(voter.key) else None

    def update_ignoring_directory(self, voter: Voter) -> "VoterSet | None":
        """As `update`, matched by id alone, to learn directory ids (kraft.version 0)."""
        return self._replace(voter) if self.get(voter.key.id) else None

    def needs_update(self, voter: Voter) -> bool:
        """Whether the set's entry for the member `voter` differs from `voter`."""
        known = self.get(voter.key.id)
        return known is not None and known.matches(voter.key) and known != voter

    def _replace(self, voter: Voter) -> "VoterSet":
        return VoterSet(tuple(voter if old.key.id == voter.key.id else old for old in self.voters))


def address(endpoints: Iterable[Endpoint], listener: str) -> Endpoint | None:
    """The endpoint under the name `listener`."""
    return next((endpoint for endpoint in endpoints if endpoint.listener == listener), None)


def without_directories(voters: VoterSet) -> VoterSet:
    """The same voters by id only, as a static quorum knows them."""
    return VoterSet(tuple(replace(voter, key=ReplicaKey(voter.key.id)) for voter in voters.voters))

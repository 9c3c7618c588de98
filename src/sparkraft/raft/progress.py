"""A leader's view of the replicas that fetch from it: the high watermark and check-quorum.

Invariants:
    * The high watermark is an offset that a majority of the voter set in force has on disk, and is
      greater than the offset of the first record of the leader's own epoch.
    * A replica counts as a voter only if its directory id is the one in the voter set (KIP-853).
"""

from sparkraft.base.ids import BrokerId, Millis, Offset
from sparkraft.raft.events import ReplicaProgress
from sparkraft.raft.voters import ReplicaKey, Voter, VoterSet

OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for this long is removed; Kafka's value."""

OBSERVERS_MAX = 10_000
"""Limit of tracked observers, more than any cluster has brokers; new ones are ignored beyond."""

CAUGHT_UP_WITHIN_MS = 3_600_000
"""A new voter must have fetched within the last hour; Kafka's value."""

_NEVER = Millis(-1)


class ReplicaState:
    """One replica's progress; times are -1 if it never fetched."""

    __slots__ = ("end", "key", "last_caught_up_ms", "last_fetch_ms", "leader_end_at_last_fetch")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end: Offset | None = None
        self.last_fetch_ms = _NEVER
        self.last_caught_up_ms = _NEVER
        self.leader_end_at_last_fetch = Offset(-1)

    def on_fetch(self, fetch_offset: Offset, leader_end: Offset, now: Millis) -> None:
        """The replica has everything below `fetch_offset` on disk."""
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = now
        elif 0 < self.leader_end_at_last_fetch <= fetch_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = max(self.last_fetch_ms, now)
        self.end = fetch_offset


class LeaderProgress:
    """All replicas as seen by one leader in one epoch."""

    def __init__(self, local: ReplicaKey, voters: VoterSet, epoch_start: Offset) -> None:
        """`epoch_start` is the offset of the epoch's first record."""
        self._local = local
        self._epoch_start = epoch_start
        self._voter_set = voters
        self._voters = {voter.key.id: ReplicaState(voter.key) for voter in voters.voters}
        self._observers: dict[ReplicaKey, ReplicaState] = {}
        self._fetched: set[BrokerId] = set()
        self.high_watermark: Offset | None = None

    def set_voters(self, voters: VoterSet) -> None:
        """Apply a new voter set; replicas keep their progress."""
        if voters == self._voter_set:
            return
        old = self._voters
        self._voter_set = voters
        self._voters = {}
        for voter in voters.voters:
            self._voters[voter.key.id] = self._claim(voter, old)
        for state in old.values():
            self._observers.setdefault(state.key, state)

    def _claim(self, voter: Voter, old: dict[BrokerId, ReplicaState]) -> ReplicaState:
        known = old.get(voter.key.id)
        if known is not None and known.key.directory_id in (None, voter.key.directory_id):
            del old[voter.key.id]
            known.key = voter.key
            return known
        return self._observers.pop(voter.key, None) or ReplicaState(voter.key)

    def is_voter(self, key: ReplicaKey) -> bool:
        return self._voter_set.is_voter(key)

    def replica_state(self, key: ReplicaKey) -> ReplicaState | None:
        """The progress of `key`, voter or observer."""
        return self._voters[key.id] if self.is_voter(key) else self._observers.get(key)

    def on_local_flush(self, durable_end: Offset) -> bool:
        """Record that our own log is on disk up to `durable_end`; returns whether the HW moved."""
        if self.is_voter(self._local):
            self._voters[self._local.id].end = durable_end
        return self._maybe_advance()

    def on_fetch(
        self, key: ReplicaKey, fetch_offset: Offset, leader_end: Offset, now: Millis
    ) -> bool:
        """Record a valid Fetch of `key`; returns whether the high watermark moved."""
        if key.id < 0:
            return False
        state = self.replica_state(key)
        if state is None:
            if len(self._observers) >= OBSERVERS_MAX:
                return False
            state = self._observers.setdefault(key, ReplicaState(key))
        state.on_fetch(fetch_offset, leader_end, now)
        return self.is_voter(key) and self._maybe_advance()

    def on_alive(self, key: ReplicaKey) -> bool:
        """Record a sign of life; True once a majority has given one since the last True."""
        if self.is_voter(key) and key.id != self._local.id:
            self._fetched.add(key.id)
        needed = self._voter_set.majority - (1 if self.is_voter(self._local) else 0)
        if len(self._fetched) < needed:
            return False
        self._fetched.clear()
        return True

    def silent_voters(self, since: Millis) -> list[Voter]:
        """Other voters that have not fetched since before `since`."""
        return [
            voter
            for voter in self._voter_set.voters
            if voter.key.id != self._local.id and self._voters[voter.key.id].last_fetch_ms <= since
        ]

    def successors(self) -> tuple[ReplicaKey, ...]:
        """Other voters, longest log first: the preferred successors of a resigning leader."""
        others = [state for state in self._by_length() if state.key.id != self._local.id]
        return tuple(state.key for state in others)

    def is_caught_up(self, key: ReplicaKey, now: Millis) -> bool:
        """Whether the observer `key` has reached our log end once and still fetches."""
        state = self._observers.get(key)
        if state is None or state.last_caught_up_ms < 0:
            return False
        return state.last_fetch_ms > now - CAUGHT_UP_WITHIN_MS

    def forget_idle_observers(self, now: Millis) -> None:
        """Remove observers whose session has expired."""
        limit = now - OBSERVER_SESSION_MS
        self._observers = {
            key: state
            for key, state in self._observers.items()
            if state.last_fetch_ms > limit or key == self._local
        }

    def describe(self, end: Offset) -> tuple[list[ReplicaProgress], list[ReplicaProgress]]:
        """Voters and observers, by id; `end` is our own log end."""
        voters = [self._describe(self._voters[key], end) for key in sorted(self._voters)]
        keys = sorted(self._observers, key=lambda key: (key.id, key.directory_id or b""))
        return voters, [self._describe(self._observers[key], end) for key in keys]

    def _describe(self, state: ReplicaState, end: Offset) -> ReplicaProgress:
        local = state.key.id == self._local.id and self.is_voter(self._local)
        known = state.end if state.end is not None else Offset(-1)
        return ReplicaProgress(
            key=self._local if local else state.key,
            log_end_offset=end if local else known,
            last_fetch_ms=state.last_fetch_ms,
            last_caught_up_ms=state.last_caught_up_ms,
            endpoints=self._voter_set.endpoints(state.key.id) if self.is_voter(state.key) else (),
        )

    def _by_length(self) -> list[ReplicaState]:
        """Voters by their known end, longest first, then by id."""
        return sorted(
            self._voters.values(),
            key=lambda state: (-(state.end if state.end is not None else -1), state.key.id),
        )

    def _maybe_advance(self) -> bool:
        if not self._voters:
            return False
        reached = self._by_length()[len(self._voters) // 2].end
        if reached is None or reached <= self._epoch_start:
            return False
        if self.high_watermark is not None and reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

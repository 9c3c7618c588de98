"""A read-only view of this node's quorum membership, for the rest of the server."""

from dataclasses import replace
from typing import TYPE_CHECKING

from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis, Offset, Uuid
from sparkraft.raft import events
from sparkraft.raft.events import EpochAndOffset, LeaderAndEpoch
from sparkraft.raft.states import Candidate, Leader
from sparkraft.raft.voters import Node, VoterSet
from sparkraft.server.raft.replaced_directory import bootstrap_of, lost_directory_of

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.client.lost_directory import LostDirectory
    from sparkraft.raft.quorum import Quorum
    from sparkraft.server.raft.election_journal import ElectionJournal
    from sparkraft.server.raft.quorum_monitor import QuorumMonitor
    from sparkraft.server.raft.quorum_traffic import QuorumTraffic
    from sparkraft.storage.raft_log import RaftLog


class QuorumStatus:
    """A read-only view; `RaftDriver` adds what changes anything."""

    def __init__(
        self, quorum: "Quorum", raft_log: "RaftLog", monitor: "QuorumMonitor", clock: "Clock"
    ) -> None:
        self._quorum = quorum
        self._log = raft_log
        self._monitor = monitor
        self._clock = clock

    @property
    def node_id(self) -> BrokerId:
        return self._quorum.config.local.id

    @property
    def directory_id(self) -> Uuid:
        """The id of the directory that holds the log; zero if unknown."""
        return self._quorum.config.local.directory_id or Uuid.ZERO

    @property
    def cluster_id(self) -> str:
        return self._quorum.config.cluster_id

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """The quorum leader known to this node."""
        return self._quorum.leader_and_epoch

    @property
    def leader_node(self) -> Node | None:
        """The address of the active controller for this node; its own address if it leads."""
        return self._quorum.leader_node

    @property
    def is_leader(self) -> bool:
        return self._quorum.is_leader

    @property
    def high_watermark(self) -> Offset:
        """The first offset not known to be committed; -1 until one is known."""
        known = self._quorum.log.high_watermark
        return Offset(-1) if known is None else known

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._quorum.log.end

    @property
    def recovery_point(self) -> Offset:
        """Everything below is on disk and committed, so no crash explains damage there."""
        return self._log.recovery_point

    @property
    def voters(self) -> VoterSet:
        """The voter set in force, committed or not."""
        return self._quorum.log.voters

    @property
    def is_voter(self) -> bool:
        """Whether this node's directory, not just its id, is in the voter set."""
        return self._quorum.is_voter

    @property
    def lost_directory(self) -> "LostDirectory | None":
        """This node's directory in the voter set if it is not the one it has; None if it is."""
        return lost_directory_of(self._quorum)

    @property
    def lost_directory_text(self) -> str | None:
        """The state that `lost_directory` describes, for people, with the commands to repair it."""
        lost = self.lost_directory
        return None if lost is None else lost.explanation(bootstrap_of(self._quorum))

    @property
    def kraft_version(self) -> int:
        return self._quorum.log.kraft_version

    @property
    def latest_snapshot(self) -> EpochAndOffset | None:
        """The newest snapshot on this node."""
        return self._quorum.log.latest_snapshot

    @property
    def leaderless_ms(self) -> int:
        """Milliseconds since this node was last in touch with a leader; 0 while it is."""
        return self._monitor.leaderless_ms()

    @property
    def has_met_leader(self) -> bool:
        """Whether this node has been in touch with a leader since it started."""
        return self._monitor.has_met_leader()

    @property
    def log(self) -> "RaftLog":
        """The log's files, for reading committed records."""
        return self._log

    @property
    def journal(self) -> "ElectionJournal":
        """The elections this node has seen."""
        return self._monitor.journal

    @property
    def traffic(self) -> "QuorumTraffic":
        """Counters of records appended, fetched and committed, and of requests to members."""
        return self._monitor.traffic

    @property
    def last_applied_ms(self) -> int:
        """When the last record that was applied here was appended, wall clock; 0 if none was."""
        return self._monitor.traffic.applied_ms

    @property
    def applied_lag_ms(self) -> int:
        """Time since then; 0 if no record was applied."""
        applied_ms = self.last_applied_ms
        return max(self._clock.wall_ms() - applied_ms, 0) if applied_ms else 0

    @property
    def log_end_epoch(self) -> LeaderEpoch:
        """The epoch of the last record."""
        return self._quorum.log.last_epoch

    @property
    def voted_id(self) -> int:
        """The voter that has this node's vote; -1 if none has."""
        state = self._quorum.state
        if isinstance(state, Leader | Candidate):
            return int(self.node_id)
        voted = getattr(state, "voted", None)
        return -1 if voted is None else int(voted.id)

    @property
    def state_name(self) -> str:
        """`Leader`, `Follower`, `Candidate` and so on, for logs and metrics."""
        return type(self._quorum.state).__name__

    def describe(self) -> events.Description | None:
        """Every replica's progress with wall-clock times; None if this node is not the leader."""
        now = self._clock.mono_ms()
        found = self._quorum.describe(now)
        return found and with_wall_clock_times(found, now=now, wall=self._clock.wall_ms())


def with_wall_clock_times(
    found: events.Description, *, now: Millis, wall: Millis
) -> events.Description:
    """The same with times since 1970; the leader's own times are `wall`, as in Kafka."""

    def converted(at: Millis) -> Millis:
        return Millis(at + wall - now) if at >= 0 else at

    def shown(progress: events.ReplicaProgress) -> events.ReplicaProgress:
        if progress.key.id == found.leader_id:
            return replace(progress, last_fetch_ms=wall, last_caught_up_ms=wall)
        return replace(
            progress,
            last_fetch_ms=converted(progress.last_fetch_ms),
            last_caught_up_ms=converted(progress.last_caught_up_ms),
        )

    return replace(
        found,
        voters=tuple(shown(voter) for voter in found.voters),
        observers=tuple(shown(observer) for observer in found.observers),
    )

"""Reports the quorum's state to people: log lines, the election journal, leaderless warnings.

It makes no decisions.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.raft import events
from sparkraft.server.raft.election_journal import ElectionJournal
from sparkraft.server.raft.quorum_traffic import QuorumTraffic
from sparkraft.server.raft.replaced_directory import bootstrap_of, lost_directory_of

if TYPE_CHECKING:
    from sparkraft.base.ids import Millis
    from sparkraft.raft.quorum import Quorum
    from sparkraft.server.env import Env

LEADERLESS_MS = 3_000
"""Time without a leader before the first warning; elections take well below a second."""

LEADERLESS_REPEAT_MS = 10_000
"""Interval of further warnings."""

LOST_DIRECTORY_MS = 3_000
"""Time as an observer with a voter's id before the first warning; a node that starts may still
read voter sets from before its directory was added."""

LOST_DIRECTORY_REPEAT_MS = 600_000
"""Interval of further warnings."""

log = logging.getLogger("sparkraft.raft")


class QuorumMonitor:
    """See the module docstring."""

    def __init__(self, env: "Env", log_dir: str, quorum: "Quorum") -> None:
        """QuorumMonitor `quorum`, whose log is in `log_dir`."""
        self._clock = env.clock
        self._quorum = quorum
        self.journal = ElectionJournal(env.disk, log_dir, env.clock, int(quorum.config.local.id))
        self.traffic = QuorumTraffic(env.clock)
        self._warning: asyncio.TimerHandle | None = None
        self._directory_warning: asyncio.TimerHandle | None = None
        self._last_cluster_id_error: Millis | None = None
        self._stopped = False

    def note_states(self) -> None:
        """Log and journal what happened since the last call."""
        for change in self._quorum.take_transitions():
            log.info(
                "%s in epoch %d: %s", type(change.new).__name__, change.new.epoch, change.reason
            )
            self.journal.note_transition(change)
        for ballot in self._quorum.take_ballots():
            self.journal.note_ballot(ballot)
        self._check_contact()
        self._check_directory()

    def note_batch(self, batch: events.LogBatch) -> None:
        """Journal the leader changes in a batch that is being appended."""
        for index, control in enumerate(batch.controls):
            if isinstance(control, events.LeaderChange):
                self.journal.note_leader_change(control, batch.epoch, batch.base_offset + index)

    def note_response(self, event: events.ResponseReceived | events.RequestFailed) -> None:
        """Log that a peer belongs to another cluster, at most once per interval."""
        response = event.response if isinstance(event, events.ResponseReceived) else None
        if getattr(response, "error", None) is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            return
        now = self._clock.mono_ms()
        last = self._last_cluster_id_error
        if last is None or now - last >= LEADERLESS_REPEAT_MS:
            self._last_cluster_id_error = now
            log.error(
                "A node of the quorum belongs to another cluster; the cluster id of this node's "
                "directory is %s. Either it was formatted for another cluster, or "
                "controller.quorum.bootstrap.servers (or .voters) has another cluster's addresses",
                self._quorum.config.cluster_id,
            )

    def leaderless_ms(self) -> int:
        """Milliseconds since this node was last in touch with a leader; 0 while it is."""
        self._check_contact()
        return self.journal.leaderless_ms(self._clock.mono_ms())

    def has_met_leader(self) -> bool:
        """Whether this node has been in touch with a leader since it started."""
        self._check_contact()
        return self.journal.has_met_leader

    def _check_contact(self) -> None:
        """Journal whether there is a leader, and start or stop the warnings."""
        now = self._clock.mono_ms()
        quorum = self._quorum
        in_touch = quorum.is_in_touch(now)
        self.journal.note_contact(in_touch=in_touch, epoch=quorum.state.epoch, now=now)
        if in_touch:
            self._cancel()
        elif self._warning is None and not self._stopped:
            self._warn_in(LEADERLESS_MS)

    def _warn_in(self, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._warning = loop.call_later(wait_ms / 1000, self._warn)

    def _warn(self) -> None:
        quorum = self._quorum
        log.warning(
            "No contact with a quorum leader for %d ms: this node is %s in epoch %d; "
            "the voters are %s",
            self.journal.leaderless_ms(self._clock.mono_ms()),
            type(quorum.state).__name__,
            quorum.state.epoch,
            ", ".join(str(voter) for voter in quorum.log.voters.ids),
        )
        self._warn_in(LEADERLESS_REPEAT_MS)

    def _check_directory(self) -> None:
        """Start or stop the warnings of a voter that lost its directory."""
        if lost_directory_of(self._quorum) is None:
            self._cancel_directory_warning()
        elif self._directory_warning is None and not self._stopped:
            self._warn_of_directory_in(LOST_DIRECTORY_MS)

    def _warn_of_directory_in(self, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._directory_warning = loop.call_later(wait_ms / 1000, self._warn_of_directory)

    def _warn_of_directory(self) -> None:
        lost = lost_directory_of(self._quorum)
        if lost is not None:
            log.warning("%s", lost.explanation(bootstrap_of(self._quorum)))
        self._warn_of_directory_in(LOST_DIRECTORY_REPEAT_MS)

    def _cancel_directory_warning(self) -> None:
        if self._directory_warning is not None:
            self._directory_warning.cancel()
            self._directory_warning = None

    def _cancel(self) -> None:
        if self._warning is not None:
            self._warning.cancel()
            self._warning = None

    def stop(self) -> None:
        """Stop the warnings."""
        self._stopped = True
        self._cancel()
        self._cancel_directory_warning()

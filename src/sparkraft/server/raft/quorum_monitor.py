"""Tells people how the quorum is: the node's log, its journal, and a line while there is no leader.

Nothing here decides anything.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.raft import events
from sparkraft.server.raft.election_journal import ElectionJournal

if TYPE_CHECKING:
    from sparkraft.base.ids import Millis
    from sparkraft.raft.quorum import Quorum
    from sparkraft.server.env import Env

LEADERLESS_MS = 3_000
"""A quorum without a leader for longer is worth a line: elections take well below a second."""

LEADERLESS_REPEAT_MS = 10_000
"""And another line this often, as long as it lasts."""

log = logging.getLogger("sparkraft.raft")


class QuorumMonitor:
    """See the module docstring."""

    def __init__(self, env: "Env", log_dir: str, quorum: "Quorum") -> None:
        """QuorumMonitor `quorum`, whose log is in `log_dir`."""
        self._clock = env.clock
        self._quorum = quorum
        self.journal = ElectionJournal(env.disk, log_dir, env.clock, int(quorum.config.local.id))
        self._complaint: asyncio.TimerHandle | None = None
        self._stranger_said: Millis | None = None
        self._stopped = False

    def note_states(self) -> None:
        """Pass on what happened since the last call."""
        for change in self._quorum.take_transitions():
            log.info(
                "%s in epoch %d: %s", type(change.new).__name__, change.new.epoch, change.reason
            )
            self.journal.note_transition(change)
        for ballot in self._quorum.take_ballots():
            self.journal.note_ballot(ballot)
        self._look()

    def note_batch(self, batch: events.LogBatch) -> None:
        """A batch with control records is on its way to the log."""
        for place, control in enumerate(batch.controls):
            if isinstance(control, events.LeaderChange):
                self.journal.note_leader_change(control, batch.epoch, batch.base_offset + place)

    def note_response(self, event: events.ResponseReceived | events.RequestFailed) -> None:
        """A peer that belongs to another cluster is named in the log, once in a while."""
        response = event.response if isinstance(event, events.ResponseReceived) else None
        if getattr(response, "error", None) is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            return
        now = self._clock.mono_ms()
        if self._stranger_said is None or now - self._stranger_said >= LEADERLESS_REPEAT_MS:
            self._stranger_said = now
            log.error(
                "A node of the quorum belongs to another cluster than this one, whose directory "
                "says %s: this directory was formatted for another cluster, or "
                "controller.quorum.bootstrap.servers (or .voters) names another's controllers",
                self._quorum.config.cluster_id,
            )

    def leaderless_ms(self) -> int:
        """For how long this node has been in touch with no leader; 0 while it is."""
        self._look()
        return self.journal.leaderless_ms(self._clock.mono_ms())

    def has_met_leader(self) -> bool:
        """Whether this node has been in touch with a leader since it started."""
        self._look()
        return self.journal.has_met_leader

    def _look(self) -> None:
        """Have a quorum without a leader say so, again and again."""
        now = self._clock.mono_ms()
        quorum = self._quorum
        in_touch = quorum.is_in_touch(now)
        self.journal.note_contact(in_touch=in_touch, epoch=quorum.state.epoch, now=now)
        if in_touch:
            self._cancel()
        elif self._complaint is None and not self._stopped:
            self._complain_in(LEADERLESS_MS)

    def _complain_in(self, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._complaint = loop.call_later(wait_ms / 1000, self._complain)

    def _complain(self) -> None:
        quorum = self._quorum
        log.warning(
            "No leader of the quorum has been heard of for %d ms: this node is %s in epoch %d; "
            "the voters are %s",
            self.journal.leaderless_ms(self._clock.mono_ms()),
            type(quorum.state).__name__,
            quorum.state.epoch,
            ", ".join(str(voter) for voter in quorum.log.voters.ids),
        )
        self._complain_in(LEADERLESS_REPEAT_MS)

    def _cancel(self) -> None:
        if self._complaint is not None:
            self._complaint.cancel()
            self._complaint = None

    def stop(self) -> None:
        """Say nothing more."""
        self._stopped = True
        self._cancel()

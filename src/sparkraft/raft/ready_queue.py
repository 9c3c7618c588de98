"""The order in which a driver carries out the core's `Ready`s, shared by all drivers.

    step ──Ready──▶ add ──▶ election state on disk ──▶ resume ──▶ the other fields, in order

Invariants:
    * `Ready`s are carried out one after another, in the order the core made them. One that is
      added while another is being carried out, or while its election state is being written,
      waits its turn.
    * Nothing of a `Ready` is visible before its election state is on disk.
    * Nothing is carried out after a duty has raised: later duties rely on it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from sparkraft.base.ids import Millis, Offset
from sparkraft.raft.events import (
    ElectionState,
    Flush,
    LeaderAndEpoch,
    LogEffect,
    Ready,
    Respond,
    Send,
)


class Duties(Protocol):
    """A driver's I/O, one method per field of `Ready`; none of them waits for a disk or a peer."""

    def write_log(self, effects: Sequence[LogEffect]) -> None:
        """Apply `effects` in order; later reads must see them, but they need not be on disk."""
        ...

    def begin_flush(self, flush: Flush) -> None:
        """Start an fsync of the log, or remember it while one is running."""
        ...

    def send(self, requests: Sequence[Send]) -> None:
        """Send requests to peers."""
        ...

    def respond(self, responses: Sequence[Respond]) -> None:
        """Complete requests that the core received."""
        ...

    def publish(self, leader: LeaderAndEpoch | None, high_watermark: Offset | None) -> None:
        """Report progress to listeners; each is None if it did not change."""
        ...

    def set_timer(self, wake_at: Millis | None) -> None:
        """Replace the core's only timer; None cancels it."""
        ...


class ReadyQueue:
    """Carries out `Ready`s by calling `duties`.

    The caller writes the election state, because only it knows how to wait for a disk:

        election = queue.add(ready)
        while election is not None:
            await persist(election)
            election = queue.resume()
    """

    def __init__(self, duties: Duties) -> None:
        self.duties = duties
        self._waiting: deque[Ready] = deque()
        self._is_busy = False

    def add(self, ready: Ready) -> ElectionState | None:
        """Carry out `ready` and what it causes, up to the first election state to be written.

        Returns that state: bring it to disk, then call `resume`. None if there is none, or if an
        earlier `Ready` is still being carried out, perhaps by our own caller; this one follows it.
        """
        self._waiting.append(ready)
        return None if self._is_busy else self._run()

    def resume(self) -> ElectionState | None:
        """Continue after the returned election state is on disk; returns the next one."""
        self.carry_out(self._waiting.popleft())
        return self._run()

    def _run(self) -> ElectionState | None:
        self._is_busy = True
        while self._waiting:
            election = self._waiting[0].persist
            if election is not None:
                return election
            self.carry_out(self._waiting.popleft())
        self._is_busy = False
        return None

    def carry_out(self, ready: Ready) -> None:
        """Everything of `ready` except its election state, which is on disk."""
        duties = self.duties
        if ready.log:
            duties.write_log(ready.log)
        if ready.flush is not None:
            duties.begin_flush(ready.flush)
        if ready.send:
            duties.send(ready.send)
        if ready.respond:
            duties.respond(ready.respond)
        duties.publish(ready.leader, ready.high_watermark)
        duties.set_timer(ready.wake_at)

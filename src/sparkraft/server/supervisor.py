"""Runs a node's tasks, and decides when the node stops."""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.base.errors import DecodeError
from sparkraft.controller.activation import MigrationRefusedError
from sparkraft.server.identity import StartRefused
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.quorum_state import BadQuorumState

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sparkraft.server.loop_monitor import LoopMonitor

log = logging.getLogger(__name__)

BAD_DISKS = (StorageFault, BadQuorumState, DecodeError)
"""Failures of disks and files: logged without a traceback, because their text is sufficient."""


_PLAIN = (*BAD_DISKS, StartRefused, MigrationRefusedError)
"""Logged without a traceback; a broker may be refused when it registers (ZooKeeper mode)."""


class Supervisor(Protocol):
    """Functions of the node for its parts; implemented by `sparkraft.server.node.Node`."""

    def spawn(self, work: "Coroutine[Any, Any, Any]", name: str) -> "asyncio.Task[Any]":
        """Run `work` as a task of the node; an unexpected exception stops the node."""

    def fail(self, error: BaseException) -> None:
        """Stop the node because of `error`; only the first one is kept."""

    def on_storage_fault(self, fault: StorageFault) -> None:
        """Take a failed log directory offline, and stop the node if it cannot run without it."""


class NodeTasks:
    """The tasks of a node, and the reason it stops.

    Args:
        monitor: watches how long their steps take.

    Attributes:
        failure: the first error; None if there was none.
        stop_requested: set by a signal or a failure.
        failed: set by a failure.
    """

    def __init__(self, monitor: "LoopMonitor") -> None:
        self._monitor = monitor
        self.failure: BaseException | None = None
        self.stop_requested = asyncio.Event()
        self.failed = asyncio.Event()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In the order of their start. Invariant: no order depends on memory addresses."""

    def spawn(self, work: "Coroutine[Any, Any, Any]", name: str) -> "asyncio.Task[Any]":
        """See `Supervisor`."""
        watched = self._monitor.timed(work, lambda: name)
        task = asyncio.get_running_loop().create_task(watched, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    def fail(self, error: BaseException) -> None:
        """See `Supervisor`."""
        if self.failure is None:
            self.failure = error
            traceback = None if isinstance(error, _PLAIN) else error
            log.critical("This node stops: %s", error, exc_info=traceback)
        self.failed.set()
        self.stop_requested.set()

    def keep(self, error: BaseException | None) -> None:
        """Keep `error` as the failure of a node that is stopping anyway, if it is the first."""
        self.failure = self.failure or error

    async def cancel_all(self) -> None:
        """Cancel every task, the oldest first, and wait for them."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            traceback = None if isinstance(error, _PLAIN) else error
            log.error("Task %r failed", task.get_name(), exc_info=traceback)
            self.fail(error)

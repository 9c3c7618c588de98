"""Creates, renames and syncs the folders of logs in the disk's threads, in batches.

    submit(topic-partition, steps) → begins on the loop → jobs of a batch in one thread,
    one fsync of each log directory → the steps continue on the loop

A system call that creates or renames a folder waits for the file system's journal, which another
process may keep busy for half a second. None of them runs on the event loop.

Invariant: work on one topic-partition is carried out in the order of `submit`, one at a time.
    Between two steps anything else may change: elections, deletions, a failing directory. The steps
    look again at what they rely on.

Not here: the steps (`sparkraft.storage.log_table`, `log_manager`, `future_logs`), and what they are
for (`replica_manager`, `log_dir_moves`).
"""

import asyncio
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.storage.log_dir import DiskJob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from sparkraft.base.ids import TopicPartition
    from sparkraft.server.loop_turns import Turn
    from sparkraft.storage.log_dir import Steps
    from sparkraft.storage.log_dirs import LogDirs

Result = TypeVar("Result")

SLICES_PER_BATCH = 4
"""Slices of the event loop's work whose jobs go to a thread together: few enough that a stopping
node and a new partition need not wait long, enough that deleted partitions share fsyncs."""


class FolderQueue:
    """See the module docstring.

    Args:
        dirs: the log directories; one whose disk fails goes offline.
        off_loop: runs blocking disk work in the executor.
        new_turn: begins a piece of work on logs.
        batch_max: topic-partitions in a batch.
        spawn: runs a task; an unexpected error in the steps stops the node.
        on_idle: called when everything that was submitted has ended.
    """

    def __init__(
        self,
        dirs: "LogDirs",
        *,
        off_loop: "Callable[..., Awaitable[Any]]",
        new_turn: "Callable[[], Turn]",
        batch_max: int,
        spawn: "Callable[[Coroutine[Any, Any, Any], str], Any]",
        on_idle: "Callable[[], None]",
    ) -> None:
        self._dirs = dirs
        self._off_loop = off_loop
        self._new_turn = new_turn
        self._batch_max = batch_max
        self._spawn = spawn
        self._on_idle = on_idle
        self._waiting: deque[tuple[TopicPartition, Steps[None]]] = deque()
        self._unfinished: Counter[TopicPartition] = Counter()
        self._task: asyncio.Future[None] | None = None
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or runs."""
        return not self._unfinished

    def is_busy(self, key: "TopicPartition") -> bool:
        """Whether work on this topic-partition waits or runs."""
        return key in self._unfinished

    def submit(self, key: "TopicPartition", steps: "Steps[None]") -> None:
        """Carry out `steps` after everything that was submitted for the same topic-partition.

        They handle the errors that they expect.
        """
        self._waiting.append((key, steps))
        self._unfinished[key] += 1
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_future()
            self._spawn(self._run(self._task), "folders of logs")

    async def close(self) -> None:
        """Begin no further batch, and return when the running one has ended."""
        self._is_closed = True
        if self._task is not None:
            await self._task

    async def _run(self, ended: "asyncio.Future[None]") -> None:
        turn = self._new_turn()
        try:
            while self._waiting and not self._is_closed:
                await self._carry_out(self._next_batch(), turn)
        finally:
            self._task = None
            if not ended.done():
                ended.set_result(None)

    def _next_batch(self) -> "dict[TopicPartition, Steps[None]]":
        """Take work from the queue, at most one piece for each topic-partition."""
        batch: dict[TopicPartition, Steps[None]] = {}
        while self._waiting and len(batch) < self._batch_max:
            key, steps = self._waiting[0]
            if key in batch:
                break
            batch[key] = steps
            self._waiting.popleft()
        return batch

    async def _carry_out(self, batch: "dict[TopicPartition, Steps[None]]", turn: "Turn") -> None:
        while batch:
            jobs: dict[TopicPartition, DiskJob] = {}
            for key, steps in batch.items():
                job = await self._until_job(steps, turn)
                if job is None:
                    self._end(key)
                else:
                    jobs[key] = job
            if jobs:
                await self._run_jobs(list(jobs.values()))
            batch = {key: batch[key] for key in jobs}

    @staticmethod
    async def _until_job(steps: "Steps[None]", turn: "Turn") -> DiskJob | None:
        """Take steps up to the next job; None if they ended."""
        for step in steps:
            if isinstance(step, DiskJob):
                break
            if turn.is_over(step):
                await turn.next()
        else:
            step = None
        if turn.is_over(1):
            await turn.next()
        return step

    async def _run_jobs(self, jobs: list[DiskJob]) -> None:
        self._dirs.fail_jobs(await self._off_loop(self._dirs.attempt, jobs))

    def _end(self, key: "TopicPartition") -> None:
        self._unfinished[key] -= 1
        if not self._unfinished[key]:
            del self._unfinished[key]
            if not self._unfinished:
                self._on_idle()

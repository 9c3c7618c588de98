"""Carries out storage work in slices, with its disk jobs in the executor.

Storage describes long work as `Steps` (`sparkraft.storage.log_dir`): counts of logs handled, and
jobs that only wait for the disk. Between two steps anything may change; the steps check again what
they rely on.
"""

from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.storage.log_dir import DiskJob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.server.loop_turns import Turn
    from sparkraft.storage.log_dir import Steps
    from sparkraft.storage.log_dirs import LogDirs

Result = TypeVar("Result")


class DiskSteps:
    """Runs `Steps`.

    Args:
        dirs: the log directories; one whose disk fails goes offline.
        off_loop: runs blocking disk work in the executor.
        new_turn: begins a piece of work on logs.
    """

    def __init__(
        self,
        dirs: "LogDirs",
        *,
        off_loop: "Callable[..., Awaitable[Any]]",
        new_turn: "Callable[[], Turn]",
    ) -> None:
        self._dirs = dirs
        self._off_loop = off_loop
        self._new_turn = new_turn

    async def carry_out(self, steps: "Steps[Result]") -> Result:
        """Take all steps, letting others run in between."""
        turn = self._new_turn()
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            if isinstance(step, DiskJob):
                await self._run(step)
            elif turn.is_over(step):
                await turn.next()

    async def _run(self, job: DiskJob) -> None:
        self._dirs.fail_jobs(await self._off_loop(self._dirs.attempt, [job]))

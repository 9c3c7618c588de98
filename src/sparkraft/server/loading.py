"""Logs the progress of loading a node's logs at the start, every few seconds and at the end."""

import logging
from threading import Lock
from typing import TYPE_CHECKING

from sparkraft.storage.loading import LoadOptions, LoadProgress

if TYPE_CHECKING:
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env

log = logging.getLogger(__name__)

REPORT_MS = 3_000
"""Between two log lines; a shorter start logs one line per directory."""


def load_options(config: "NodeConfig", env: "Env") -> LoadOptions:
    """Options with `num.recovery.threads.per.data.dir` threads and progress reports."""
    return LoadOptions(
        threads=config.number("num.recovery.threads.per.data.dir"),
        run_all=env.run_all_and_wait,
        progress=LoadReports(env).report,
    )


class LoadReports:
    """Turns progress into a few log lines; called from several threads."""

    def __init__(self, env: "Env") -> None:
        self._clock = env.clock
        self._started_ms = self._reported_ms = env.clock.mono_ms()
        self._mutex = Lock()

    def report(self, progress: LoadProgress) -> None:
        """Report one more loaded or recovered log."""
        with self._mutex:
            now_ms = self._clock.mono_ms()
            is_last = progress.done == progress.total
            if not is_last and now_ms - self._reported_ms < REPORT_MS:
                return
            self._reported_ms = now_ms
        log.info(
            "%s %d of %d logs in %s, after %d ms; the last one, %s, took %d ms",
            "Loaded" if progress.clean else "Recovered",
            progress.done,
            progress.total,
            progress.log_dir,
            now_ms - self._started_ms,
            progress.name,
            progress.took_ms,
        )

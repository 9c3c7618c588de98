"""Commits to a table beside other writers: tried again after a conflict.

A backfill or a compaction commits beside the running pipeline. Table formats detect that another
writer was first, and leave it to the caller to read the table again.

Not here: the commits themselves (`delta`, `iceberg`, `upkeep`).
"""

import logging
import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 10
"""Each attempt may be a whole merge."""


_PAUSE_S: Final = 0.02
_PAUSE_S_MAX: Final = 2.0
"""The pause doubles up to this: a catalog that is away for some seconds stops no pipeline."""


def commit_with_retries(
    commit: Callable[[], T],
    conflict: type[Exception] | tuple[type[Exception], ...],
    table: str,
    attempts: int = ATTEMPTS_MAX,
    pause_s_max: float = _PAUSE_S_MAX,
) -> T:
    """Call `commit` until another writer no longer precedes it; return its result.

    Args:
        commit: reads the table and commits to it, in each call again.
        conflict: errors of the table's library if another writer committed first, or if it may
            not have committed.
        table: its name in the log.
        attempts: how many.
        pause_s_max: seconds between two attempts, at most.

    Raises:
        Exception: of type `conflict`, from the last attempt; or any other.
    """
    for attempt in range(attempts - 1):
        try:
            return commit()
        except conflict as error:
            log.info("%s: committing again after %s", table, type(error).__name__)
        pause = min(pause_s_max, _PAUSE_S * 2**attempt)
        time.sleep(pause * random.uniform(0.5, 1))
    return commit()

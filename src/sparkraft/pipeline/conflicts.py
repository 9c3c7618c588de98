"""Commits to a table beside other writers: tried again after a conflict.

A backfill or a compaction commits beside the running pipeline. Table formats detect that another
writer was first, and leave it to the caller to read the table again.

Not here: the commits themselves (`delta`, `iceberg`, `upkeep`).
"""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 10
"""Each attempt may be a whole merge."""


def commit_with_retries(commit: Callable[[], T], conflict: type[Exception], table: str) -> T:
    """Call `commit` until another writer no longer precedes it; return its result.

    Args:
        commit: reads the table and commits to it, in each call again.
        conflict: the error of the table's library if another writer committed first.
        table: its name in the log.

    Raises:
        Exception: of type `conflict`, from the last of `ATTEMPTS_MAX` attempts; or any other.
    """
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return commit()
        except conflict:
            log.info("%s: another writer committed first, committing again", table)
    return commit()

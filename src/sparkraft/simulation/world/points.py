"""The fault points of the product by name (`env.fault_point("…")`), and their probabilities.

Random faults seldom hit the critical moments. A run enables some of the points. An enabled one may
kill the process, cut its power, pause it or make its disk fail, at exactly that line. A point that
is named after a loss or a delay causes exactly that instead.

Invariant: the product uses exactly these names.
"""

import random
from typing import NamedTuple


class Point(NamedTuple):
    """The probability and the kind of strikes at an enabled point."""

    strike: float
    """Probability of a strike each time the point is reached."""
    loses: bool = False
    """Whether a strike only causes the loss or delay that the name describes."""
    workload: str = "create-topics"
    """The workload that reaches it."""


SELDOM = Point(0.25)
"""Reached a few times a minute."""
OFTEN = Point(0.02)
BUSY = Point(0.004)
"""Reached many times a second."""
CLEANING = Point(0.25, workload="produce-consume")
"""Reached when old records are deleted."""

POINTS: dict[str, Point] = {
    # the quorum: votes, the log, snapshots
    "after_vote_before_fsync": OFTEN,
    "after_vote_before_answer": OFTEN,
    "after_append_before_fsync": BUSY,
    "after_fsync_before_counted": BUSY,
    "before_answering_a_peer": BUSY,
    "after_commit_before_told": BUSY,
    "after_truncation": SELDOM,
    "between_snapshot_chunks": SELDOM,
    "snapshot_fetched_before_install": SELDOM,
    "snapshot_installed_before_told": SELDOM,
    "snapshot_made_before_kept": OFTEN,
    "snapshot_before_rename": OFTEN,
    "log_replaced_before_old_snapshots_go": SELDOM,
    "segments_gone_before_their_snapshot": SELDOM,
    # the controller
    "elected_before_active": SELDOM,
    "decided_before_committed": OFTEN,
    "before_answering_a_create": OFTEN,
    "one_broker_fenced_before_the_next": Point(0.8),
    "sessions_judged_late": Point(0.3, loses=True),
    # the broker
    "registered_before_caught_up": SELDOM,
    "before_controlled_shutdown": SELDOM,
    "heartbeat_lost": Point(0.1, loses=True),
    "answer_to_a_heartbeat_lost": Point(0.1, loses=True),
    "answer_of_the_controller_lost": Point(0.05, loses=True),
    "producer_ids_given_before_used": SELDOM,
    # logs and their files
    "log_folder_made_before_its_files": OFTEN,
    "log_renamed_before_sync": SELDOM,
    "after_roll_before_index": SELDOM,
    "checkpoint_before_rename": OFTEN,
    "between_checkpoints": OFTEN,
    "epochs_synced_before_records": OFTEN,
    "synced_before_recovery_point": OFTEN,
    "truncated_before_epochs": SELDOM,
    "between_truncated_segments": SELDOM,
    "log_cleared_before_started_anew": SELDOM,
    "between_deleted_segments": SELDOM,
    "logs_synced_before_checkpoints": SELDOM,
    "checkpoints_before_clean_shutdown_file": SELDOM,
    # retention and cleaning, which need old records
    "log_start_kept_before_files_go": CLEANING,
    "cleaned_segment_swapped_before_old_ones_go": CLEANING,
    "old_segments_gone_before_the_cleaned_one_has_its_name": CLEANING,
}

ENABLED = 0.3
"""Fraction of the points that a run enables."""


def is_enabled(seed: int, name: str) -> bool:
    """Return whether this seed enables the point, independent of other points."""
    return random.Random(f"{seed} {name}").random() < ENABLED

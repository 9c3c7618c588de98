"""Compares what the log tells of elections with what the controller noted when it decided them."""

from dataclasses import replace

from sparkraft.controller.history import History
from sparkraft.controller.journal import ElectionJournal


def check_against_journal(history: History, journal: ElectionJournal) -> int:
    """Every election of the journal has its event, for the same reasons; how many there were."""
    count = 0
    for entry in journal.entries():
        noted = entry.election
        events = [
            event
            for event in history.partition_events(noted.topic_id, noted.partition)
            if event.after is not None
            and event.after.leader_epoch == noted.leader_epoch
            and event.leader_changed
        ]
        if not events:
            continue  # decided, never committed
        (event,) = events
        assert event.before is not None
        assert event.after is not None
        assert (event.before.leader, event.after.leader) == (noted.previous, noted.leader)
        assert event.election is not None
        # The sentence about the cause is the journal's alone, and so are the controller's files.
        told = replace(event.election, cause=noted.reason.cause)
        assert told == noted.reason, f"{event}\n{noted}"
        assert event.derived
        count += 1
    return count

"""Log levels of what a fetcher reports."""

import logging

import pytest

from sparkraft.replication.fetcher_values import FetcherEvent
from sparkraft.server.broker.fetchers import level_of


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (FetcherEvent("t", 0, "set aside", "why"), logging.WARNING),
        (FetcherEvent("t", 0, "set aside", "why", is_routine=True), logging.DEBUG),
        (FetcherEvent("", -1, "set aside", "why", is_routine=True), logging.INFO),
        (FetcherEvent("t", 0, "failed", "why"), logging.ERROR),
        (FetcherEvent("t", 0, "failed", "why", is_routine=True), logging.DEBUG),
        (FetcherEvent("t", 0, "truncated", "why"), logging.INFO),
    ],
)
def test_routine_events_are_no_warnings(event, level):
    assert level_of(event) == level

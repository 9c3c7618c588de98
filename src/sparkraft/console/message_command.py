"""The `console-consumer` command for a scan of records, and what it does differently."""

from __future__ import annotations

from shlex import quote
from typing import Protocol


class Query(Protocol):
    """Parameters of a scan: a `MessageQuery`."""

    @property
    def topic(self) -> str: ...
    @property
    def partitions(self) -> frozenset[int]: ...
    @property
    def mode(self) -> str: ...
    @property
    def at(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def filter(self) -> str: ...
    @property
    def read_committed(self) -> bool: ...


def command_of(query: Query, bootstrap: str) -> str:
    """Return the command that prints the records of a scan, or the fewest that contain them."""
    words = [f"sparkraft console-consumer --bootstrap-server {bootstrap}"]
    words.append(f"--topic {quote(query.topic)}")
    partition = _only_partition(query)
    if partition is not None:
        begin = {"from-offset": str(query.at), "tail": "latest"}.get(query.mode, "earliest")
        words.append(f"--partition {partition} --offset {begin}")
    elif query.mode != "tail":
        words.append("--from-beginning")
    if _is_exact(query):
        words.append(f"--max-messages {query.count}")
    if query.read_committed:
        words.append("--isolation-level read_committed")
    words.append("--output json")
    return " ".join(words)


def note_of(query: Query) -> str | None:
    """Return which records the command prints that the scan does not; None if there are none."""
    more = []
    if query.mode != "tail" and not _begins_alike(query):
        more.append("from the first one on")
    if len(query.partitions) > 1:
        more.append("of all partitions")
    if query.filter.strip():
        more.append("without the filter")
    return f"The command prints the records {', '.join(more)}." if more else None


def _only_partition(query: Query) -> int | None:
    return next(iter(query.partitions)) if len(query.partitions) == 1 else None


def _begins_alike(query: Query) -> bool:
    """`console-consumer` reads forwards, from the beginning or from an offset of one partition."""
    return query.mode == "earliest" or (
        query.mode == "from-offset" and _only_partition(query) is not None
    )


def _is_exact(query: Query) -> bool:
    return _begins_alike(query) and note_of(query) is None

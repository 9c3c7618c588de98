"""Values that a fetcher gives to its driver: events for the log, and lookups at the leader."""

from typing import NamedTuple

from sparkraft.base.ids import TopicIdPartition


class FetcherEvent(NamedTuple):
    """An event for the broker's log."""

    topic: str
    partition: int
    """-1, with an empty topic, for all partitions."""
    kind: str
    """`truncated`, `restarted`, `set aside`, `failed`, `recovered`."""
    text: str
    is_routine: bool = False
    """Whether leaders that move or restart, or topics that are deleted, are the likely cause."""


class OutOfRange(NamedTuple):
    """A partition that needs the leader's log start and end offsets."""

    key: TopicIdPartition
    topic: str
    partition: int
    leader_epoch: int


class Uncertain(NamedTuple):
    """A partition that needs the leader's end of its newest epoch."""

    key: TopicIdPartition
    topic: str
    partition: int
    leader_epoch: int
    epoch: int
    """The epoch of our last record."""

"""Counters of writes and reads per topic, by clients and followers (Kafka's BrokerTopicStats).

A partition counts its own appends, because a Produce should cost three additions and no call; they
are added to those of its topic when a scrape reads them (`sums`), and when it is hosted no more.

A topic's counters exist while this broker hosts a partition of it. Those of all topics include the
topics that have left, so they never decrease.
"""

from typing import TYPE_CHECKING, Protocol

from sparkraft.base.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from sparkraft.base.loop_work import LoopBound

SUMMED_MAX: "LoopBound" = 500
"""Topics that are summed in one piece: about 2 ms."""


class AppendCounts(Protocol):
    """Counters of appends: a partition's own, or a topic's; see `TopicTraffic`."""

    @property
    def appends(self) -> int: ...
    @property
    def messages_in(self) -> int: ...
    @property
    def bytes_in(self) -> int: ...


EXPECTED_REFUSALS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of an append that Kafka's ReplicaManager does not count as failures."""

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class TopicTraffic:
    """One topic's counters since this broker hosts it.

    Attributes:
        appends: batches that this broker appended as a leader.
        messages_in: their records; a duplicate batch counts as in Kafka.
        bytes_in: their bytes.
        refused: batches of Produce requests that were refused.
        failed: those of them that Kafka counts as failures (`EXPECTED_REFUSALS` has the others).
        bytes_rejected: bytes of batches that were too large.
        bad_crc: batches with a wrong CRC.
        keyless: records without a key for a compacted topic.
        invalid: batches refused for their offsets, counts or sequences.
        fetches: reads by Fetch requests, one for each partition.
        failed_fetches: reads that failed unexpectedly.
        bytes_out: bytes of records sent to consumers.
        replication_bytes_in: bytes of records fetched from leaders.
        replication_bytes_out: bytes of records sent to followers.
    """

    __slots__ = (
        "appends",
        "bad_crc",
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed",
        "failed_fetches",
        "fetches",
        "invalid",
        "keyless",
        "messages_in",
        "refused",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.appends = 0
        self.messages_in = 0
        self.bytes_in = 0
        self.refused = 0
        self.failed = 0
        self.bytes_rejected = 0
        self.bad_crc = 0
        self.keyless = 0
        self.invalid = 0
        self.fetches = 0
        self.failed_fetches = 0
        self.bytes_out = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def on_appends(self, counts: AppendCounts) -> None:
        """Add the counters of a partition."""
        self.appends += counts.appends
        self.messages_in += counts.messages_in
        self.bytes_in += counts.bytes_in

    def on_refused(self, size: int, code: ErrorCode, *, keyless: int) -> None:
        """Count a refused batch as Kafka's ReplicaManager, UnifiedLog and LogValidator do.

        Args:
            size: bytes of the batch.
            code: the error.
            keyless: its records without a key, if that is the reason.
        """
        self.refused += 1
        self.failed += code not in EXPECTED_REFUSALS
        if code in _TOO_LARGE:
            self.bytes_rejected += size
        elif code == ErrorCode.CORRUPT_MESSAGE:
            self.bad_crc += 1
        elif code == ErrorCode.INVALID_RECORD:
            self.keyless += keyless
            self.invalid += not keyless

    def on_read(self) -> None:
        """A partition is read for a Fetch."""
        self.fetches += 1

    def on_failed_read(self) -> None:
        """The read failed unexpectedly."""
        self.failed_fetches += 1

    def on_sent(self, size: int, *, to_follower: bool) -> None:
        """Records are sent in a Fetch response."""
        if to_follower:
            self.replication_bytes_out += size
        else:
            self.bytes_out += size

    def on_replicated(self, size: int) -> None:
        """Records were fetched from a leader."""
        self.replication_bytes_in += size

    def add(self, other: "TopicTraffic") -> None:
        """Add the counters of `other`."""
        self.on_appends(other)
        self.refused += other.refused
        self.failed += other.failed
        self.bytes_rejected += other.bytes_rejected
        self.bad_crc += other.bad_crc
        self.keyless += other.keyless
        self.invalid += other.invalid
        self.fetches += other.fetches
        self.failed_fetches += other.failed_fetches
        self.bytes_out += other.bytes_out
        self.replication_bytes_in += other.replication_bytes_in
        self.replication_bytes_out += other.replication_bytes_out


class BrokerTraffic:
    """The counters of all topics.

    Attributes:
        topics: by name, if a partition is hosted here; appends of their partitions are not added.
        follower_fetches: API version → Fetch requests of followers.
        errors: (API key, error code) → errors of single partitions in Produce and Fetch responses.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.follower_fetches: dict[int, int] = {}
        self.errors: dict[tuple[int, int], int] = {}
        self._replicas: dict[str, int] = {}
        self._ended = TopicTraffic()
        """The sum over topics that are hosted no more."""

    def join(self, topic: str) -> TopicTraffic:
        """The counters of a topic, for one more partition of it."""
        self._replicas[topic] = self._replicas.get(topic, 0) + 1
        traffic = self.topics.get(topic)
        if traffic is None:
            traffic = self.topics[topic] = TopicTraffic()
        return traffic

    def leave(self, topic: str, counts: AppendCounts) -> None:
        """A partition of the topic, with these counters, is hosted no more."""
        self.topics[topic].on_appends(counts)
        left = self._replicas.pop(topic) - 1
        if left:
            self._replicas[topic] = left
        else:
            self._ended.add(self.topics.pop(topic))

    def sums(
        self, appends: "Mapping[str, AppendCounts]"
    ) -> "Generator[None, None, tuple[TopicTraffic, dict[str, TopicTraffic]]]":
        """The counters of all topics since the start, and of each topic, by name.

        Yields after every `SUMMED_MAX` topics.

        Args:
            appends: of the partitions hosted now, by topic.
        """
        topics: dict[str, TopicTraffic] = {}
        total = TopicTraffic()
        total.add(self._ended)
        for number, (name, kept) in enumerate(sorted(self.topics.items())):
            traffic = topics[name] = TopicTraffic()
            traffic.add(kept)
            if name in appends:
                traffic.on_appends(appends[name])
            total.add(traffic)
            if number % SUMMED_MAX == SUMMED_MAX - 1:
                yield
        return total, topics

    def on_follower_fetch(self, version: int) -> None:
        """Count a Fetch request of a follower."""
        self.follower_fetches[version] = self.follower_fetches.get(version, 0) + 1

    def on_error(self, api_key: int, code: int) -> None:
        """Count an error of a partition in a response."""
        key = (api_key, code)
        self.errors[key] = self.errors.get(key, 0) + 1

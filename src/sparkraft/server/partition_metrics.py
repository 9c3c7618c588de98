"""Metrics of a broker's topics and partitions under Kafka's names (`kafka_metrics`).

Kafka has them per partition; a broker with more than `PARTITIONS_MAX` exports only sums, some of
them per topic.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.server.broker.topic_traffic import TopicTraffic
from sparkraft.server.families import counter, counters, gauge, gauge_parts, gauges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.replication.leader import PartitionLeader
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.families import Parts
    from sparkraft.server.status import BrokerStatus

PARTITIONS_MAX = 2_000
"""More series would make scrapes too large, and building them would block the loop."""

_PREFIX = "kafka_server_brokertopicmetrics_"
_LABELS = ("topic", "partition")


TOPICS_MAX = 2_000
"""A broker with more topics exports only the sums over all of them."""

COUNTED_MAX = 500
"""Partitions that are counted in one piece: about 3 ms."""


def partition_metrics(broker: BrokerStatus) -> Parts:
    hosted = list(broker.replica_manager.all_hosted())
    counts = _Counts(broker)
    for at in range(0, len(hosted), COUNTED_MAX):
        for each in hosted[at : at + COUNTED_MAX]:
            counts.add(each)
        yield None
    total, topics = yield from broker.replica_manager.traffic.sums(counts.appends)
    yield from _topic_metrics(total, topics if len(topics) <= TOPICS_MAX else {})
    yield from _replica_metrics(broker, counts, len(hosted))
    yield None
    if len(counts.sizes) <= TOPICS_MAX:
        about = "Bytes of logs on this node"
        sizes = sorted(counts.sizes.items())
        yield from gauge_parts("sparkraft_topic_bytes", about, ("topic",), sizes, _size_row)
    if len(hosted) <= PARTITIONS_MAX:
        hosted.sort(key=_place)
        yield from _log_metrics(hosted)
        yield from _leader_metrics([each for each in hosted if each.leading is not None])


def _size_row(size: tuple[str, int]) -> tuple[tuple[str], int]:
    return (size[0],), size[1]


def _place(hosted: HostedPartition) -> tuple[str, int]:
    return hosted.topic, hosted.index


class _Counts:
    """Sums over the partitions of a broker.

    Attributes:
        appends: the partitions' own counters by topic.
        sizes: bytes by topic.
    """

    def __init__(self, broker: BrokerStatus) -> None:
        self._image = broker.image
        self.appends: dict[str, TopicTraffic] = {}
        self.sizes: dict[str, int] = {}
        self.led = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.reassigning = 0
        self.producers = 0
        self.waiting_produces = 0
        self.waiting_deletions = 0

    def add(self, hosted: HostedPartition) -> None:
        topic = hosted.topic
        traffic = self.appends.get(topic)
        if traffic is None:
            traffic = self.appends[topic] = TopicTraffic()
        traffic.on_appends(hosted)
        self.sizes[topic] = self.sizes.get(topic, 0) + hosted.log.size_in_bytes
        self.producers += len(hosted.log.producers)
        leading = hosted.leading
        if leading is None:
            return
        self.led += 1
        self.under_replicated += _is_under_replicated(leading)
        self.under_min_isr += leading.is_under_min_insync
        self.at_min_isr += _is_at_min_isr(leading)
        self.reassigning += _is_reassigning(self._image, hosted)
        produces, deletions = hosted.waiting
        self.waiting_produces += produces
        self.waiting_deletions += deletions


# ---- topics


def _topic_metrics(total: TopicTraffic, topics: dict[str, TopicTraffic]) -> Iterator[Metric]:
    for name, about, value in _OF_TOPICS:
        rows: list[tuple[Sequence[str], float]] = [((), value(total))]
        rows += [((topic,), value(each)) for topic, each in topics.items() if value(each)]
        yield _by_topic(_PREFIX + name, about, rows)
    for name, about, value in _OF_BROKER:
        yield counter(_PREFIX + name, about, value(total))


def _by_topic(name: str, about: str, rows: Sequence[tuple[Sequence[str], float]]) -> Metric:
    """A sample without labels for all topics, then one per topic that has any, as in Kafka."""
    family = counters(name, about, ("topic",), rows[1:])
    family.samples.insert(0, counter(name, about, rows[0][1]).samples[0])
    return family


_OF_TOPICS: tuple[tuple[str, str, Callable[[TopicTraffic], int]], ...] = (
    ("messagesin", "Records appended by producers", lambda t: t.messages_in),
    ("bytesin", "Bytes appended by producers", lambda t: t.bytes_in),
    ("bytesout", "Bytes of records sent to consumers", lambda t: t.bytes_out),
    ("bytesrejected", "Bytes of batches refused for their size", lambda t: t.bytes_rejected),
    (
        "totalproducerequests",
        "Batches in Produce requests, appended or refused, one per partition",
        lambda t: t.appends + t.refused,
    ),
    (
        "failedproducerequests",
        "Batches refused other than for leadership, size, CRC or disk",
        lambda t: t.failed,
    ),
    ("totalfetchrequests", "Reads by Fetch requests, one per partition", lambda t: t.fetches),
    ("failedfetchrequests", "Reads that failed unexpectedly", lambda t: t.failed_fetches),
)
"""Counters that Kafka has per topic, too."""

_OF_BROKER: tuple[tuple[str, str, Callable[[TopicTraffic], int]], ...] = (
    (
        "replicationbytesin",
        "Bytes of records fetched from leaders",
        lambda t: t.replication_bytes_in,
    ),
    (
        "replicationbytesout",
        "Bytes of records sent to followers",
        lambda t: t.replication_bytes_out,
    ),
    ("invalidmessagecrcrecords", "Batches refused for a wrong CRC", lambda t: t.bad_crc),
    (
        "invalidoffsetorsequencerecords",
        "Batches refused for their offsets, counts or sequences",
        lambda t: t.invalid,
    ),
    (
        "nokeycompactedtopicrecords",
        "Records without a key refused by compacted topics",
        lambda t: t.keyless,
    ),
)


# ---- replicas


def _replica_metrics(broker: BrokerStatus, counts: _Counts, hosted: int) -> Iterator[Metric]:
    """Under Kafka's name and ours, if there are two."""
    prefix = "kafka_server_replicamanager_"
    for name, own, about, value in (
        ("partitioncount", "partitions_hosted", "Replicas on this node", hosted),
        ("leadercount", "partitions_led", "Partitions this node leads", counts.led),
        (
            "underreplicatedpartitions",
            "partitions_under_replicated",
            "Partitions led here with an out-of-sync replica",
            counts.under_replicated,
        ),
        (
            "underminisrpartitioncount",
            "partitions_under_min_isr",
            "Partitions led here that reject acks=all",
            counts.under_min_isr,
        ),
        (
            "atminisrpartitioncount",
            "partitions_at_min_isr",
            "Partitions led here that would reject acks=all with one less in-sync replica",
            counts.at_min_isr,
        ),
        (
            "reassigningpartitions",
            "",
            "Partitions led here that are being reassigned",
            counts.reassigning,
        ),
        (
            "offlinereplicacount",
            "",
            "Replicas whose disk failed",
            broker.replica_manager.lost_count,
        ),
        ("produceridcount", "", "Producer ids that the logs remember", counts.producers),
    ):
        yield gauge(prefix + name, about, value)
        if own:
            yield gauge(f"sparkraft_{own}", about, value)
    yield from _waiting_requests(broker, counts)
    journal = broker.isr_journal
    for name, own, about, value in (
        (
            "isrexpands",
            "expansions",
            "Followers added to the ISR of a partition led here",
            journal.expansions,
        ),
        (
            "isrshrinks",
            "shrinkings",
            "Times followers were removed from the ISR of a partition led here",
            journal.shrinkings,
        ),
        (
            "failedisrupdates",
            "failures",
            "ISR changes that the controller refused",
            broker.isr_changes.failures,
        ),
    ):
        yield counter(prefix + name, about, value)
        yield counter(f"sparkraft_isr_{own}", about, value)
    yield from _follower_metrics(broker)


def _waiting_requests(broker: BrokerStatus, counts: _Counts) -> Iterator[Metric]:
    rows = (
        (("DeleteRecords",), counts.waiting_deletions),
        (("Fetch",), broker.replica_manager.wheel.parked),
        (("Produce",), counts.waiting_produces),
    )
    for name in ("purgatorysize", "numdelayedoperations"):
        yield gauges(
            f"kafka_server_delayedoperationpurgatory_{name}",
            "Requests that wait for records or followers",
            ("delayedOperation",),
            rows,
        )


def _follower_metrics(broker: BrokerStatus) -> Iterator[Metric]:
    yield gauge(
        "kafka_server_replicafetchermanager_failedpartitionscount",
        "Partitions that will not be fetched until a later leader epoch",
        broker.fetchers.failed,
    )
    yield gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "Largest lag of a followed partition, in records below the leader's high watermark",
        max((each.core.max_lag() for each in broker.fetchers.in_order()), default=0),
    )


def _is_reassigning(image: ClusterImage, hosted: HostedPartition) -> bool:
    state = image.partition(hosted.topic_id, hosted.index)
    return state is not None and state.is_reassigning


def _is_under_replicated(leading: PartitionLeader) -> bool:
    return len(leading.in_sync.isr) <= len(leading.followers)


def _is_at_min_isr(leading: PartitionLeader) -> bool:
    return len(leading.in_sync.isr) == leading.min_insync_effective


# ---- one series per partition


def _log_metrics(hosted: Sequence[HostedPartition]) -> Iterator[Metric]:
    for name, about, value in _OF_LOGS:
        yield from gauge_parts(name, about, _LABELS, hosted, partial(_log_row, value))


def _log_row(value: Callable[[Any], int], hosted: HostedPartition) -> tuple[tuple[str, str], int]:
    return (hosted.topic, str(hosted.index)), value(hosted.log)


_OF_LOGS: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
    ("kafka_log_log_size", "Bytes of the log", lambda log: log.size_in_bytes),
    ("kafka_log_log_numlogsegments", "Segments of the log", lambda log: log.segment_count),
    ("kafka_log_log_logstartoffset", "Log start offset", lambda log: log.log_start_offset),
    ("sparkraft_log_start_offset", "Log start offset", lambda log: log.log_start_offset),
    ("kafka_log_log_logendoffset", "Log end offset", lambda log: log.log_end_offset),
    (
        "sparkraft_log_end_offset",
        "Log end offset: after the last record",
        lambda log: log.log_end_offset,
    ),
    (
        "sparkraft_high_watermark",
        "High watermark: consumers read up to it",
        lambda log: log.high_watermark,
    ),
)


def _leader_metrics(leading: Sequence[HostedPartition]) -> Iterator[Metric]:
    """Of the partitions led here, as in Kafka."""
    prefix = "kafka_cluster_partition_"
    for name, about, value in _OF_LEADERS:
        yield from gauge_parts(prefix + name, about, _LABELS, leading, partial(_row, value))


def _row(value: Callable[[Any], int], hosted: HostedPartition) -> tuple[tuple[str, str], int]:
    return (hosted.topic, str(hosted.index)), value(hosted)


_OF_LEADERS: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
    (
        "underreplicated",
        "1 if a replica is out of sync",
        lambda each: int(_is_under_replicated(each.leading)),
    ),
    (
        "underminisr",
        "1 with fewer in-sync replicas than min.insync.replicas",
        lambda each: int(each.leading.is_under_min_insync),
    ),
    (
        "atminisr",
        "1 with exactly min.insync.replicas in-sync replicas",
        lambda each: int(_is_at_min_isr(each.leading)),
    ),
    ("insyncreplicascount", "In-sync replicas", lambda each: len(each.leading.in_sync.isr)),
    ("replicascount", "Replicas", lambda each: len(each.leading.followers) + 1),
    (
        "laststableoffsetlag",
        "Records between the last stable offset and the high watermark",
        lambda each: max(each.log.high_watermark - each.log.last_stable_offset, 0),
    ),
)

"""Metrics of a broker's topics and partitions under Kafka's names (`kafka_metrics`).

Kafka has them per partition; a broker with more than `PARTITIONS_MAX` exports only sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.server.families import counter, counters, gauge, gauges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.replication.leader import PartitionLeader
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.topic_traffic import TopicTraffic
    from sparkraft.server.status import BrokerStatus

PARTITIONS_MAX = 2_000
"""More series would make scrapes too large, and building them would block the loop."""

_PREFIX = "kafka_server_brokertopicmetrics_"
_LABELS = ("topic", "partition")


def partition_metrics(broker: BrokerStatus) -> Iterator[Metric]:
    hosted = list(broker.replica_manager.all_hosted())
    sums = broker.replica_manager.traffic.sums((each.topic, each) for each in hosted)
    yield from _topic_metrics(*sums)
    yield from _replica_metrics(broker, hosted)
    if len(hosted) <= PARTITIONS_MAX:
        hosted.sort(key=lambda each: (each.topic, each.index))
        yield from _log_metrics(hosted)
        yield from _leader_metrics(hosted)


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


def _replica_metrics(broker: BrokerStatus, hosted: Sequence[HostedPartition]) -> Iterator[Metric]:
    leading = [(each, each.leading) for each in hosted if each.leading is not None]
    prefix = "kafka_server_replicamanager_"
    for name, about, value in (
        ("partitioncount", "Replicas on this broker", len(hosted)),
        ("leadercount", "Partitions this broker leads", len(leading)),
        (
            "underreplicatedpartitions",
            "Partitions led here with an out-of-sync replica",
            sum(_is_under_replicated(state) for _, state in leading),
        ),
        (
            "underminisrpartitioncount",
            "Partitions led here with fewer in-sync replicas than min.insync.replicas",
            sum(state.is_under_min_insync for _, state in leading),
        ),
        (
            "atminisrpartitioncount",
            "Partitions led here with exactly min.insync.replicas in-sync replicas",
            sum(_is_at_min_isr(state) for _, state in leading),
        ),
        (
            "reassigningpartitions",
            "Partitions led here that are being reassigned",
            sum(_is_reassigning(broker.image, each) for each, _ in leading),
        ),
        ("offlinereplicacount", "Replicas whose disk failed", broker.replica_manager.lost_count),
    ):
        yield gauge(prefix + name, about, value)
    waiting = [each.waiting for each, _ in leading]
    rows = (
        (("DeleteRecords",), sum(deletions for _, deletions in waiting)),
        (("Fetch",), broker.replica_manager.wheel.parked),
        (("Produce",), sum(produces for produces, _ in waiting)),
    )
    for name in ("purgatorysize", "numdelayedoperations"):
        yield gauges(
            f"kafka_server_delayedoperationpurgatory_{name}",
            "Requests that wait for records or followers",
            ("delayedOperation",),
            rows,
        )
    yield gauge(
        f"{prefix}produceridcount",
        "Producer ids that the logs remember",
        sum(len(each.log.producers) for each in hosted),
    )
    journal = broker.isr_journal
    for name, about, value in (
        ("isrexpands", "Followers added to the ISR of a partition led here", journal.expansions),
        ("isrshrinks", "Followers removed from the ISR of one led here", journal.shrinkings),
        (
            "failedisrupdates",
            "ISR changes that the controller refused",
            broker.isr_changes.failures,
        ),
    ):
        yield counter(prefix + name, about, value)
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
        rows = (((each.topic, str(each.index)), value(each.log)) for each in hosted)
        yield gauges(f"kafka_log_log_{name}", about, _LABELS, rows)


_OF_LOGS: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
    ("size", "Bytes of the log", lambda log: log.size_in_bytes),
    ("numlogsegments", "Segments of the log", lambda log: log.segment_count),
    ("logstartoffset", "Log start offset", lambda log: log.log_start_offset),
    ("logendoffset", "Log end offset", lambda log: log.log_end_offset),
)


def _leader_metrics(hosted: Sequence[HostedPartition]) -> Iterator[Metric]:
    """Of the partitions led here, as in Kafka."""
    leading = [each for each in hosted if each.leading is not None]
    for name, about, value in _OF_LEADERS:
        rows = (((each.topic, str(each.index)), value(each)) for each in leading)
        yield gauges(f"kafka_cluster_partition_{name}", about, _LABELS, rows)


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

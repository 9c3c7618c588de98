"""A node's metrics for Prometheus, read from its state at every scrape.

Names start with `sparkraft_`, or are those of dashboards for Apache Kafka (`kafka_metrics`,
`partition_metrics`). Label values are bounded: a node with more than `PARTITIONS_MAX` partitions
exports no series per partition. Between scrapes metrics cost a few additions per request.

Loaded by `http` at the first scrape, so that prometheus_client does not slow the start.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.process_collector import ProcessCollector

from sparkraft import __version__
from sparkraft.server.client_metrics import client_metrics
from sparkraft.server.coordinator_metrics import coordinator_metrics
from sparkraft.server.families import gauge, head_of, lines_of
from sparkraft.server.health import health_of
from sparkraft.server.kafka_metrics import controller_metrics, kafka_metrics
from sparkraft.server.loop_monitor import LAG_MS_BUCKETS, LONG_PIECE_MS
from sparkraft.server.partition_metrics import partition_metrics
from sparkraft.server.replication_metrics import replication_metrics
from sparkraft.server.zookeeper_metrics import zookeeper_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from sparkraft.base.loop_work import LoopBound
    from sparkraft.server.families import Parts
    from sparkraft.server.loop_monitor import LoopMonitor
    from sparkraft.server.status import BrokerStatus, NodeStatus

CONTENT_TYPE = CONTENT_TYPE_LATEST

WALKED_MAX: LoopBound = 15_000
"""Partitions of a cluster that a scrape iterates over: about 8 ms."""


SAMPLES_MAX: LoopBound = 500
"""Samples rendered in one piece: about 2 ms."""

_AUTHENTICATIONS = {
    "successful_authentications": "Clients that authenticated by SASL",
    "failed_authentications": "Clients that failed to authenticate by SASL",
    "successful_reauthentications": "Re-authentications of SASL clients (KIP-368)",
    "failed_reauthentications": "Re-authentications that failed",
    "expired_connections_killed": "Connections closed because their session had expired",
}
"""Counters of SASL listeners, with Kafka's names; `SaslGates.counters` returns them."""


FAMILY_SAMPLES = 10
"""A family costs as much as this many samples."""


def exposition(node: NodeStatus) -> Iterator[bytes]:
    """The node's metrics in Prometheus' text format, in pieces of about `SAMPLES_MAX` samples.

    A piece may be empty: it ends a part of the counting.
    """
    piece: list[str] = []
    size = 0
    for family in parts(node):
        if family is not None:
            samples = family.samples
            piece.append(head_of(family))
            for at in range(0, len(samples), SAMPLES_MAX):
                part = samples[at : at + SAMPLES_MAX]
                piece.append(lines_of(part))
                size += len(part)
                if size >= SAMPLES_MAX:
                    yield "".join(piece).encode()
                    piece, size = [], 0
            size += FAMILY_SAMPLES
        if family is None or size >= SAMPLES_MAX:
            yield "".join(piece).encode()
            piece, size = [], 0
    yield "".join(piece).encode()


def parts(node: NodeStatus) -> Parts:
    """The node's metrics, in parts (`families`)."""
    return chain(ProcessCollector(registry=None).collect(), _NodeCollector(node).collect())


class _NodeCollector:
    def __init__(self, node: NodeStatus) -> None:
        self._node = node

    def collect(self) -> Parts:
        yield from self._node_metrics()
        yield from self._network_metrics()
        yield from _loop_metrics(self._node.loop_monitor)
        if self._node.raft is not None:
            yield from self._raft_metrics(self._node.raft)
        services = self._node.controller_services
        if services is not None:
            yield from self._controller_metrics(services.controller)
            yield from controller_metrics(services.controller, services.image, services.raft)
        if self._node.zookeeper is not None:
            yield from zookeeper_metrics(self._node.zookeeper)
        if self._node.channel is not None:
            waiting = self._node.channel.waiting
            yield _gauge(
                "forwarding_queue", "Requests to the controller without a response", waiting
            )
        if self._node.broker is not None:
            yield from self._cluster_metrics(self._node.broker.image)
            yield from self._disk_metrics(self._node.broker)
            yield from replication_metrics(self._node.broker)
            yield from partition_metrics(self._node.broker)
            yield from coordinator_metrics(self._node.broker)
            yield from client_metrics(self._node.broker.telemetry)
        yield from kafka_metrics(self._node)

    def describe(self) -> list[Metric]:
        """Empty: the metrics depend on the node's roles."""
        return []

    def _node_metrics(self) -> Iterator[Metric]:
        identity = self._node.identity
        yield InfoMetricFamily(
            "sparkraft_node",
            "Identity of this node",
            value={
                "node_id": str(self._node.config.node_id),
                "cluster_id": identity.cluster_id if identity is not None else "",
                "version": __version__,
            },
        )
        health = health_of(self._node)
        yield _gauge("node_healthy", "1 while /health returns 200", int(health["healthy"]))

    def _network_metrics(self) -> Iterator[Metric]:
        names = ["listener"]
        open_now = GaugeMetricFamily("sparkraft_connections", "Open connections", labels=names)
        accepted = CounterMetricFamily(
            "sparkraft_connections_accepted", "Connections accepted since the start", labels=names
        )
        sent = CounterMetricFamily("sparkraft_sent_bytes", "Bytes of responses", labels=names)
        bad = CounterMetricFamily(
            "sparkraft_bad_requests",
            "Connections closed because of malformed requests",
            labels=names,
        )
        for listener in self._node.listeners:
            open_now.add_metric([listener.name], listener.connections)
            accepted.add_metric([listener.name], listener.connections_total)
            sent.add_metric([listener.name], listener.bytes_out)
            bad.add_metric([listener.name], listener.bad_requests)
        yield from (open_now, accepted, sent, bad)
        yield from self._authentication_metrics()

    def _authentication_metrics(self) -> Iterator[Metric]:
        counters = {
            listener.name: listener.gates.counters()
            for listener in self._node.listeners
            if listener.gates is not None
        }
        for name, about in _AUTHENTICATIONS.items():
            counted = CounterMetricFamily(f"sparkraft_{name}", about, labels=["listener"])
            for listener_name, counts in counters.items():
                counted.add_metric([listener_name], counts[name])
            yield counted

    def _raft_metrics(self, raft: Any) -> Iterator[Metric]:
        known = raft.leader_and_epoch
        leader = -1 if known.leader_id is None else known.leader_id
        yield _gauge("raft_leader_id", "Id of the active controller; -1 if there is none", leader)
        yield _gauge("raft_epoch", "Epoch of the metadata quorum", known.epoch)
        yield _gauge("raft_is_leader", "1 on the active controller", int(raft.is_leader))
        yield _gauge(
            "raft_high_watermark", "High watermark of the metadata log", raft.high_watermark
        )
        yield _gauge(
            "raft_log_end_offset",
            "Log end offset of the metadata log on this node",
            raft.log_end_offset,
        )
        state = GaugeMetricFamily(
            "sparkraft_raft_state", "1 for the current state", labels=["state"]
        )
        for name in _STATES:
            state.add_metric([name.lower()], int(raft.state_name == name))
        yield state
        yield from self._election_metrics(raft)
        yield from _follower_lags(raft)

    def _election_metrics(self, raft: Any) -> Iterator[Metric]:
        journal = raft.journal
        about = "Time since this node last had a leader"
        yield _gauge("raft_leaderless_ms", about, raft.leaderless_ms)
        about = "From losing a leader to learning the next one, as seen by this node; sum and count"
        yield CounterMetricFamily("sparkraft_raft_elections", about, value=journal.elections)
        total = journal.election_ms_total
        yield CounterMetricFamily("sparkraft_raft_election_ms", about, value=total)
        yield _gauge("raft_election_ms_last", "The last election", journal.election_ms_last)
        yield _gauge(
            "raft_election_ms_max", "The longest election since the start", journal.election_ms_max
        )

    def _controller_metrics(self, controller: Any) -> Iterator[Metric]:
        yield _gauge("controller_active", "1 on the active controller", int(controller.is_active))
        times = controller.timings
        for name, about, spent in (
            ("event_queue", "Requests: from their last byte to the decision", times.queued),
            ("event_processing", "Requests: deciding, appending, replaying", times.processing),
            ("commit", "Requests: from the append to the commit", times.committing),
        ):
            yield CounterMetricFamily(
                f"sparkraft_controller_{name}_ms", about, value=spent.total_ms
            )
            yield CounterMetricFamily(f"sparkraft_controller_{name}s", about, value=spent.count)
            yield _gauge(f"controller_{name}_ms_max", about, spent.max_ms)
        elections = CounterMetricFamily(
            "sparkraft_partition_elections",
            "Elections of partition leaders that this controller decided",
            labels=["kind"],
        )
        for kind, count in sorted(controller.core.journal.counts.items()):
            elections.add_metric([kind], count)
        yield elections
        yield from _leadership_metrics(controller.image, is_active=controller.is_active)

    def _cluster_metrics(self, image: Any) -> Iterator[Metric]:
        fenced = sum(1 for registration in image.brokers.values() if registration.fenced)
        brokers = GaugeMetricFamily("sparkraft_brokers", "Registered brokers", labels=["state"])
        brokers.add_metric(["active"], len(image.brokers) - fenced)
        brokers.add_metric(["fenced"], fenced)
        yield brokers
        yield _gauge("topics", "Topics in the cluster", len(image.topics_by_id))
        yield _gauge("metadata_offset", "Last metadata offset applied on this node", image.offset)

    def _disk_metrics(self, broker: BrokerStatus) -> Iterator[Metric]:
        offline = len(broker.log_manager.offline_directories)
        yield _gauge("log_dirs_offline", "Log directories that failed", offline)
        manager = broker.log_manager
        damaged = len(manager.damaged) + len(manager.damage.reads)
        yield _gauge("partitions_damaged", "Replicas with damaged files", damaged)
        cleaner = broker.compaction.manager
        about = "Replicas that cannot be compacted; see the log for the reason"
        yield _gauge("partitions_uncleanable", about, len(cleaner.uncleanable))
        yield CounterMetricFamily(
            "sparkraft_log_cleanings", "Logs compacted since the start", value=cleaner.cleanings
        )


def _loop_metrics(monitor: LoopMonitor) -> Iterator[Metric]:
    """How late the event loop runs, in seconds as Prometheus recommends."""
    buckets = []
    count = 0
    bounds = [str(bound / 1000) for bound in LAG_MS_BUCKETS]
    for bound, samples in zip([*bounds, "+Inf"], monitor.lag_counts, strict=True):
        count += samples
        buckets.append((bound, count))
    yield HistogramMetricFamily(
        "sparkraft_loop_lag_seconds",
        "How late timers of the event loop run",
        buckets=buckets,
        sum_value=monitor.lag_ms_total / 1000,
    )
    yield _gauge(
        "loop_lag_seconds_max", "The largest lag since the start", monitor.lag_ms_max / 1000
    )
    about = f"Requests and task steps that kept the event loop for {LONG_PIECE_MS} ms or more"
    yield CounterMetricFamily("sparkraft_loop_long_pieces", about, value=monitor.long_pieces)


def _leadership_metrics(image: Any, *, is_active: bool) -> Iterator[Metric]:
    """Missing, non-preferred leaders and small ISRs; skipped in a very large cluster.

    Kafka's names are exported by every controller, as in Kafka, ours by the active one.
    """
    partitions = sum(len(topic.partitions) for topic in image.topics_by_id.values())
    prefix = "kafka_controller_kafkacontroller_"
    yield gauge(f"{prefix}globalpartitioncount", "Partitions in the cluster", partitions)
    if partitions > WALKED_MAX:
        return
    offline = imbalanced = below = 0
    for topic in image.topics_by_id.values():
        for partition in topic.partitions.values():
            offline += partition.leader < 0
            imbalanced += partition.leader != partition.preferred_leader
            below += len(partition.isr) < len(partition.replicas)
    about = "Partitions without a leader"
    yield gauge(f"{prefix}offlinepartitionscount", about, offline)
    if is_active:
        yield _gauge("partitions_offline", about, offline)
    about = "Partitions not led by their preferred replica"
    yield gauge(f"{prefix}preferredreplicaimbalancecount", about, imbalanced)
    if is_active:
        yield _gauge("partitions_imbalanced", about, imbalanced)
        about = "Partitions with an out-of-sync replica"
        yield _gauge("partitions_out_of_sync", about, below)


_STATES = ("Unattached", "Prospective", "Candidate", "Follower", "Leader", "Resigned")


def _follower_lags(raft: Any) -> Iterator[Metric]:
    """The followers' lags, on the active controller only."""
    found = raft.describe()
    if found is None:
        return
    labels = ["node_id", "role"]
    lag = GaugeMetricFamily(
        "sparkraft_raft_follower_lag", "Records the replica lacks", labels=labels
    )
    caught_up = GaugeMetricFamily(
        "sparkraft_raft_follower_caught_up_ms",
        "When it last had every record, ms since 1970",
        labels=labels,
    )
    for role, replicas in (("voter", found.voters), ("observer", found.observers)):
        for replica in replicas:
            names = [str(replica.key.id), role]
            lag.add_metric(names, raft.log_end_offset - replica.log_end_offset)
            caught_up.add_metric(names, replica.last_caught_up_ms)
    yield from (lag, caught_up)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"sparkraft_{name}", about, value=value)

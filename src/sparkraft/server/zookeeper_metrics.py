"""Metrics of a node in ZooKeeper mode, under the names of dashboards for Kafka 3.9.

The names are those of jmx_exporter for Kafka's MBeans `kafka.controller` of ZooKeeper mode
(`KafkaController`, `ControllerStats`, `ControllerEventManager`, `ControllerChannelManager`) and
`kafka.server:type=SessionExpireListener`. As in Kafka, a node that is not the controller exports
zeros. Counts of partitions are left out above `WALKED_MAX`.

Differences from Kafka 3.9: times are counters of events and milliseconds, not percentiles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.server.families import counter, counters, gauge, gauges
from sparkraft.zookeeper.controller.states import ReplicaStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from sparkraft.base.loop_work import LoopBound
    from sparkraft.server.zookeeper.own_controller import OwnController
    from sparkraft.server.zookeeper.status import ZooKeeperStatus
    from sparkraft.zookeeper.controller.context import ControllerContext

WALKED_MAX: LoopBound = 4_000
"""Partitions that a scrape iterates over: about 8 ms, twice and with their replicas."""

_STATES = {
    "Idle": 0,
    "ControllerChange": 1,
    "BrokerChange": 2,
    "TopicChange": 3,
    "TopicDeletion": 4,
    "AlterPartitionReassignment": 5,
    "AutoLeaderBalance": 6,
    "ManualLeaderBalance": 7,
    "ControlledShutdown": 8,
    "IsrChange": 9,
    "LeaderAndIsrResponseReceived": 10,
    "LogDirChange": 11,
    "ControllerShutdown": 12,
    "UncleanLeaderElectionEnable": 13,
    "TopicUncleanLeaderElectionEnable": 14,
    "ListPartitionReassignment": 15,
    "UpdateMetadataResponseReceived": 16,
    "UpdateFeatures": 17,
}
"""Values of ControllerState."""

_TIMERS = {
    "BrokerChange": "LeaderElection",
    "AlterPartitionReassignment": "PartitionReassignment",
}
"""States whose timer has another name in Kafka."""

_UNCLEAN = ("unclean", "last known leader (unclean)")

_PREFIX = "kafka_controller_"


def zookeeper_metrics(status: ZooKeeperStatus) -> Iterator[Metric]:
    """Of a node in ZooKeeper mode."""
    yield gauge(
        "sparkraft_zookeeper_connected",
        "1 while the ZooKeeper session has a connection",
        int(status.session.is_connected),
    )
    yield counter(
        "kafka_server_sessionexpirelistener_zookeeperexpires",
        "Sessions that have expired",
        status.session.expired,
    )
    yield from _controller_gauges(status.controller)
    yield from _partition_counts(status.controller.context)
    yield from _event_metrics(status.controller)
    yield from _channel_metrics(status.controller)


def _controller_gauges(controller: OwnController) -> Iterator[Metric]:
    context = controller.context
    prefix = f"{_PREFIX}kafkacontroller_"
    for name, about, value in (
        ("activecontrollercount", "1 on the controller", int(controller.is_active)),
        ("activebrokercount", "Live brokers", len(context.live_brokers)),
        ("fencedbrokercount", "0: ZooKeeper mode fences no broker", 0),
        ("globaltopiccount", "Topics in the cluster", len(context.topics)),
        ("globalpartitioncount", "Partitions in the cluster", len(context.leaderships)),
        ("controllerstate", "Kafka's number of the running event", _STATES[controller.state]),
        ("topicstodeletecount", "Topics to be deleted", len(context.topics_to_be_deleted)),
        (
            "topicsineligibletodeletecount",
            "Topics whose deletion waits for a broker or a reassignment",
            len(context.topics_ineligible_for_deletion),
        ),
        ("zkmigrationstate", "4: the controller is that of ZooKeeper", 4),
    ):
        yield gauge(prefix + name, about, value)


def _partition_counts(context: ControllerContext) -> Iterator[Metric]:
    if len(context.partition_statuses) > WALKED_MAX:
        return
    prefix = f"{_PREFIX}kafkacontroller_"
    yield gauge(
        f"{prefix}offlinepartitionscount",
        "Partitions whose leader is not online",
        context.offline_partition_count(),
    )
    yield gauge(
        f"{prefix}preferredreplicaimbalancecount",
        "Partitions not led by their preferred replica",
        context.preferred_imbalance_count(),
    )
    deleted = list(context.replicas(context.topics_to_be_deleted))
    yield gauge(f"{prefix}replicastodeletecount", "Replicas to be deleted", len(deleted))
    ineligible = sum(
        context.replica_status(each) is ReplicaStatus.DELETION_INELIGIBLE for each in deleted
    )
    about = "Replicas whose deletion waits"
    yield gauge(f"{prefix}replicasineligibletodeletecount", about, ineligible)


def _event_metrics(controller: OwnController) -> Iterator[Metric]:
    prefix = f"{_PREFIX}controllereventmanager_"
    about = "Events that wait for the controller"
    yield gauge(f"{prefix}eventqueuesize", about, len(controller.task.queue))
    queued = controller.queue_times
    yield counter(f"{prefix}eventqueuetimems", "Events handled", queued.count)
    yield counter(f"{prefix}eventqueuetimems_sum", "How long they waited, in ms", queued.total_ms)
    prefix = f"{_PREFIX}controllerstats_"
    counts = controller.elections
    unclean = sum(counts.get(kind, 0) for kind in _UNCLEAN)
    yield counter(f"{prefix}uncleanleaderelections", "Unclean elections", unclean)
    for state, times in sorted(controller.state_times.items()):
        name = f"{prefix}{_TIMERS.get(state, state).lower()}rateandtimems"
        yield counter(name, f"Events handled in the state {state}", times.count)
        yield counter(f"{name}_sum", "How long they took, in ms", times.total_ms)


def _channel_metrics(controller: OwnController) -> Iterator[Metric]:
    prefix = f"{_PREFIX}controllerchannelmanager_"
    channels = controller.channels
    about = "Requests to brokers without a response"
    yield gauge(f"{prefix}totalqueuesize", about, channels.queued)
    rows = sorted(channels.by_broker.items())
    yield gauges(
        f"{prefix}queuesize",
        "Requests to one broker without a response",
        ("broker_id",),
        (((str(broker),), len(each.queue)) for broker, each in rows),
    )
    yield counters(
        f"{prefix}requestrateandqueuetimems",
        "Requests to one broker that were answered",
        ("broker_id",),
        (((str(broker),), each.sent) for broker, each in rows),
    )
    yield counters(
        f"{prefix}requestrateandqueuetimems_sum",
        "How long they waited for their turn, in ms",
        ("broker_id",),
        (((str(broker),), each.waited_ms) for broker, each in rows),
    )

"""A node's metrics under the names that dashboards for Apache Kafka use.

The names are those of jmx_exporter 1.0 with its rules for KRaft (`kafka-kraft-3_0_0.yml`), and the
15 of Strimzi's rules that its dashboards and alerts use. Metrics of threads are those of the event
loop here. Zeros are left out: only requests that were received are exported.

Not here: topics and partitions (`partition_metrics`), metrics that Kafka does not have (`metrics`).
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client.core import HistogramMetricFamily

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.security.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from sparkraft.server.families import counter, counters, gauge, gauges
from sparkraft.server.network.request_times import BOUNDS_MS, Histogram, RequestTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.metrics_core import Metric

    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker.topic_traffic import BrokerTraffic
    from sparkraft.server.network.dispatch import Route
    from sparkraft.server.raft.driver import RaftDriver
    from sparkraft.server.status import BrokerStatus, NodeStatus

_UNCLEAN = ("unclean", "last known leader (unclean)")
_ELR = ("eligible leader replica",)
"""Names of elections in `controller.journal.ElectionJournal.counts`."""


CLIENTS_MAX = 500
"""Clients whose rates are exported: they choose their ids, so there may be very many."""

_RESOURCES = {PRODUCER_BYTE_RATE: "Produce", CONSUMER_BYTE_RATE: "Fetch"}


def kafka_metrics(node: NodeStatus) -> Iterator[Metric]:
    yield from _network_metrics(node)
    yield from _request_metrics(node)
    if node.raft is not None:
        yield from _raft_metrics(node.raft)
    if node.broker is not None:
        yield from _broker_metrics(node, node.broker)


# ---- requests


class _Requests:
    """Sums of requests over listeners, versions and kinds.

    Attributes:
        times: by API.
        requests: by API and version; Fetch is the sum of its two kinds.
        errors: by API and error.
    """

    def __init__(self) -> None:
        self.times: dict[str, RequestTimes] = {}
        self.requests: dict[tuple[str, str], int] = {}
        self.errors: dict[tuple[str, str], int] = {}

    def add_route(self, route: Route, *, controller_listener: bool) -> None:
        name, version = API_INFO[route.api.key].name, str(route.version)
        _add(self.requests, (name, version), route.times.requests)
        route.times.add_to(self.times.setdefault(name, RequestTimes()))
        if route.api.key == ApiKey.FETCH and controller_listener:
            _add(self.requests, ("FetchFollower", version), route.times.requests)
        for code, count in route.errors.items():
            _add(self.errors, (name, _error_name(code)), count)

    def add_traffic(self, traffic: BrokerTraffic) -> None:
        for version, count in traffic.follower_fetches.items():
            _add(self.requests, ("FetchFollower", str(version)), count)
        for (key, code), count in traffic.errors.items():
            _add(self.errors, (API_INFO[ApiKey(key)].name, _error_name(code)), count)

    def add_consumers(self) -> None:
        """Add the fetches of consumers: those that are not followers'."""
        for (name, version), count in list(self.requests.items()):
            if name == "Fetch":
                followers = self.requests.get(("FetchFollower", version), 0)
                _add(self.requests, ("FetchConsumer", version), max(count - followers, 0))


def _request_metrics(node: NodeStatus) -> Iterator[Metric]:
    seen = _Requests()
    for listener in node.listeners:
        for route in listener.routes.by_code.values():
            seen.add_route(route, controller_listener=listener.controller_listener)
    if node.broker is not None:
        seen.add_traffic(node.broker.replica_manager.traffic)
    seen.add_consumers()
    yield counters(
        "kafka_network_requestmetrics_requests",
        "Requests that had a response, by API and version; Fetch is the sum of both kinds",
        ("request", "version"),
        sorted(seen.requests.items()),
    )
    yield counters(
        "kafka_network_requestmetrics_errors",
        "Error codes in responses, by API: of the whole response, and of partitions of Produce and "
        "Fetch",
        ("request", "error"),
        sorted(seen.errors.items()),
    )
    times = [(name, each) for name, each in sorted(seen.times.items()) if each.requests]
    for part, about, histogram in _PARTS:
        yield _histograms(
            f"kafka_network_requestmetrics_{part}timems",
            about,
            [(name, histogram(each)) for name, each in times],
        )


_PARTS: tuple[tuple[str, str, Callable[[RequestTimes], Histogram]], ...] = (
    ("total", "From a request's arrival to its response, in ms", lambda each: each.total),
    (
        "requestqueue",
        "Wait for an event-loop iteration with time for the client, in ms",
        lambda each: each.queue,
    ),
    ("local", "Handling of the received chunk with the request, in ms", lambda each: each.local),
    (
        "remote",
        "Wait for replication, records, the controller or earlier responses, in ms",
        lambda each: each.remote,
    ),
    (
        "responsesend",
        "From a response until the socket has taken its last byte, in ms",
        lambda each: each.send,
    ),
)


def _histograms(name: str, about: str, rows: list[tuple[str, Histogram]]) -> Metric:
    family = HistogramMetricFamily(name, about, labels=["request"])
    for request, histogram in rows:
        cumulated = accumulate(histogram.counts)
        buckets = list(zip(_BOUNDS, cumulated, strict=True))
        family.add_metric([request], buckets, histogram.total_ms)
    return family


_BOUNDS = (*map(str, BOUNDS_MS), "+Inf")


def _add(counts: dict[tuple[str, str], int], key: tuple[str, str], count: int) -> None:
    if count:
        counts[key] = counts.get(key, 0) + count


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


# ---- the network


def _network_metrics(node: NodeStatus) -> Iterator[Metric]:
    listeners = node.listeners
    idle = node.loop_monitor.idle_ratio
    about = "Share of the last 30 s in which the event loop's thread used no processor time"
    yield gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", about, idle)
    yield gauge("kafka_network_socketserver_networkprocessoravgidlepercent", about, idle)
    yield gauge("kafka_network_socketserver_networkprocessoravgidle_percent", about, idle)
    labels = ("listener", "networkProcessor")
    yield gauges(
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections",
        labels,
        (((listener.name, "0"), listener.connections) for listener in listeners),
    )
    yield gauge(
        "kafka_network_requestchannel_requestqueuesize",
        "Connections and requests that wait for the next event-loop iteration",
        max((listener.waiting for listener in listeners), default=0),
    )
    yield counters(
        "kafka_server_socket_server_metrics_connection_creation",
        "Connections accepted",
        labels,
        (((listener.name, "0"), listener.connections_total) for listener in listeners),
    )
    yield counters(
        "kafka_server_socket_server_metrics_outgoing_byte",
        "Bytes of responses",
        labels,
        (((listener.name, "0"), listener.bytes_out) for listener in listeners),
    )
    yield gauge(
        "kafka_network_socketserver_memorypoolused",
        "Bytes of requests that are arriving",
        sum(memory.taken for memory in {listener.memory for listener in listeners}),
    )
    killed = sum(
        listener.gates.counters()["expired_connections_killed"]
        for listener in listeners
        if listener.gates is not None
    )
    yield gauge(
        "kafka_network_socketserver_expiredconnectionskilledcount",
        "Connections closed because their SASL session had expired",
        killed,
    )


# ---- the quorum


def _raft_metrics(raft: RaftDriver) -> Iterator[Metric]:
    known = raft.leader_and_epoch
    state = _state_of(raft)
    traffic = raft.traffic
    values: tuple[tuple[str, str, float], ...] = (
        ("current_leader", "Id of the quorum's leader; -1 if unknown", _id_of(known.leader_id)),
        ("current_vote", "Id of the voter this node voted for; -1 if none", raft.voted_id),
        ("current_epoch", "Epoch of the quorum", known.epoch),
        ("high_watermark", "High watermark of the metadata log", raft.high_watermark),
        ("log_end_offset", "Log end offset of the metadata log", raft.log_end_offset),
        ("log_end_epoch", "Epoch of the last record of the metadata log", raft.log_end_epoch),
        ("number_of_voters", "Voters of the quorum", len(raft.voters.ids)),
        (
            "commit_latency_avg",
            "Mean time from the leader's append to its commit over 30 s, in ms",
            traffic.commit_ms.average(),
        ),
        (
            "commit_latency_max",
            "Longest time from the leader's append to its commit over 30 s, in ms",
            traffic.commit_ms.maximum(),
        ),
        (
            "election_latency_avg",
            "Mean time from losing a leader to learning the next one over 30 s, in ms",
            raft.journal.election_ms_recent.average(),
        ),
        (
            "election_latency_max",
            "Longest time from losing a leader to learning the next one over 30 s, in ms",
            raft.journal.election_ms_recent.maximum(),
        ),
        (
            "append_records_rate",
            "Records per second that this node appended as the leader over 30 s",
            traffic.appended.rate(),
        ),
        (
            "fetch_records_rate",
            "Records per second that this node fetched from the leader over 30 s",
            traffic.fetched.rate(),
        ),
    )
    found = raft.describe()
    for prefix, label in _RAFT_PREFIXES:
        about = "1 for the present state: leader, candidate, prospective, voted, follower, ..."
        yield gauges(f"{prefix}metrics_current_state", about, (label,), [((state,), 1)])
        for name, about, value in values:
            yield gauge(f"{prefix}metrics_{name}", about, value)
        observers = 0 if found is None else len(found.observers)
        about = "Observers that fetch from this leader; 0 on other nodes"
        yield gauge(f"{prefix}metrics_number_of_observers", about, observers)
        channel = traffic.channel
        for name, about, count in (
            ("incoming_byte", "Bytes received on connections to other nodes", channel.bytes_in),
            ("outgoing_byte", "Bytes sent on connections to other nodes", channel.bytes_out),
            ("request", "Requests sent to other nodes", channel.requests),
            ("response", "Responses received from other nodes", channel.responses),
        ):
            yield counter(f"{prefix}{_CHANNEL[prefix]}_{name}", f"Quorum: {about}", count)


_RAFT_PREFIXES = (("kafka_server_raft_", "state"), ("kafka_server_raft", "current_state"))
"""jmx_exporter's and Strimzi's spelling, and the label of the state."""

_CHANNEL = {"kafka_server_raft_": "channel_metrics", "kafka_server_raft": "channelmetrics"}


def _id_of(leader_id: int | None) -> int:
    return -1 if leader_id is None else leader_id


def _state_of(raft: RaftDriver) -> str:
    """The state as Kafka names it."""
    name = raft.state_name.lower()
    if name == "unattached" and raft.voted_id >= 0:
        return "voted"
    if name == "follower" and not raft.is_voter:
        return "observer"
    return name


# ---- the broker


def _broker_metrics(node: NodeStatus, broker: BrokerStatus) -> Iterator[Metric]:
    yield gauge(
        "kafka_server_kafkaserver_brokerstate",
        "Kafka's broker state: 1 starting, 3 running, 6 controlled shutdown, 7 shut down",
        broker.lifecycle.state.value,
    )
    read, written = _disk_bytes()
    about = "Bytes that this process caused to be read from disks (Linux)"
    yield gauge("kafka_server_kafkaserver_linux_disk_read_bytes", about, read)
    about = "Bytes that this process caused to be written to disks (Linux)"
    yield gauge("kafka_server_kafkaserver_linux_disk_write_bytes", about, written)
    about = "Last metadata offset that this broker applied"
    yield gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset",
        about,
        broker.image.offset,
    )
    if node.raft is not None:
        applied_ms = node.raft.last_applied_ms
        prefix = "kafka_server_broker_metadata_metrics_last_applied_record_"
        about = "When the last applied metadata record was written, ms since 1970"
        yield gauge(f"{prefix}timestamp", about, applied_ms)
        about = "Time since the last applied metadata record was written, in ms"
        yield gauge(f"{prefix}lag_ms", about, node.raft.applied_lag_ms)
    yield gauge(
        "kafka_server_metadataloader_currentmetadataversion",
        "Level of metadata.version",
        broker.image.metadata_version,
    )
    directories = broker.log_manager.directories
    yield gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that failed",
        len(broker.log_manager.offline_directories),
    )
    yield gauge(
        "kafka_log_logmanager_cordonedlogdirectorycount",
        "Log directories that take no new partitions",
        len(broker.log_manager.cordoned),
    )
    yield gauges(
        "kafka_log_logmanager_logdirectoryoffline",
        "1 if the log directory failed",
        ("logDirectory",),
        (((each.path,), int(each.fault is not None)) for each in directories),
    )
    yield gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Replicas that cannot be compacted",
        len(broker.compaction.manager.uncleanable),
    )
    cleaned = [] if broker.compaction.last is None else [broker.compaction.last]
    yield gauges(
        "kafka_log_logcleaner_max_clean_time_secs",
        "Duration of the last compaction of a log, in seconds",
        (),
        (((), last.took_ms / 1000) for last in cleaned),
    )
    yield gauges(
        "kafka_log_logcleaner_cleaner_recopy_percent",
        "The share of its bytes that the last compaction of a log kept",
        (),
        (((), last.recopied_percent) for last in cleaned),
    )
    rates = broker.client_quotas.rates(CLIENTS_MAX, broker.clock.mono_ms())
    yield gauges(
        "kafka_server_quota_byte_rate",
        "Recent rate of clients with a quota in bytes per second; the 500 most recently active",
        ("resource", "user", "clientId"),
        (
            ((_RESOURCES[key], user or "", client or ""), rate)
            for (key, user, client), rate in rates
            if key in _RESOURCES
        ),
    )
    yield gauges(
        "kafka_server_quota_request_time",
        "Percent of the event loop's time that the requests of such clients have taken recently",
        ("user", "clientId"),
        (
            ((user or "", client or ""), rate)
            for (key, user, client), rate in rates
            if key == REQUEST_PERCENTAGE
        ),
    )
    yield gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Fetch sessions (KIP-227)",
        len(broker.fetch_sessions),
    )


def _disk_bytes() -> tuple[int, int]:
    """Bytes read and written by this process; zeros on systems other than Linux."""
    try:
        with open("/proc/self/io", encoding="ascii") as lines:
            values = dict(line.split(": ") for line in lines)
        return int(values["read_bytes"]), int(values["write_bytes"])
    except (OSError, KeyError, ValueError):
        return 0, 0


# ---- the controller


def controller_metrics(controller: Any, image: ClusterImage, raft: RaftDriver) -> Iterator[Metric]:
    """Of a controller, active or not."""
    prefix = "kafka_controller_kafkacontroller_"
    fenced = sum(registration.fenced for registration in image.brokers.values())
    migrating = sum(each.is_migrating_zk_broker for each in image.brokers.values())
    shutting = sum(each.in_controlled_shutdown for each in image.brokers.values())
    for name, about, value in (
        ("activecontrollercount", "1 on the active controller", int(controller.is_active)),
        (
            "activebrokercount",
            "Registered brokers that are not fenced",
            len(image.brokers) - fenced,
        ),
        ("fencedbrokercount", "Fenced brokers", fenced),
        ("controlledshutdownbrokercount", "Brokers in controlled shutdown", shutting),
        ("migratingzkbrokercount", "Registered brokers in ZooKeeper mode", migrating),
        (
            "zkmigrationstate",
            "Migration from ZooKeeper: 0 none, 2 before the copy, 1 after it, 3 finalized",
            image.migration,
        ),
        ("globaltopiccount", "Topics in the cluster", len(image.topics_by_id)),
        ("lastappliedrecordoffset", "Last metadata offset applied here", image.offset),
        ("lastcommittedrecordoffset", "Last committed metadata offset", raft.high_watermark - 1),
        (
            "lastappliedrecordtimestamp",
            "When the last applied record was written, ms since 1970",
            raft.last_applied_ms,
        ),
        (
            "lastappliedrecordlagms",
            "Time since the last applied record was written, in ms; 0 on the active controller",
            0 if controller.is_active else raft.applied_lag_ms,
        ),
        ("newactivecontrollerscount", "Leaders this node has learned of", raft.traffic.leaders),
        (
            "eventqueueoperationsstartedcount",
            "Requests that this controller decided",
            controller.timings.processing.count,
        ),
    ):
        yield gauge(prefix + name, about, value)
    yield gauges(
        prefix + "timesincelastheartbeatreceivedms",
        "Time since the last heartbeat of an unfenced broker, in ms; on the active controller",
        ("broker",),
        controller.heartbeat_ages(),
    )
    yield gauges(
        prefix + "brokerregistrationstate",
        "10 fenced, 20 in controlled shutdown, 30 active",
        ("broker",),
        (((str(number),), _registration_state(each)) for number, each in _in_order(image)),
    )
    counts = controller.core.journal.counts
    for name, about, kinds in (
        ("uncleanleaderelections", "Unclean elections that it decided", _UNCLEAN),
        (
            "electionfromeligibleleaderreplicas",
            "Elections from the ELR that it decided (KIP-966)",
            _ELR,
        ),
    ):
        count = sum(counts.get(kind, 0) for kind in kinds)
        yield counter(f"kafka_controller_controllerstats_{name}", about, count)


def _in_order(image: ClusterImage) -> list[tuple[int, Any]]:
    return sorted(image.brokers.items())


def _registration_state(registration: Any) -> int:
    if registration.fenced:
        return 10
    return 20 if registration.in_controlled_shutdown else 30

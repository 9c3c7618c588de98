"""Metrics of a broker's fetchers, replication throttles and moves between log directories.

Kafka's AbstractFetcherManager (MaxLag, FailedPartitionsCount), FetcherStats (RequestsPerSec,
BytesPerSec) and the byte rates of its replication quotas, read at every scrape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from sparkraft.server.broker.fetchers import ReplicaFetchers
    from sparkraft.server.status import BrokerStatus


def replication_metrics(broker: BrokerStatus) -> Iterator[Metric]:
    yield from _fetcher_metrics(broker.fetchers)
    rates = GaugeMetricFamily(
        "sparkraft_throttled_replication_bytes_per_second",
        "Recent byte rate of throttled replicas",
        labels=["side"],
    )
    rates.add_metric(["leader"], broker.leader_throttle.bytes_per_second)
    rates.add_metric(["follower"], broker.fetchers.throttle.bytes_per_second)
    yield rates
    lag = GaugeMetricFamily(
        "sparkraft_directory_moves_lag",
        "Records that moving replicas have not copied yet, in total",
    )
    moves = broker.log_dir_moves.in_order()
    lag.add_metric([], sum(max(move.core.lag, 0) for move in moves))
    yield lag
    yield GaugeMetricFamily(
        "sparkraft_directory_moves",
        "Replicas being moved to another log directory",
        value=len(moves),
    )


def _fetcher_metrics(fetchers: ReplicaFetchers) -> Iterator[Metric]:
    labels = ["leader_id", "fetcher"]
    partitions = GaugeMetricFamily(
        "sparkraft_fetcher_partitions", "Partitions being fetched", labels=labels
    )
    lag = GaugeMetricFamily(
        "sparkraft_fetcher_max_lag",
        "Largest lag of a partition, in records below the leader's high watermark",
        labels=labels,
    )
    failed = GaugeMetricFamily(
        "sparkraft_fetcher_failed_partitions",
        "Partitions that will not be fetched until a later leader epoch",
        labels=labels,
    )
    requests = CounterMetricFamily(
        "sparkraft_fetcher_requests", "Fetch requests sent", labels=labels
    )
    fetched = CounterMetricFamily(
        "sparkraft_fetcher_bytes", "Bytes of records fetched from leaders", labels=labels
    )
    for fetcher in fetchers.in_order():
        names = [str(fetcher.leader_id), str(fetcher.fetcher_id)]
        core = fetcher.core
        partitions.add_metric(names, len(core))
        lag.add_metric(names, core.max_lag())
        failed.add_metric(names, core.failed)
        requests.add_metric(names, core.requests)
        fetched.add_metric(names, core.bytes_fetched)
    yield from (partitions, lag, failed, requests, fetched)

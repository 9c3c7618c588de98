"""What Prometheus is told of a broker's fetchers, throttles and moves between directories.

Kafka's AbstractFetcherManager (MaxLag, FailedPartitionsCount), FetcherStats (RequestsPerSec,
BytesPerSec) and the byte rates of its replication quotas; read at every scrape, counted nowhere
else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric


def of_replication(broker: Any) -> Iterator[Metric]:
    """Every family."""
    yield from _of_fetchers(broker.fetchers)
    rates = GaugeMetricFamily(
        "sparkraft_throttled_replication_bytes_per_second",
        "Bytes of throttled replicas lately",
        labels=["side"],
    )
    rates.add_metric(["leader"], broker.leader_throttle.bytes_per_second)
    rates.add_metric(["follower"], broker.fetchers.throttle.bytes_per_second)
    yield rates
    lag = GaugeMetricFamily(
        "sparkraft_directory_moves_lag", "Records that copies on their way are behind, all together"
    )
    moves = broker.log_dir_moves.in_order()
    lag.add_metric([], sum(max(move.core.lag, 0) for move in moves))
    yield lag
    yield GaugeMetricFamily(
        "sparkraft_directory_moves",
        "Replicas on their way to another log directory",
        value=len(moves),
    )


def _of_fetchers(fetchers: Any) -> Iterator[Metric]:
    labels = ["leader_id", "fetcher"]
    partitions = GaugeMetricFamily(
        "sparkraft_fetcher_partitions", "Partitions that are followed", labels=labels
    )
    lag = GaugeMetricFamily(
        "sparkraft_fetcher_max_lag",
        "The farthest a followed partition is behind its leader's high watermark, in records",
        labels=labels,
    )
    failed = GaugeMetricFamily(
        "sparkraft_fetcher_failed_partitions",
        "Partitions that are not fetched before a later leader epoch",
        labels=labels,
    )
    requests = CounterMetricFamily("sparkraft_fetcher_requests", "Fetches sent", labels=labels)
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

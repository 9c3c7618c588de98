"""Metrics that clients have pushed (KIP-714), and how their pushes went.

`org.apache.kafka.producer.record.send.total` becomes `org_apache_kafka_producer_record_send_total`,
with the client id and the point's attributes as labels. Of clients with the same id, totals are
added, and the largest of other values counts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from sparkraft.server.families import counter, gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from sparkraft.server.broker.client_telemetry import ClientTelemetry

EXPORTED_MAX = 5_000
"""Series of all clients that are exported."""

_ODD = re.compile(r"[^a-zA-Z0-9_]")


def client_metrics(telemetry: ClientTelemetry) -> Iterator[Metric]:
    about = "Clients that have asked which metrics to push"
    yield gauge("kafka_server_client_metrics_instance_count", about, len(telemetry))
    yield gauge(
        "kafka_server_client_metrics_unknown_subscription_request_count",
        "Pushes for a subscription that has changed",
        telemetry.unknown_subscriptions,
    )
    prefix = "sparkraft_client_telemetry_"
    yield counter(f"{prefix}pushes", "Pushes of clients' metrics", telemetry.pushes)
    about = "Requests for client metrics before the push interval was over"
    yield counter(f"{prefix}throttled", about, telemetry.throttled)
    about = "Points that were left out: unknown names, or too many"
    yield counter(f"{prefix}dropped_points", about, telemetry.dropped)
    yield from _pushed(telemetry)


def _pushed(telemetry: ClientTelemetry) -> Iterator[Metric]:
    values: dict[tuple[str, bool], dict[tuple[tuple[str, str], ...], float]] = {}
    count = 0
    for instance in telemetry.instances():
        client_id = instance.client["client_id"]
        for (name, attributes), series in instance.series.items():
            family = values.setdefault((_ODD.sub("_", name), series.is_total), {})
            labels = _labels(client_id, attributes)
            known = family.get(labels)
            if known is None:
                count += 1
                if count > EXPORTED_MAX:
                    continue
                family[labels] = series.value
            elif series.is_total:
                family[labels] = known + series.value
            else:
                family[labels] = max(known, series.value)
    for (name, is_total), samples in sorted(values.items()):
        yield _family(name, samples, is_total=is_total)


def _labels(client_id: str, attributes: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    found = {_label(key): text for key, text in attributes}
    found["client_id"] = client_id
    return tuple(sorted(found.items()))


def _label(key: str) -> str:
    name = _ODD.sub("_", key)
    return f"_{name}" if not name or name[0].isdigit() else name


def _family(
    name: str, samples: dict[tuple[tuple[str, str], ...], float], *, is_total: bool
) -> Metric:
    about = "Pushed by clients (KIP-714)"
    family: Metric
    if is_total:
        family = CounterMetricFamily(name, about, labels=())
        name = f"{family.name}_total"
    else:
        family = GaugeMetricFamily(name, about, labels=())
    for labels, value in sorted(samples.items()):
        family.add_sample(name, dict(labels), value)
    return family

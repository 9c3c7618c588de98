"""Short constructors of metric families: one sample, or one per row of label values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.metrics_core import Metric

    Rows = Iterable[tuple[Sequence[str], float]]


def gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def counter(name: str, about: str, value: float) -> Metric:
    """`name` without `_total`."""
    return CounterMetricFamily(name, about, value=value)


def gauges(name: str, about: str, labels: Sequence[str], rows: Rows) -> Metric:
    family = GaugeMetricFamily(name, about, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def counters(name: str, about: str, labels: Sequence[str], rows: Rows) -> Metric:
    """`name` without `_total`."""
    family = CounterMetricFamily(name, about, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family

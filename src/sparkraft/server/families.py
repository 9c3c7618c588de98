"""Constructors of metric families, and their text for Prometheus.

A collector is an iterator of families that a scrape interrupts between two of them. None between
two is a place to interrupt long counting; a family with many samples comes in several parts, all
but the first of them `Continued`.
"""

from __future__ import annotations

from math import isfinite, isnan
from typing import TYPE_CHECKING, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

    from sparkraft.base.loop_work import LoopBound

    Rows = Iterable[tuple[Sequence[str], float]]
    Parts = Iterator[Metric | None]

T = TypeVar("T")

PART_SAMPLES: LoopBound = 500
"""Samples of one part: about 2 ms to make and to render."""


class Continued(GaugeMetricFamily):
    """Further samples of the gauge before it."""


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


def gauge_parts(
    name: str,
    about: str,
    labels: Sequence[str],
    items: Sequence[T],
    row: Callable[[T], tuple[Sequence[str], float]],
) -> Iterator[Metric]:
    """A gauge with a sample per item, in parts."""
    for at in range(0, max(len(items), 1), PART_SAMPLES):
        family = (Continued if at else GaugeMetricFamily)(name, about, labels=labels)
        for item in items[at : at + PART_SAMPLES]:
            family.add_metric(*row(item))
        yield family


def whole(parts: Parts) -> Iterator[Metric]:
    """The families, each in one piece."""
    last: Metric | None = None
    for part in parts:
        if isinstance(part, Continued):
            assert last is not None, "a continuation follows its first part"
            last.samples.extend(part.samples)
        elif part is not None:
            if last is not None:
                yield last
            last = part
    if last is not None:
        yield last


# ---- text

_SUFFIXES = {"counter": "_total", "info": "_info"}
_KINDS = {"info": "gauge", "unknown": "untyped"}
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def head_of(family: Metric) -> str:
    """The lines before its samples; empty for a continuation."""
    if isinstance(family, Continued):
        return ""
    name = family.name + _SUFFIXES.get(family.type, "")
    about = family.documentation.replace("\\", "\\\\").replace("\n", "\\n")
    kind = _KINDS.get(family.type, family.type)
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def lines_of(samples: Iterable[Sample]) -> str:
    """Samples in Prometheus' text format (0.0.4)."""
    lines = []
    for sample in samples:
        value = sample.value
        text = str(value) if type(value) is int else _float(float(value))
        if sample.labels:
            labels = ",".join(
                f'{key}="{label.translate(_ESCAPES)}"' for key, label in sample.labels.items()
            )
            lines.append(f"{sample.name}{{{labels}}} {text}\n")
        else:
            lines.append(f"{sample.name} {text}\n")
    return "".join(lines)


def _float(value: float) -> str:
    if isfinite(value):
        return repr(value)
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"

"""Families in parts, and their text, compared with Prometheus' own."""

import math

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sparkraft.server.families import (
    PART_SAMPLES,
    Continued,
    gauge,
    gauge_parts,
    head_of,
    lines_of,
    whole,
)


class Collected:
    def __init__(self, family) -> None:
        self.family = family

    def collect(self):
        return [self.family]

    def describe(self):
        return []


def parsed(text: str):
    return [
        (family.name, family.type, family.documentation, family.samples)
        for family in text_string_to_metric_families(text)
    ]


def test_the_text_says_what_prometheus_own_writer_says():
    odd = GaugeMetricFamily("odd", 'A "text"\nwith \\ in it', labels=["topic", "path"])
    odd.add_metric(['a"b', "c\\d\ne"], 1.5)
    odd.add_metric(["é", ""], math.inf)
    odd.add_metric(["x", "y"], -math.inf)
    counter = CounterMetricFamily("sent", "Bytes", labels=["listener"])
    counter.add_metric(["A"], 1 << 60)
    histogram = HistogramMetricFamily("wait", "Wait", labels=["api"])
    histogram.add_metric(["Fetch"], [("1", 2), ("+Inf", 7)], 100)
    info = InfoMetricFamily("node", "Identity", value={"node_id": "1"})
    for family in (odd, counter, histogram, info, gauge("small", "Small", 1e-7)):
        registry = CollectorRegistry()
        registry.register(Collected(family))
        expected = generate_latest(registry).decode()
        text = head_of(family) + lines_of(family.samples)
        assert parsed(text) == parsed(expected)
        assert [line for line in text.splitlines() if line[0] == "#"] == [
            line for line in expected.splitlines() if line[0] == "#"
        ]
    nan = gauge("nan", "Not a number", math.nan)
    assert lines_of(nan.samples) == "nan NaN\n"


def test_a_gauge_of_many_samples_comes_in_parts_that_make_a_whole():
    count = 2 * PART_SAMPLES + 1
    parts = list(
        gauge_parts("x", "About", ("index",), range(count), lambda index: ((str(index),), index))
    )
    assert [len(part.samples) for part in parts] == [PART_SAMPLES, PART_SAMPLES, 1]
    assert [isinstance(part, Continued) for part in parts] == [False, True, True]
    assert [bool(head_of(part)) for part in parts] == [True, False, False]
    before, after = gauge("before", "", 1), gauge("after", "", 2)
    found = list(whole(iter([before, None, *parts, None, after])))
    assert [family.name for family in found] == ["before", "x", "after"]
    assert [sample.value for sample in found[1].samples] == list(range(count))


def test_a_gauge_without_samples_still_has_a_head():
    (part,) = gauge_parts("x", "About", ("index",), (), lambda index: ((), 0))
    assert head_of(part) == "# HELP x About\n# TYPE x gauge\n"

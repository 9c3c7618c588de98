"""Sends a node's metrics to an OpenTelemetry collector: OTLP over HTTP, as JSON.

    every sparkraft.otlp.interval.ms: metrics read in pieces → JSON and POST in a thread

A collector that is down costs a thread that waits `POST_SECONDS_MAX`; nothing is queued, and a
push that fails is logged once until one succeeds. The same families as /metrics, so names, labels
and meanings are equal; counters have no `_total`, which collectors add themselves.
"""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sparkraft import __version__
from sparkraft.server.config import ConfigError
from sparkraft.server.families import whole
from sparkraft.server.metrics import SAMPLES_MAX, parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Sample

    from sparkraft.base.env import Clock
    from sparkraft.server.status import NodeStatus

log = logging.getLogger(__name__)

POST_SECONDS_MAX = 10
"""How long a push may take."""

_CUMULATIVE = 2
"""OTLP's AGGREGATION_TEMPORALITY_CUMULATIVE."""


class OtlpExport:
    """Pushes until cancelled; `run` is one task."""

    def __init__(self, node: NodeStatus, clock: Clock, endpoint: str, interval_ms: int) -> None:
        """Push to `endpoint`/v1/metrics.

        Raises:
            ConfigError: the endpoint is not an http or https URL.
        """
        url = urlsplit(endpoint)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ConfigError(f"sparkraft.otlp.endpoint must be an http URL, not {endpoint!r}")
        self._node = node
        self._clock = clock
        self._url = endpoint.rstrip("/") + "/v1/metrics"
        self._interval_s = interval_ms / 1000
        self._started_ms = clock.wall_ms()
        self._is_failing = False
        # Of its own: a collector that hangs must not keep the node's disks waiting.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="otlp")

    async def run(self) -> None:
        """Push once per interval."""
        try:
            while True:
                await asyncio.sleep(self._interval_s)
                await self._push()
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _push(self) -> None:
        found = await self._collect()
        identity = self._node.identity
        resource = {
            "service.name": "sparkraft",
            "service.version": __version__,
            "service.instance.id": str(self._node.config.node_id),
            "sparkraft.cluster.id": "" if identity is None else identity.cluster_id,
        }
        times = (self._started_ms, self._clock.wall_ms())
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, _post, self._url, resource, found, times)
        except Exception as error:  # metrics must not stop a node
            if not self._is_failing:
                self._is_failing = True
                log.warning("Metrics cannot be sent to %s: %s", self._url, error)
            return
        if self._is_failing:
            self._is_failing = False
            log.info("Metrics are sent to %s again", self._url)

    async def _collect(self) -> list[Metric]:
        """The families, read in pieces of about `SAMPLES_MAX` samples."""
        found: list[Metric | None] = []
        size = 0
        for family in parts(self._node):
            found.append(family)
            size += SAMPLES_MAX if family is None else len(family.samples)
            if size >= SAMPLES_MAX:
                size = 0
                await asyncio.sleep(0)
        return list(whole(iter(found)))


def _post(url: str, resource: dict[str, str], found: list[Metric], times: tuple[int, int]) -> None:
    body = json.dumps(document(resource, found, times)).encode()
    headers = {"Content-Type": "application/json", "User-Agent": f"sparkraft/{__version__}"}
    request = urllib.request.Request(url, body, headers)
    with urllib.request.urlopen(request, timeout=POST_SECONDS_MAX) as response:
        response.read(1)


def document(
    resource: dict[str, str], found: Iterable[Metric], times: tuple[int, int]
) -> dict[str, Any]:
    """An ExportMetricsServiceRequest.

    Args:
        resource: its attributes.
        found: the metrics.
        times: of the start and of now, ms since 1970.
    """
    metrics = [each for family in found if (each := _metric(family, times)) is not None]
    scope = {"scope": {"name": "sparkraft", "version": __version__}, "metrics": metrics}
    attributes = _attributes(resource)
    return {"resourceMetrics": [{"resource": {"attributes": attributes}, "scopeMetrics": [scope]}]}


def _attributes(labels: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": text}} for key, text in labels.items()]


def _metric(family: Metric, times: tuple[int, int]) -> dict[str, Any] | None:
    """The family in OTLP's form; None without samples."""
    if not family.samples:
        return None
    metric: dict[str, Any] = {"name": family.name, "description": family.documentation}
    if family.type == "histogram":
        metric["histogram"] = {
            "aggregationTemporality": _CUMULATIVE,
            "dataPoints": _histogram_points(family.samples, times),
        }
        return metric
    points = [
        {**_times(times), "attributes": _attributes(sample.labels), "asDouble": float(sample.value)}
        for sample in family.samples
    ]
    if family.type == "counter":
        metric["sum"] = {
            "aggregationTemporality": _CUMULATIVE,
            "isMonotonic": True,
            "dataPoints": points,
        }
    else:
        metric["gauge"] = {"dataPoints": points}
    return metric


def _times(times: tuple[int, int]) -> dict[str, str]:
    started_ms, now_ms = times
    nanos = "000000"
    return {"startTimeUnixNano": f"{started_ms}{nanos}", "timeUnixNano": f"{now_ms}{nanos}"}


def _histogram_points(samples: list[Sample], times: tuple[int, int]) -> list[dict[str, Any]]:
    """One point per set of labels; OTLP's buckets are not cumulative."""
    points: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in samples:
        labels = {key: text for key, text in sample.labels.items() if key != "le"}
        point = points.setdefault(
            tuple(labels.items()),
            {
                **_times(times),
                "attributes": _attributes(labels),
                "count": "0",
                "sum": 0.0,
                "bucketCounts": [],
                "explicitBounds": [],
            },
        )
        if sample.name.endswith("_bucket"):
            below = sum(map(int, point["bucketCounts"]))
            point["bucketCounts"].append(str(int(sample.value) - below))
            if sample.labels["le"] != "+Inf":
                point["explicitBounds"].append(float(sample.labels["le"]))
        elif sample.name.endswith("_count"):
            point["count"] = str(int(sample.value))
        elif sample.name.endswith("_sum"):
            point["sum"] = float(sample.value)
    return list(points.values())

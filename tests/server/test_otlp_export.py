"""Metrics pushed as OTLP/JSON to a collector, which may be down."""

import asyncio
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from sparkraft.server.config import ConfigError
from sparkraft.server.otlp_export import OtlpExport, document
from tests.server.harness import node_in, run, until
from tests.support.ports import lasting_ports


class Collector(BaseHTTPRequestHandler):
    received: list[tuple[str, str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve(port: int) -> HTTPServer:
    handler = type("Handler", (Collector,), {"received": []})
    server = HTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def metrics_of(body: Any) -> dict[str, Any]:
    (resource,) = body["resourceMetrics"]
    (scope,) = resource["scopeMetrics"]
    return {metric["name"]: metric for metric in scope["metrics"]}


def test_a_node_pushes_once_the_collector_is_up(tmp_path, caplog):
    async def test() -> None:
        (port,) = lasting_ports(1)
        overrides = {
            "sparkraft_otlp_endpoint": f"http://127.0.0.1:{port}/",
            "sparkraft_otlp_interval_ms": "1000",
        }
        async with node_in(tmp_path, **overrides):
            await until(lambda: "Metrics cannot be sent" in caplog.text)
            server = serve(port)
            try:
                await until(lambda: server.RequestHandlerClass.received)
                await until(lambda: "are sent to" in caplog.text)
                path, kind, body = server.RequestHandlerClass.received[0]
            finally:
                await asyncio.to_thread(server.shutdown)
                server.server_close()
            assert (path, kind) == ("/v1/metrics", "application/json")
            attributes = body["resourceMetrics"][0]["resource"]["attributes"]
            assert {"key": "service.instance.id", "value": {"stringValue": "1"}} in attributes
            found = metrics_of(body)
            assert found["sparkraft_node_healthy"]["gauge"]["dataPoints"][0]["asDouble"] == 1
            assert found["sparkraft_loop_lag_seconds"]["histogram"]["dataPoints"]
            assert caplog.text.count("Metrics cannot be sent") == 1

    caplog.set_level(logging.INFO)
    run(test())


def test_each_type_has_its_form():
    counter = CounterMetricFamily("sent", "Bytes sent", labels=["topic"])
    counter.add_metric(["orders"], 5)
    histogram = HistogramMetricFamily("wait", "Wait", labels=["api"])
    histogram.add_metric(["Fetch"], [("1", 2), ("5", 3), ("+Inf", 7)], 100)
    empty = GaugeMetricFamily("none", "No samples", labels=["x"])
    gauge = GaugeMetricFamily("open", "Open", value=3)
    found = metrics_of(document({}, [counter, histogram, empty, gauge], (1_000, 2_000)))
    times = {"startTimeUnixNano": "1000000000", "timeUnixNano": "2000000000"}
    assert found["sent"]["sum"] == {
        "aggregationTemporality": 2,
        "isMonotonic": True,
        "dataPoints": [
            {
                **times,
                "attributes": [{"key": "topic", "value": {"stringValue": "orders"}}],
                "asDouble": 5.0,
            }
        ],
    }
    (point,) = found["wait"]["histogram"]["dataPoints"]
    assert point["bucketCounts"] == ["2", "1", "4"]
    assert point["explicitBounds"] == [1.0, 5.0]
    assert (point["count"], point["sum"]) == ("7", 100.0)
    assert found["open"]["gauge"]["dataPoints"][0]["asDouble"] == 3.0
    assert "none" not in found


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://x", "http://", "file:///etc/passwd"])
def test_an_endpoint_that_is_not_http_is_refused(endpoint):
    from tests.server.test_loop_turns import Clock

    with pytest.raises(ConfigError, match="must be an http URL"):
        OtlpExport(None, Clock(), endpoint, 1000)

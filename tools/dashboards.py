"""Writes the dashboards for Grafana in deploy/grafana/, and checks that they are up to date.

    python tools/dashboards.py            write them
    python tools/dashboards.py --check    exit 1 if they are out of date

A dashboard is a table of panels; `tests/server/test_metrics.py` compares every metric in it with
those of a running node. No plugins: the panels are Grafana's own.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "deploy" / "grafana"

COLUMNS = 3
"""Panels in a row of Grafana's grid, which has 24 units."""

WIDTH, HEIGHT = 24 // COLUMNS, 7


class Panel(NamedTuple):
    """A graph: its title, unit (`Grafana's ids`), and expressions with their legends."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


class Board(NamedTuple):
    """A dashboard: the name of its file, its title, its panels."""

    name: str
    title: str
    panels: tuple[Panel, ...]


NODE = "{{instance}}"
TOPICS = "kafka_server_brokertopicmetrics_"
CONTROLLER = "kafka_controller_kafkacontroller_"
REPLICAS = "kafka_server_replicamanager_"
REQUESTS = "kafka_network_requestmetrics_"


def rate(metric: str, by: str = "instance") -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def topic_rate(metric: str) -> str:
    """The rate per topic: the sample without a topic is the sum."""
    return f'topk(20, sum by (topic) (rate({TOPICS}{metric}{{topic!=""}}[$__rate_interval])))'


def total_rate(metric: str) -> str:
    return f'sum by (instance) (rate({TOPICS}{metric}{{topic=""}}[$__rate_interval]))'


def quantile(metric: str, selector: str, by: str = "instance") -> str:
    rates = f"rate({metric}{{{selector}}}[$__rate_interval])"
    return f"histogram_quantile(0.99, sum by (le, {by}) ({rates}))"


CLUSTER = Board(
    "cluster",
    "sparkraft: cluster",
    (
        Panel("Active controllers", "none", ((f"sum({CONTROLLER}activecontrollercount)", ""),)),
        Panel(
            "Brokers",
            "none",
            (
                (f"max({CONTROLLER}activebrokercount)", "active"),
                (f"max({CONTROLLER}fencedbrokercount)", "fenced"),
            ),
        ),
        Panel("Healthy nodes", "none", (("sum(sparkraft_node_healthy)", "healthy"),)),
        Panel(
            "Topics and partitions",
            "none",
            (
                (f"max({CONTROLLER}globaltopiccount)", "topics"),
                (f"max({CONTROLLER}globalpartitioncount)", "partitions"),
            ),
        ),
        Panel(
            "Partitions with a problem",
            "none",
            (
                (f"max({CONTROLLER}offlinepartitionscount)", "without a leader"),
                (f"sum({REPLICAS}underminisrpartitioncount)", "below min.insync.replicas"),
                (f"sum({REPLICAS}underreplicatedpartitions)", "under-replicated"),
                (f"max({CONTROLLER}preferredreplicaimbalancecount)", "not led as preferred"),
            ),
        ),
        Panel(
            "ISR changes",
            "cps",
            (
                (f"sum(rate({REPLICAS}isrshrinks_total[$__rate_interval]))", "removed"),
                (f"sum(rate({REPLICAS}isrexpands_total[$__rate_interval]))", "added"),
            ),
        ),
        Panel("Records in", "cps", ((total_rate("messagesin_total"), NODE),)),
        Panel("Bytes in", "Bps", ((total_rate("bytesin_total"), NODE),)),
        Panel("Bytes out", "Bps", ((total_rate("bytesout_total"), NODE),)),
        Panel("Requests", "reqps", ((rate(f"{REQUESTS}requests_total"), NODE),)),
        Panel(
            "Errors",
            "cps",
            ((rate(f"{REQUESTS}errors_total", "request, error"), "{{request}} {{error}}"),),
        ),
        Panel(
            "Idle event loop",
            "percentunit",
            (("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", NODE),),
        ),
        Panel(
            "Produce, 99th percentile",
            "ms",
            ((quantile(f"{REQUESTS}totaltimems_bucket", 'request="Produce"'), NODE),),
        ),
        Panel("Leaders", "none", ((f"{REPLICAS}leadercount", NODE),)),
        Panel("Replicas", "none", ((f"{REPLICAS}partitioncount", NODE),)),
        Panel(
            "Offline log directories",
            "none",
            (("kafka_log_logmanager_offlinelogdirectorycount", NODE),),
        ),
    ),
)

BOARDS = (CLUSTER,)


def dashboard(board: Board) -> dict[str, Any]:
    """The board as Grafana imports it."""
    return {
        "title": board.title,
        "uid": f"sparkraft-{board.name}",
        "tags": ["sparkraft", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "type": "datasource",
                    "query": "prometheus",
                    "label": "Prometheus",
                }
            ]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(board.panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    row, column = divmod(number, COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": source,
                "expr": expression,
                "legendFormat": legend or "__auto",
            }
            for place, (expression, legend) in enumerate(panel.lines)
        ],
    }


def texts() -> dict[Path, str]:
    """The files and their contents."""
    return {
        FOLDER / f"{board.name}.json": json.dumps(dashboard(board), indent=1) + "\n"
        for board in BOARDS
    }


def main(argv: list[str]) -> int:
    stale = [
        path for path, text in texts().items() if not path.exists() or path.read_text() != text
    ]
    if argv == ["--check"]:
        for path in stale:
            print(f"{path} is out of date; run: .venv/bin/python tools/dashboards.py")
        return int(bool(stale))
    FOLDER.mkdir(exist_ok=True)
    for path, text in texts().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

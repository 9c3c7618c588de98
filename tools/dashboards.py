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
    rates = f"rate({metric}{{{selector}}}[$__rate_interval])".replace("{}", "")
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

LABELED = "{{listener}}"
LOOP = "sparkraft_loop_lag_seconds_bucket"

NODES = Board(
    "nodes",
    "sparkraft: nodes",
    (
        Panel(
            "Processor",
            "percentunit",
            (("rate(process_cpu_seconds_total[$__rate_interval])", NODE),),
        ),
        Panel("Memory", "bytes", (("process_resident_memory_bytes", NODE),)),
        Panel("Open files", "none", (("process_open_fds", NODE),)),
        Panel(
            "Idle event loop",
            "percentunit",
            (("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", NODE),),
        ),
        Panel(
            "Lag of the event loop, 99th percentile",
            "s",
            ((quantile(LOOP, ""), NODE),),
        ),
        Panel(
            "Long pieces of work",
            "cps",
            ((rate("sparkraft_loop_long_pieces_total"), NODE),),
        ),
        Panel(
            "Connections",
            "none",
            (("kafka_server_socket_server_metrics_connection_count", f"{NODE} {LABELED}"),),
        ),
        Panel(
            "New connections",
            "cps",
            ((rate("kafka_server_socket_server_metrics_connection_creation_total"), NODE),),
        ),
        Panel("Malformed requests", "cps", ((rate("sparkraft_bad_requests_total"), NODE),)),
        Panel(
            "Requests by API",
            "reqps",
            ((rate(f"{REQUESTS}requests_total", "request"), "{{request}}"),),
        ),
        Panel(
            "Time of requests, 99th percentile",
            "ms",
            ((quantile(f"{REQUESTS}totaltimems_bucket", "", "request"), "{{request}}"),),
        ),
        Panel(
            "Produce: where the time goes",
            "ms",
            tuple(
                (quantile(f"{REQUESTS}{part}timems_bucket", 'request="Produce"', "request"), part)
                for part in ("requestqueue", "local", "remote")
            ),
        ),
        Panel(
            "Waiting requests",
            "none",
            (
                (
                    "kafka_server_delayedoperationpurgatory_purgatorysize",
                    f"{NODE} {{{{delayedOperation}}}}",
                ),
                ("kafka_network_requestchannel_requestqueuesize", f"{NODE} queued"),
            ),
        ),
        Panel(
            "Read from disks",
            "Bps",
            (("rate(kafka_server_kafkaserver_linux_disk_read_bytes[$__rate_interval])", NODE),),
        ),
        Panel(
            "Written to disks",
            "Bps",
            (("rate(kafka_server_kafkaserver_linux_disk_write_bytes[$__rate_interval])", NODE),),
        ),
        Panel(
            "Rates of clients with a quota",
            "Bps",
            (
                (
                    "sum by (resource, user, clientId) (kafka_server_quota_byte_rate)",
                    "{{resource}} {{user}} {{clientId}}",
                ),
            ),
        ),
    ),
)

LAG = (
    "clamp_min(max by (topic, partition) (sparkraft_high_watermark) - on (topic, partition) "
    "group_right max by (consumergroup, topic, partition) (kafka_consumergroup_current_offset), 0)"
)
"""Of any partition, wherever its leader and its group's coordinator are."""

TOPICS_BOARD = Board(
    "topics",
    "sparkraft: topics",
    (
        Panel("Records in", "cps", ((topic_rate("messagesin_total"), "{{topic}}"),)),
        Panel("Bytes in", "Bps", ((topic_rate("bytesin_total"), "{{topic}}"),)),
        Panel("Bytes out", "Bps", ((topic_rate("bytesout_total"), "{{topic}}"),)),
        Panel("Batches in", "cps", ((topic_rate("totalproducerequests_total"), "{{topic}}"),)),
        Panel(
            "Refused batches", "cps", ((topic_rate("failedproducerequests_total"), "{{topic}}"),)
        ),
        Panel("Reads", "cps", ((topic_rate("totalfetchrequests_total"), "{{topic}}"),)),
        Panel(
            "Size", "bytes", (("topk(20, sum by (topic) (sparkraft_topic_bytes))", "{{topic}}"),)
        ),
        Panel(
            "Largest partitions",
            "bytes",
            (
                (
                    "topk(20, max by (topic, partition) (kafka_log_log_size))",
                    "{{topic}}-{{partition}}",
                ),
            ),
        ),
        Panel(
            "Under-replicated partitions",
            "none",
            (("sum by (topic) (kafka_cluster_partition_underreplicated)", "{{topic}}"),),
        ),
        Panel(
            "Replication",
            "Bps",
            (
                (rate(f"{TOPICS}replicationbytesin_total"), f"{NODE} in"),
                (rate(f"{TOPICS}replicationbytesout_total"), f"{NODE} out"),
            ),
        ),
        Panel("Lag of followers", "none", (("kafka_server_replicafetchermanager_maxlag", NODE),)),
        Panel(
            "Bytes refused for their size",
            "Bps",
            ((topic_rate("bytesrejected_total"), "{{topic}}"),),
        ),
    ),
)

GROUPS = Board(
    "groups",
    "sparkraft: groups",
    (
        Panel("Lag by group", "none", ((f"sum by (consumergroup) ({LAG})", "{{consumergroup}}"),)),
        Panel(
            "Largest lags",
            "none",
            ((f"topk(20, {LAG})", "{{consumergroup}} {{topic}}-{{partition}}"),),
        ),
        Panel(
            "Records consumed",
            "cps",
            (
                (
                    rate("kafka_consumergroup_current_offset", "consumergroup"),
                    "{{consumergroup}}",
                ),
            ),
        ),
        Panel(
            "Members",
            "none",
            (("max by (consumergroup) (kafka_consumergroup_members)", "{{consumergroup}}"),),
        ),
        Panel(
            "Groups by protocol",
            "none",
            tuple(
                (f"sum(kafka_server_group_coordinator_metrics_protocol_{name}_group_count)", name)
                for name in ("classic", "consumer")
            ),
        ),
        Panel(
            "Classic groups by state",
            "none",
            tuple(
                (f"sum(kafka_coordinator_group_groupmetadatamanager_numgroups{name})", name)
                for name in ("stable", "preparingrebalance", "completingrebalance", "empty")
            ),
        ),
        Panel(
            "Consumer groups by state",
            "none",
            tuple(
                (
                    f"sum(kafka_server_group_coordinator_metrics_state_{name}_consumer_group_count)",
                    name,
                )
                for name in ("stable", "assigning", "reconciling", "empty")
            ),
        ),
        Panel(
            "Committed offsets",
            "none",
            (("kafka_coordinator_group_groupmetadatamanager_numoffsets", NODE),),
        ),
        Panel(
            "Transactional ids",
            "none",
            (("sum by (state) (sparkraft_transactional_ids_in_state)", "{{state}}"),),
        ),
    ),
)

RAFT = "kafka_server_raft_metrics_"

QUORUM = Board(
    "quorum",
    "sparkraft: quorum and elections",
    (
        Panel("Leader", "none", ((f"{RAFT}current_leader", NODE),)),
        Panel("Epoch", "none", ((f"{RAFT}current_epoch", NODE),)),
        Panel("State", "none", ((f"{RAFT}current_state", f"{NODE} {{{{state}}}}"),)),
        Panel(
            "Elections",
            "none",
            (("increase(sparkraft_raft_elections_total[$__rate_interval])", NODE),),
        ),
        Panel("Last election", "ms", (("sparkraft_raft_election_ms_last", NODE),)),
        Panel("Without a leader", "ms", (("sparkraft_raft_leaderless_ms", NODE),)),
        Panel("Commit, mean", "ms", ((f"{RAFT}commit_latency_avg", NODE),)),
        Panel("Records appended", "cps", ((f"{RAFT}append_records_rate", NODE),)),
        Panel("Records fetched", "cps", ((f"{RAFT}fetch_records_rate", NODE),)),
        Panel("High watermark", "none", ((f"{RAFT}high_watermark", NODE),)),
        Panel(
            "Lag of followers", "none", (("sparkraft_raft_follower_lag", "{{role}} {{node_id}}"),)
        ),
        Panel(
            "Requests to other members",
            "reqps",
            ((rate("kafka_server_raft_channel_metrics_request_total"), NODE),),
        ),
        Panel(
            "Elections of partition leaders",
            "cps",
            (
                (
                    rate("sparkraft_partition_elections_total", "kind"),
                    "{{kind}}",
                ),
            ),
        ),
        Panel(
            "Requests decided by the controller",
            "reqps",
            ((rate("sparkraft_controller_event_processings_total"), NODE),),
        ),
        Panel(
            "Time since the last heartbeat",
            "ms",
            ((f"max by (broker) ({CONTROLLER}timesincelastheartbeatreceivedms)", "{{broker}}"),),
        ),
    ),
)

PIPELINE = "sparkraft_pipeline_"
EACH = "{{pipeline}}"

PIPELINES = Board(
    "pipelines",
    "sparkraft: pipelines",
    (
        Panel("Records", "cps", ((rate(f"{PIPELINE}records_total", "pipeline"), EACH),)),
        Panel("Lag", "none", ((f"{PIPELINE}lag_offsets", EACH),)),
        Panel(
            "Batch, 99th percentile",
            "s",
            ((quantile(f"{PIPELINE}batch_seconds_bucket", "", "pipeline"), EACH),),
        ),
        Panel("Batches", "cps", ((rate(f"{PIPELINE}batch_seconds_count", "pipeline"), EACH),)),
        Panel(
            "Damaged records",
            "cps",
            ((rate(f"{PIPELINE}damaged_records_total", "pipeline"), EACH),),
        ),
        Panel("Late records", "cps", ((rate(f"{PIPELINE}late_records_total", "pipeline"), EACH),)),
        Panel(
            "Since the last batch",
            "s",
            ((f"time() - {PIPELINE}last_batch_timestamp_seconds", EACH),),
        ),
    ),
)

BOARDS = (CLUSTER, NODES, TOPICS_BOARD, GROUPS, QUORUM, PIPELINES)


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

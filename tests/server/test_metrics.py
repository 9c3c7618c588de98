"""What /metrics has: the names of Kafka, counters of topics and requests; and what uses them."""

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from sparkraft.server.families import whole
from sparkraft.server.metrics import parts
from tests.server.harness import (
    NOW_MS,
    append,
    batch,
    connect,
    create_topic,
    fetch,
    node_in,
    run,
    until,
)
from tools.metrics_page import exported_name, page

ROOT = Path(__file__).parents[2]

OF_STRIMZI = (
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_replicascount",
    "kafka_cluster_partition_underminisr",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_log_log_size",
    "kafka_log_logmanager_offlinelogdirectorycount",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "kafka_server_raftchannelmetrics_incoming_byte_total",
    "kafka_server_raftchannelmetrics_outgoing_byte_total",
    "kafka_server_raftchannelmetrics_request_total",
    "kafka_server_raftchannelmetrics_response_total",
    "kafka_server_raftmetrics_append_records_rate",
    "kafka_server_raftmetrics_commit_latency_avg",
    "kafka_server_raftmetrics_current_epoch",
    "kafka_server_raftmetrics_current_leader",
    "kafka_server_raftmetrics_current_state",
    "kafka_server_raftmetrics_current_vote",
    "kafka_server_raftmetrics_fetch_records_rate",
    "kafka_server_raftmetrics_high_watermark",
    "kafka_server_raftmetrics_log_end_offset",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_socket_server_metrics_connection_count",
)
"""The metrics of Strimzi's dashboards and alerts for Kafka in KRaft mode."""

OTHERS = {"up", "node_filesystem_avail_bytes"}
"""Metrics of Prometheus and node_exporter that an alert may use."""

TOPICS = "kafka_server_brokertopicmetrics_"


def scraped(url: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Samples by name, then by labels; families without samples have none."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as response:
        text = response.read().decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        found.setdefault(exported_name(family), {})
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def values_of(node) -> dict[tuple[str, ...], float]:
    """Samples by name and label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in whole(parts(node))
        for sample in family.samples
    }


@pytest.mark.real_clients
def test_a_scrape_has_every_name_that_dashboards_for_kafka_use(sparkraft_cluster):
    found = scraped(sparkraft_cluster.http)
    assert set(OF_STRIMZI) <= found.keys()
    without = {name for name in OF_STRIMZI if not found[name]}
    # Partitions have no series before there is a topic.
    assert without <= {name for name in OF_STRIMZI if "partition_" in name or "log_log" in name}
    assert found["kafka_server_raftmetrics_current_state"] == {(("current_state", "leader"),): 1}
    assert found["kafka_server_raft_metrics_current_state"] == {(("state", "leader"),): 1}
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == {(): 1}
    assert found["kafka_server_kafkaserver_brokerstate"] == {(): 3}
    idle = found["kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"][()]
    assert 0 <= idle <= 1


@pytest.mark.real_clients
def test_the_page_of_metrics_has_those_of_a_running_node(sparkraft_cluster):
    text = (ROOT / "docs" / "metrics.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE))
    histograms = re.findall(r"^\| `(\w+)` \| histogram", text, re.MULTILINE)
    parts = {name + suffix for name in histograms for suffix in ("_bucket", "_count", "_sum")}
    found = scraped(sparkraft_cluster.http).keys() - parts
    assert found - listed == set()
    assert listed - found == set()


def test_the_page_of_metrics_is_up_to_date(tmp_path):
    async def test() -> None:
        async with node_in(tmp_path) as node:
            expected = page(whole(parts(node)))
            assert (ROOT / "docs" / "metrics.md").read_text() == expected, (
                "docs/metrics.md is out of date; run: .venv/bin/python tools/metrics_page.py"
            )

    run(test())


def names_in(expression: str) -> set[str]:
    """The metrics of a PromQL expression."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(by|on) \([^)]*\)", " ", expression)
    words = set(re.findall(r"[a-z][a-z0-9_]+(?!\w*\s*\()", bare))
    return {word for word in words if "_" in word or word == "up"} - FUNCTIONS


FUNCTIONS = {"and", "clamp_min", "group_right", "histogram_quantile", "predict_linear"}


def names_of_pipelines() -> set[str]:
    """The samples that a pipeline exports once it has read a batch."""
    from sparkraft.pipeline.metrics import PipelineMetrics

    text = generate_latest(PipelineMetrics("flights").registry).decode()
    families = text_string_to_metric_families(text)
    return {sample.name for family in families for sample in family.samples}


def expressions() -> dict[str, str]:
    """Those of alerts and of dashboards, by their place."""
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"][0]["rules"]
    found = {rule["alert"]: rule["expr"] for rule in rules}
    for path in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                found[f"{path.name}: {panel['title']} {target['refId']}"] = target["expr"]
    return found


@pytest.mark.real_clients
def test_alerts_and_dashboards_use_metrics_that_exist(sparkraft_cluster):
    found = scraped(sparkraft_cluster.http).keys() | OTHERS | names_of_pipelines()
    for where, expression in expressions().items():
        names = names_in(expression)
        assert names, where
        assert names <= found, f"{where}: {names - found}"


def test_alerts_and_dashboards_use_labels_that_exist():
    """Those of docs/metrics.md, which other tests hold up to date, and of Prometheus itself."""
    row = re.compile(r"^\| `(\w+)` \| \w+ \| ([^|]*) \|", re.MULTILINE)
    page = (ROOT / "docs" / "metrics.md").read_text()
    labels = {name: set(re.findall(r"`(\w+)`", words)) for name, words in row.findall(page)}
    for where, expression in expressions().items():
        names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in names_in(expression)}
        if not names & labels.keys():
            continue  # of pipelines, or of node_exporter
        known = set().union(*(labels.get(name, set()) for name in names)) | {"instance", "le"}
        used = set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", expression))
        for listed in re.findall(r"\b(?:by|on|group_left|group_right) \(([^)]*)\)", expression):
            used.update(re.findall(r"\w+", listed))
        assert used <= known, f"{where}: {used - known}"


def test_each_alert_has_a_section_in_the_operations_page():
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"][0]["rules"]
    text = (ROOT / "docs" / "OPERATIONS.md").read_text()
    sections = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    assert sections == [rule["alert"] for rule in rules]
    for rule in rules:
        name = rule["alert"]
        assert rule["annotations"]["runbook"] == f"docs/OPERATIONS.md#{name.lower()}"
        assert rule["labels"]["severity"] in {"critical", "warning"}
        section = text.partition(f"### {name}\n")[2].partition("\n###")[0]
        assert re.findall(r"^\* \*\*(.+?):\*\*", section, re.MULTILINE) == [
            "Meaning", "Clients", "Look at", "Do",
        ]  # fmt: skip


def test_the_dashboards_are_up_to_date():
    command = [sys.executable, ROOT / "tools" / "dashboards.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_topics_count_what_clients_write_and_read(tmp_path):
    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic = await create_topic(client, "orders", partitions=2)
            records = batch(b"one", b"two", b"three")
            for partition in (0, 1, 1):
                assert (await append(client, topic, records, partition=partition)).error_code == 0
            bad = bytearray(records)
            bad[-1] ^= 1
            assert (await append(client, topic, bytes(bad))).error_code != 0
            response = await client.send(fetch(topic, partitions=(0, 1)))
            sent = [len(bytes(p.records)) for p in response.responses[0].partitions]
            values = values_of(node)
            assert values[f"{TOPICS}messagesin_total", "orders"] == 9
            assert values[f"{TOPICS}bytesin_total", "orders"] == 3 * len(records)
            assert values[f"{TOPICS}bytesout_total", "orders"] == sum(sent) == 3 * len(records)
            assert values[f"{TOPICS}totalproducerequests_total", "orders"] == 4
            assert values[f"{TOPICS}totalfetchrequests_total", "orders"] == 2
            assert (f"{TOPICS}failedproducerequests_total", "orders") not in values
            assert values[f"{TOPICS}invalidmessagecrcrecords_total",] == 1
            assert values[f"{TOPICS}messagesin_total",] == 9
            assert values["kafka_log_log_size", "orders", "1"] == 2 * len(records)
            await client.close()

    run(test())


def test_requests_are_counted_by_api_and_version(tmp_path):
    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic = await create_topic(client, "orders")
            before = values_of(node)
            for _ in range(3):  # from the second on they are of a known shape
                await append(client, topic, batch(b"x"), version=13)
            await client.send(fetch(topic), version=17)
            await client.send(fetch(b"\1" * 16), version=17)
            values = values_of(node)
            requests = "kafka_network_requestmetrics_requests_total"
            errors = "kafka_network_requestmetrics_errors_total"
            assert values[requests, "Produce", "13"] == 3
            assert values[requests, "Fetch", "17"] - before.get((requests, "Fetch", "17"), 0) == 2
            assert values[requests, "FetchConsumer", "17"] == 2
            assert values[errors, "Fetch", "UNKNOWN_TOPIC_ID"] == 1
            assert (requests, "DeleteTopics", "6") not in values, "only those received"
            await client.close()

    run(test())


def test_groups_have_their_offsets_lags_and_states(tmp_path):
    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic = await create_topic(client, "orders")
            await append(client, topic, batch(b"one", b"two", b"three"))
            await until(lambda: coordinates(client, "readers"))
            await client.send(
                OffsetCommitRequest(
                    group_id="readers",
                    generation_id_or_member_epoch=-1,
                    topics=[
                        OffsetCommitRequestTopic(
                            name="orders",
                            partitions=[
                                OffsetCommitRequestPartition(
                                    partition_index=0, committed_offset=1, committed_metadata=""
                                )
                            ],
                        )
                    ],
                ),
                version=9,
            )
            values = values_of(node)
            assert values["kafka_consumergroup_current_offset", "readers", "orders", "0"] == 1
            assert values["kafka_consumergroup_lag", "readers", "orders", "0"] == 2
            assert values["kafka_consumergroup_lag_sum", "readers"] == 2
            assert values["kafka_consumergroup_members", "readers"] == 0
            manager = "kafka_coordinator_group_groupmetadatamanager_"
            assert values[f"{manager}numgroups",] == values[f"{manager}numgroupsempty",] == 1
            assert values[f"{manager}numoffsets",] == 1
            coordinator = "kafka_server_group_coordinator_metrics_"
            assert values[f"{coordinator}protocol_classic_group_count",] == 1
            assert values[f"{coordinator}state_active_num_partitions",] == 2
            assert values[f"{coordinator}consumer_group_rebalance_count",] == 0
            join = ConsumerGroupHeartbeatRequest(
                group_id="new", member_id=str(Uuid(bytes(15) + b"1")), member_epoch=0,
                rebalance_timeout_ms=10_000, subscribed_topic_names=["orders"],
                topic_partitions=[],
            )  # fmt: skip
            assert (await client.send(join)).error_code == 0
            await until(
                lambda: values_of(node)[f"{coordinator}consumer_group_rebalance_count",] == 1
            )
            assert values_of(node)[f"{coordinator}group_completed_rebalance_count",] == 0
            await client.close()

    run(test())


async def coordinates(client: Any, group: str) -> bool:
    """Whether the group has a coordinator."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    found = (await client.send(request, version=4)).coordinators[0].error_code == 0
    if not found:
        return False
    request = HeartbeatRequest(group_id=group, generation_id=1, member_id="none")
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return (await client.send(request)).error_code not in {loading, ErrorCode.NOT_COORDINATOR}


def test_waiting_requests_and_applied_metadata(tmp_path):
    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic = await create_topic(client, "orders")
            poll = client.send_nowait(fetch(topic, max_wait_ms=60_000))
            parked = "kafka_server_delayedoperationpurgatory_purgatorysize", "Fetch"
            await until(lambda: values_of(node)[parked] == 1)
            await append(await connect(node), topic, batch(b"x"))
            await poll
            values = values_of(node)
            assert values[parked] == 0
            prefix = "kafka_controller_kafkacontroller_lastappliedrecord"
            assert values[f"{prefix}timestamp",] > NOW_MS
            assert values[f"{prefix}lagms",] == 0, "the active controller"
            await client.close()

    run(test())

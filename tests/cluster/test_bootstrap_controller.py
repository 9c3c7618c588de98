"""Kafka's own tools with --bootstrap-controller: ours tell them what Kafka's do (KIP-919).

A cluster of each kind, a controller and a broker, is asked the same questions, by Kafka's tools
and by our commands; all four answers are the same, but for what a cluster calls its own.
"""

import contextlib
import io
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from sparkraft.cli import main as cli
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Kind, Member
from tests.support.kafka_tools import run_kafka_tool
from tests.support.nodes import CLUSTER_ID

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

TOOLS = {
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "configs": "kafka.admin.ConfigCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}

_NODE = "--entity-type brokers --entity-name 1"
_ALL_NODES = "--entity-type brokers --entity-default"
_TOPIC = "--entity-type topics --entity-name asked"
QUESTIONS = [
    f"configs --alter {_ALL_NODES} --add-config log.cleaner.backoff.ms=12345",
    f"configs --alter {_TOPIC} --add-config retention.ms=1234567",
    "metadata-quorum describe --status",
    "metadata-quorum describe --replication",
    "features describe",
    "features upgrade --feature kraft.version=1 --dry-run",
    "cluster cluster-id",
    "cluster list-endpoints",
    "cluster unregister --id 99",
    "reassign-partitions --list",
    f"configs --describe {_ALL_NODES}",
    f"configs --describe {_TOPIC} --all",
    f"configs --describe {_NODE}",
    f"configs --describe {_NODE} --all",
    "configs --describe --entity-type brokers",
]
"""In this order: Kafka's controllers show what was set some moments after they agreed to it."""

REFUSED = {"cluster unregister --id 99"}
"""What can't be done; the tools' own words for that are many lines, and no command of ours."""


_LOG_LINE = re.compile(r"^\[\d{4}-\d\d-\d\d .*\n", re.MULTILINE)


class Told(NamedTuple):
    """What a tool of Kafka's said and its exit code, and what our command said."""

    code: int
    kafkas: list[str]
    ours: list[str]


@pytest.fixture(scope="module")
def told(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, dict[str, Told]]:
    """Everything, asked of our controller and of Kafka's."""
    folder = tmp_path_factory.mktemp("controllers")
    kinds: tuple[Kind, ...] = ("sparkraft", "kafka")
    with contextlib.ExitStack() as stack:
        clusters = [stack.enter_context(led_by(kind, folder, kafka_jars)) for kind in kinds]
        for cluster in clusters:
            cluster.create_topic("asked", partitions=2)
        asked = [argv(q, c.controller_bootstrap) for c in clusters for q in QUESTIONS]
        kafkas = iter(by_kafkas_tools(kafka_jars, asked))
        ours = iter([by_our_command(words) for words in asked])
    return {
        kind: {question: as_told(cluster, *next(kafkas), next(ours)) for question in QUESTIONS}
        for kind, cluster in zip(kinds, clusters, strict=True)
    }


def led_by(kind: Kind, folder: Path, jars: Path) -> Cluster:
    """A controller of this kind and a broker of ours."""
    # Whoever is Kafka's has more time to start; both shall have the same configs.
    settings = {**STEADY, "initial.broker.registration.timeout.ms": "180000"}
    members = [Member(1, kind, "controller"), Member(11, "sparkraft", "broker")]
    return Cluster(folder / kind, members, overrides=settings, jars=jars)


def as_told(cluster: Cluster, code: int, kafkas: str, ours: str) -> Told:
    return Told(code, neutral(cluster, kafkas), neutral(cluster, ours))


def argv(question: str, controllers: str) -> list[str]:
    """The words of a command line, with the address where Kafka's tool wants it."""
    command, *words = question.split()
    place = 1 if command == "cluster" else 0
    return [command, *words[:place], "--bootstrap-controller", controllers, *words[place:]]


def by_kafkas_tools(jars: Path, asked: list[list[str]]) -> list[tuple[int, str]]:
    """The exit code and output of each, without what it logs: that has times in it."""
    done = [run_kafka_tool(jars, TOOLS[command], *options) for command, *options in asked]
    return [(each.returncode, each.stdout + _LOG_LINE.sub("", each.stderr)) for each in done]


def by_our_command(words: list[str]) -> str:
    """What it says, and its code where it fails."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = cli.main(words)
    return said.getvalue() if code == 0 else f"ends with {code}"


def neutral(cluster: Cluster, text: str) -> list[str]:
    """The lines without what a cluster calls its own: ports, folders, ids, offsets and times."""
    for node, ports in cluster.ports.items():
        for place, port in zip(("CLIENTS", "CONTROLLER"), ports, strict=True):
            text = re.sub(rf"(127\.0\.0\.1[: ]+){port}(?!\d)", rf"\1{place}_PORT_{node}", text)
    text = text.replace(str(cluster.directory), "FOLDER")
    text = re.sub(r"(?<![\w-])(?!--|" + CLUSTER_ID + r")[\w-]{22}(?![\w-])", "ID", text)
    text = re.sub(r"\b1\d{12}\b", "TIME", text)
    # A broker fetches now and then: how much it lacks, and for how long, is chance.
    text = re.sub(r"ID\s+\d+\s+\d+\s+TIME\s+TIME", "ID OFFSET LAG TIME TIME", text)
    text = re.sub(r"(HighWatermark:|Epoch:)\s+\d+", r"\1 NUMBER", text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("question", QUESTIONS)
def test_our_controllers_tell_kafkas_tools_what_kafkas_tell(
    question: str, told: dict[Kind, dict[str, Told]]
) -> None:
    ours, kafkas = told["sparkraft"][question], told["kafka"][question]
    assert ours.kafkas == kafkas.kafkas
    assert ours.code == kafkas.code == (question in REFUSED)
    assert ours.kafkas, "the tool says something"


@pytest.mark.parametrize("question", QUESTIONS)
def test_our_commands_tell_what_kafkas_tools_tell(
    question: str, told: dict[Kind, dict[str, Told]]
) -> None:
    for kind in told:
        if question in REFUSED:
            assert told[kind][question].ours == ["ends with 1"]
        else:
            assert told[kind][question].ours == told[kind][question].kafkas

"""librdkafka's own tests, from a given source tree, against three nodes of each kind.

Known to build and run with librdkafka 2.15.0. Not collected by pytest: `tools/librdkafka_tests`
runs it. The sources are not part of this project.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sparkraft.client.security import secured_connect
from sparkraft.security.login import Login
from sparkraft.security.secret import Secret
from tests.support.certificates import Authority, pem_configs
from tests.support.clusters import Cluster, Kind, Member
from tests.support.jvm import java_command
from tests.support.kafka_jars import kafka_jars_or_reason
from tests.support.kafka_tools import kafka_tool_command
from tests.support.sasl import PASSWORDS, PLAIN, SHA_256, SHA_512
from tools.librdkafka_security import ENTRIES, WITHOUT_OIDC, Securing, has_oidc, secured

TRANSACTIONS = ("0103", "0129", "0090", "0094")
GROUPS = (
    "0018", "0019", "0029", "0030", "0033", "0045", "0050", "0051", "0056", "0069", "0089", "0091",
    "0099", "0102", "0107", "0112", "0113", "0116", "0118", "0122", "0130", "0132", "0137", "0140",
    "0153",
)  # fmt: skip
PROTOCOLS = ("classic", "consumer")
"""Of the groups with which each test reads, or checks, its records."""

SECONDS_MAX = 600
_BUILD_SECONDS_MAX = 1_800
_BROKER_VERSION = "4.3.0"

NODE = {
    "num.partitions": "4",
    "auto.create.topics.enable": "true",
    "group.min.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "transaction.max.timeout.ms": "900000",
}
"""What the tests expect of a broker: Kafka's default if that of our tests differs, and for KIP-848
members the session timeout that the tests give to classic ones."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a test.

    Attributes:
        number: of the test.
        protocol: of its groups.
        part: a substring that selects its parts; "" for all.
        client: its configuration, beside the addresses.
        variables: of its environment.
    """

    number: str
    protocol: str = "classic"
    part: str = ""
    client: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


class Outcome(NamedTuple):
    """`passes`, `skipped`, `FAILS` or `too slow`, and the seconds that the test took."""

    verdict: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.verdict} ({self.seconds:.0f} s)"


Row = tuple[str, ...]
Column = dict[Row, Outcome]
"""The outcomes on clusters of one kind, by the row of the table."""


def kafkas_commands(folder: Path, jars: Path) -> Path:
    """A folder like Kafka's own, with the scripts and jars that the tests run.

    Access control is changed by kafka-acls.sh, topics by kafka-topics.sh, and kafka-run-class.sh
    runs the Java consumers that 0113 compiles and lets share a group.
    """
    home = folder / "kafka"
    (home / "bin").mkdir(parents=True)
    (home / "libs").symlink_to(jars)
    commands = {
        "kafka-acls.sh": kafka_tool_command(jars, "org.apache.kafka.tools.AclCommand"),
        "kafka-topics.sh": kafka_tool_command(jars, "org.apache.kafka.tools.TopicCommand"),
        "kafka-run-class.sh": java_command(jars, beside=[Path("$CLASSPATH")]),
    }
    for name, command in commands.items():
        words = " ".join(f'"{word}"' for word in command)
        script = home / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        script.chmod(0o755)
    return home


def build(source: Path) -> None:
    """Configure and build the library and its tests, unless they are there."""
    if (source / "tests" / "test-runner").exists():
        return
    for command in (["./configure"], ["make", "-j2", "libs"], ["make", "-C", "tests", "build"]):
        done = subprocess.run(
            command, cwd=source, capture_output=True, text=True, timeout=_BUILD_SECONDS_MAX,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr}")


def outcome(source: Path, cluster: Cluster, run: Run) -> Outcome:
    """Run one test; its output is kept in a file beside the nodes.

    A test passes if one of its chosen parts does and none fails; else it is skipped.
    """
    name = "-".join(filter(None, [run.number, run.part, run.protocol]))
    settings = {"bootstrap.servers": cluster.bootstrap, "broker.address.family": "v4", **run.client}
    configuration = cluster.directory / f"{name}.conf"
    configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    variables = {
        **os.environ,
        "LD_LIBRARY_PATH": "../src:../src-cpp",
        "TESTS": run.number,
        "TEST_KAFKA_VERSION": _BROKER_VERSION,
        "TEST_CONSUMER_GROUP_PROTOCOL": run.protocol,
        "RDKAFKA_TEST_CONF": str(configuration),
        "BROKERS": cluster.bootstrap,
        **run.variables,
    }
    if run.part:
        variables["SUBTESTS"] = run.part
    output = cluster.directory / f"{name}.log"
    began = time.monotonic()
    verdict = _verdict(source, output, run, variables)
    return Outcome(verdict, time.monotonic() - began)


def _verdict(source: Path, output: Path, run: Run, variables: Mapping[str, str]) -> str:
    try:
        with output.open("w") as file:
            done = subprocess.run(
                ["./test-runner", "-p1"], cwd=source / "tests", env=variables,
                stdout=file, stderr=subprocess.STDOUT, timeout=SECONDS_MAX, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "too slow"
    if done.returncode != 0:
        return "FAILS"
    passed = rf"\b{run.number}_\w+\W+PASSED"
    if run.part:  # A test without any of its parts passes, too.
        passed = rf"\[ [^\n]*{re.escape(run.part)}[^\n]*: PASS "
    return "passes" if re.search(passed, output.read_text(errors="replace")) else "skipped"


def outcomes(
    source: Path, cluster: Cluster, runs: Mapping[Row, Run], at_once: int, kind: Kind
) -> Column:
    """The outcome of each run, `at_once` of them at a time, and each as a line of progress."""

    def measured(item: tuple[Row, Run]) -> tuple[Row, Outcome]:
        row, run = item
        found = outcome(source, cluster, run)
        print(f"  {kind}: {', '.join(row)}: {found}", file=sys.stderr, flush=True)
        return row, found

    with ThreadPoolExecutor(at_once) as threads:
        return dict(threads.map(measured, runs.items()))


def wanted(
    numbers: Sequence[str], protocols: Sequence[str], variables: Mapping[str, str]
) -> dict[Row, Run]:
    """Each test with each protocol, in order; `NUMBER:PART` selects parts of a test."""
    runs = {}
    for chosen in numbers or [*TRANSACTIONS, *GROUPS]:
        number, _, part = chosen.partition(":")
        for protocol in protocols:
            runs[chosen, protocol] = Run(number, protocol, part, variables=variables)
    return runs


def measure(kind: Kind, folder: Path, chosen: argparse.Namespace) -> Column:
    """The outcomes on three nodes of `kind`; the tests create topics with three replicas."""
    jars = _jars()
    members = [Member(number, kind) for number in (1, 2, 3)]
    protocols = [chosen.protocol] if chosen.protocol else PROTOCOLS
    runs = wanted(chosen.numbers, protocols, _variables(folder, kind))
    with Cluster(folder / kind, members, overrides=NODE, jars=jars) as cluster:
        return outcomes(chosen.source, cluster, runs, chosen.at_once, kind)


def measure_security(kind: Kind, folder: Path, chosen: argparse.Namespace) -> Column:
    """The outcomes on secured clusters of `kind`, by what is secured, test and part."""
    authority = Authority(folder / f"{kind}-authority")
    commands = _variables(folder, kind)
    found: Column = {}
    with ExitStack() as stack:
        for place, (name, securing) in enumerate(secured(authority, stack).items()):
            variables = {**commands, **securing.variables}
            runs = {
                (name, number, part or "all parts"): Run(
                    number, part=part, client=securing.client, variables=variables
                )
                for number, part in securing.runs
                if not chosen.numbers or number in chosen.numbers
            }
            if not runs or (chosen.securing or name) not in name:
                continue
            if "sasl.oauthbearer.method" in securing.client and not has_oidc(chosen.source):
                print(WITHOUT_OIDC, file=sys.stderr)
                continue
            with _secured_cluster(kind, folder / f"{kind}-{place}", securing) as cluster:
                found |= outcomes(chosen.source, cluster, runs, chosen.at_once, kind)
    return found


def _secured_cluster(kind: Kind, folder: Path, securing: Securing) -> Cluster:
    """Three nodes with one voter: several would need super users to elect a controller."""
    members = [Member(1, kind), Member(2, kind, "broker"), Member(3, kind, "broker")]
    login = None if securing is ENTRIES else Login(PLAIN, "admin", Secret(PASSWORDS["admin"]))
    cluster = Cluster(
        folder, members, quorum="standalone", overrides=NODE | securing.node, jars=_jars(),
        login=login, connect=secured_connect(_connecting(securing.client)),
    )  # fmt: skip
    users = [f"{each}=[name=admin,password={PASSWORDS['admin']}]" for each in (SHA_256, SHA_512)]
    for node in cluster.nodes.values():
        more = (word for user in users for word in ("--add-scram", user))
        node.format_as = (*node.format_as, *more)
        if securing.java_flags:
            node.environment["JAVA_TOOL_OPTIONS"] = securing.java_flags
    return cluster


def _variables(folder: Path, kind: Kind) -> dict[str, str]:
    return {"KAFKA_PATH": str(kafkas_commands(folder / f"commands-{kind}", _jars()))}


def _jars() -> Path:
    """Kafka's, for its nodes and commands."""
    jars = kafka_jars_or_reason()
    if not isinstance(jars, Path):
        raise SystemExit(f"this needs Kafka's jars: {jars.reason}")
    return jars


def _connecting(client: Mapping[str, str]) -> dict[str, str]:
    """The configs with which our own client connects to the same listener."""
    protocol = client.get("security.protocol", "PLAINTEXT")
    stores = pem_configs(None, Path(client.get("ssl.ca.location", "")))
    return {"security.protocol": protocol, **(stores if protocol == "SASL_SSL" else {})}


def print_table(labels: Sequence[str], columns: Mapping[Kind, Column]) -> bool:
    """Print one row for each run; returns whether one passes on Kafka and does not here."""
    print(f"| {' | '.join([*labels, *columns])} |")
    print(f"|{'---|' * (len(labels) + len(columns))}")
    is_worse = False
    for row in next(iter(columns.values())):
        cells = {kind: column[row] for kind, column in columns.items()}
        print(f"| {' | '.join([*row, *map(str, cells.values())])} |")
        verdicts = {kind: cell.verdict for kind, cell in cells.items()}
        fails_here = verdicts.get("sparkraft", "passes") != "passes"
        is_worse |= fails_here and verdicts.get("kafka") == "passes"
    return is_worse


def main() -> int:
    """Print the table; 1 if a test passes on Kafka and fails here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("numbers", nargs="*")
    parser.add_argument("--only", choices=["sparkraft", "kafka"])
    parser.add_argument("--protocol", choices=PROTOCOLS)
    parser.add_argument("--security", action="store_true")
    parser.add_argument("--securing", help="part of the name of what is secured")
    parser.add_argument("--at-once", type=int, default=1)
    chosen = parser.parse_intermixed_args()
    build(chosen.source)
    kinds: list[Kind] = [chosen.only] if chosen.only else ["sparkraft", "kafka"]
    folder = Path(tempfile.mkdtemp(prefix="librdkafka-tests-"))
    print(f"Output of the tests: {folder}\n", flush=True)
    take, labels = measure, ["test", "protocol"]
    if chosen.security:
        take, labels = measure_security, ["cluster", "test", "part"]
    columns = {kind: take(kind, folder, chosen) for kind in kinds}
    return int(print_table(labels, columns))


if __name__ == "__main__":
    sys.exit(main())

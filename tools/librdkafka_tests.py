"""librdkafka's own tests, from a given source tree, against three nodes of each kind.

Not collected by pytest: `tools/librdkafka_tests` runs it. The sources are not part of this project.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparkraft.client.security import secured_connect
from sparkraft.security.login import Login
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.certificates import Authority, pem_configs
from tests.support.clusters import Cluster, Kind, Member
from tests.support.kafka_jars import kafka_jars_or_reason
from tests.support.kafka_tools import kafka_tool_command
from tests.support.sasl import PASSWORDS, PLAIN, SHA_256, SHA_512, server_module

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
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "transaction.max.timeout.ms": "900000",
}
"""What the tests expect of a broker, as librdkafka's own test cluster has it."""


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


@dataclass(frozen=True, slots=True)
class Securing:
    """How a cluster is secured, and the tests for it.

    Attributes:
        node: configs of the nodes.
        client: lines of the configuration of the tests.
        runs: tests, each with the substring that selects its parts, "" for all.
    """

    node: Mapping[str, str]
    client: Mapping[str, str]
    runs: Sequence[tuple[str, str]]


REAUTHENTICATION = tuple(
    ("0142", f"do_test_{part}") for part in ("producer", "consumer", "txn_producer")
)
"""Without the parts of share groups, which our nodes do not serve."""

ENTRIES = Securing(
    node={"authorizer.class.name": CLASS_NAME, "allow.everyone.if.no.acl.found": "true"},
    client={},
    runs=[("0115", ""), ("0119", "")],
)


def by_mechanism(mechanism: str, protocol: str, authority: Authority) -> Securing:
    """Listeners with SASL, whose sessions end; nodes connect to each other by PLAIN."""
    prefix = "listener.name.plaintext"
    mechanisms = list(dict.fromkeys([PLAIN, mechanism]))
    stores = pem_configs(authority.issue("node"), authority.ca_path)
    return Securing(
        node={
            "listener.security.protocol.map": f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(mechanisms),
            "sasl.mechanism.inter.broker.protocol": PLAIN,
            **{
                f"{prefix}.{each.lower()}.sasl.jaas.config": server_module(each)
                for each in mechanisms
            },
            "connections.max.reauth.ms": "5000",
            **(stores if protocol == "SASL_SSL" else {}),
        },
        client={
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.username": "admin",
            "sasl.password": PASSWORDS["admin"],
            "ssl.ca.location": str(authority.ca_path),
        },
        runs=[("0135", ""), *REAUTHENTICATION],
    )


def secured(authority: Authority) -> dict[str, Securing]:
    """Name → what is tested."""
    pairs = [(PLAIN, "SASL_PLAINTEXT"), (SHA_256, "SASL_PLAINTEXT"), (SHA_512, "SASL_SSL")]
    return {
        "access control": ENTRIES,
        **{
            f"{mechanism}, {protocol}": by_mechanism(mechanism, protocol, authority)
            for mechanism, protocol in pairs
        },
    }


def kafkas_commands(folder: Path, jars: Path) -> Path:
    """A folder like Kafka's own, with the script that the tests of access control run."""
    command = shlex.join(kafka_tool_command(jars, "org.apache.kafka.tools.AclCommand"))
    script = folder / "kafka" / "bin" / "kafka-acls.sh"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o755)
    return folder / "kafka"


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


def outcome(source: Path, cluster: Cluster, run: Run) -> str:
    """Run one test: `passes`, `skipped`, `FAILS` or `too slow`; its output is kept in a file.

    A test passes if one of its parts does and none fails; it is skipped if all parts are.
    """
    settings = {"bootstrap.servers": cluster.bootstrap, "broker.address.family": "v4", **run.client}
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    (source / "tests" / "test.conf").write_text(lines)
    variables = {
        **os.environ,
        "TESTS": run.number,
        "TEST_KAFKA_VERSION": _BROKER_VERSION,
        "TEST_CONSUMER_GROUP_PROTOCOL": run.protocol,
        **run.variables,
    }
    if run.part:
        variables["SUBTESTS"] = run.part
    try:
        done = subprocess.run(
            ["./run-test.sh", "-p1", "bare"], cwd=source / "tests", env=variables,
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "too slow"
    said = done.stdout + done.stderr
    (cluster.directory / f"{run.number}-{run.part or run.protocol}.log").write_text(said)
    if done.returncode != 0:
        return "FAILS"
    return "passes" if re.search(rf"\b{run.number}_\w+\W+PASSED", said) else "skipped"


def wanted(numbers: list[str]) -> list[Run]:
    """Each test with each protocol, in order."""
    chosen = numbers or [*TRANSACTIONS, *GROUPS]
    return [Run(number, protocol) for number in chosen for protocol in PROTOCOLS]


def measure(kind: Kind, folder: Path, source: Path, runs: list[Run]) -> list[str]:
    """The outcomes on three nodes of `kind`; the tests create topics with three replicas."""
    jars = kafka_jars_or_reason() if kind == "kafka" else None
    if jars is not None and not isinstance(jars, Path):
        return [jars.reason] * len(runs)
    members = [Member(number, kind) for number in (1, 2, 3)]
    found = []
    with Cluster(folder / kind, members, overrides=NODE, jars=jars) as cluster:
        for run in runs:
            found.append(outcome(source, cluster, run))
            about = f"{run.number} with {run.protocol}"
            print(f"  {kind}: {about}: {found[-1]}", file=sys.stderr, flush=True)
    return found


def measure_security(kind: Kind, folder: Path, source: Path) -> dict[tuple[str, str, str], str]:
    """The outcomes on secured clusters of `kind`, by what is secured, test and part."""
    jars = kafka_jars_or_reason()
    if not isinstance(jars, Path):
        raise SystemExit(f"the tests of access control need Kafka's commands: {jars.reason}")
    authority = Authority(folder / f"{kind}-authority")
    variables = {"KAFKA_PATH": str(kafkas_commands(folder, jars))}
    users = [f"{each}=[name=admin,password={PASSWORDS['admin']}]" for each in (SHA_256, SHA_512)]
    # One voter: several would need super users to elect a controller.
    members = [Member(1, kind), Member(2, kind, "broker"), Member(3, kind, "broker")]
    found = {}
    for place, (name, securing) in enumerate(secured(authority).items()):
        login = None if securing is ENTRIES else Login(PLAIN, "admin", Secret(PASSWORDS["admin"]))
        cluster = Cluster(
            folder / f"{kind}-{place}", members, quorum="standalone",
            overrides=NODE | securing.node, jars=jars,
            login=login, connect=secured_connect(_connecting(securing.client)),
        )  # fmt: skip
        for node in cluster.nodes.values():
            more = (word for user in users for word in ("--add-scram", user))
            node.format_as = (*node.format_as, *more)
        with cluster:
            for number, part in securing.runs:
                run = Run(number, part=part, client=securing.client, variables=variables)
                row = (name, number, part or "all parts")
                found[row] = outcome(source, cluster, run)
                print(f"  {kind}: {', '.join(row)}: {found[row]}", file=sys.stderr, flush=True)
    return found


def _connecting(client: Mapping[str, str]) -> dict[str, str]:
    """The configs with which our own client connects to the same listener."""
    protocol = client.get("security.protocol", "PLAINTEXT")
    stores = pem_configs(None, Path(client.get("ssl.ca.location", "")))
    return {"security.protocol": protocol, **(stores if protocol == "SASL_SSL" else {})}


def print_security(folder: Path, source: Path, kinds: list[Kind]) -> int:
    """Print the table; 1 if a test passes on Kafka and fails here."""
    columns = {kind: measure_security(kind, folder, source) for kind in kinds}
    print(f"Output of the tests: {folder}\n")
    print(f"| cluster | test | part | {' | '.join(kinds)} |\n|---|---|---|{'---|' * len(kinds)}")
    worse = 0
    for row in columns[kinds[0]]:
        cells = [columns[kind][row] for kind in kinds]
        print(f"| {' | '.join(row)} | {' | '.join(cells)} |")
        worse |= cells[-1] == "passes" and cells[0] != "passes"
    return int(worse)


def main() -> int:
    """Print the table; 1 if a test passes on Kafka and fails here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("numbers", nargs="*")
    parser.add_argument("--only", choices=["sparkraft", "kafka"])
    parser.add_argument("--security", action="store_true")
    chosen = parser.parse_intermixed_args()
    build(chosen.source)
    kinds: list[Kind] = [chosen.only] if chosen.only else ["sparkraft", "kafka"]
    folder = Path(tempfile.mkdtemp(prefix="librdkafka-tests-"))
    if chosen.security:
        return print_security(folder, chosen.source, kinds)
    runs = wanted(chosen.numbers)
    columns = {kind: measure(kind, folder, chosen.source, runs) for kind in kinds}
    print(f"Output of the tests: {folder}\n")
    print(f"| test | protocol | {' | '.join(kinds)} |\n|---|---|{'---|' * len(kinds)}")
    for index, run in enumerate(runs):
        cells = " | ".join(columns[kind][index] for kind in kinds)
        print(f"| {run.number} | {run.protocol} | {cells} |")
    worse = [
        run
        for index, run in enumerate(runs)
        if len(kinds) > 1
        and columns["kafka"][index] == "passes"
        and columns["sparkraft"][index] != "passes"
    ]
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())

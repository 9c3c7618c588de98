"""librdkafka's own tests, from a given source tree, against three nodes of each kind.

Not collected by pytest: `tools/librdkafka_tests` runs it. The sources are not part of this project.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.clusters import Cluster, Kind, Member
from tests.support.kafka_jars import kafka_jars_or_reason

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


def outcome(source: Path, cluster: Cluster, number: str, protocol: str) -> str:
    """Run one test: `passes`, `skipped`, `FAILS` or `too slow`; its output is kept in a file.

    A test passes if one of its parts does and none fails; it is skipped if all parts are.
    """
    (source / "tests" / "test.conf").write_text(
        f"bootstrap.servers={cluster.bootstrap}\nbroker.address.family=v4\n"
    )
    variables = {
        **os.environ,
        "TESTS": number,
        "TEST_KAFKA_VERSION": _BROKER_VERSION,
        "TEST_CONSUMER_GROUP_PROTOCOL": protocol,
    }
    try:
        done = subprocess.run(
            ["./run-test.sh", "-p1", "bare"], cwd=source / "tests", env=variables,
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "too slow"
    said = done.stdout + done.stderr
    (cluster.directory / f"{number}-{protocol}.log").write_text(said)
    if done.returncode != 0:
        return "FAILS"
    return "passes" if re.search(rf"\b{number}_\w+\W+PASSED", said) else "skipped"


def wanted(numbers: list[str]) -> list[tuple[str, str]]:
    """Test and protocol, in order."""
    chosen = numbers or [*TRANSACTIONS, *GROUPS]
    return [(number, protocol) for number in chosen for protocol in PROTOCOLS]


def measure(kind: Kind, folder: Path, source: Path, runs: list[tuple[str, str]]) -> list[str]:
    """The outcomes on three nodes of `kind`; the tests create topics with three replicas."""
    jars = kafka_jars_or_reason() if kind == "kafka" else None
    if jars is not None and not isinstance(jars, Path):
        return [jars.reason] * len(runs)
    members = [Member(number, kind) for number in (1, 2, 3)]
    found = []
    with Cluster(folder / kind, members, overrides=NODE, jars=jars) as cluster:
        for number, protocol in runs:
            found.append(outcome(source, cluster, number, protocol))
            print(f"  {kind}: {number} with {protocol}: {found[-1]}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Print the table; 1 if a test passes on Kafka and fails here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("numbers", nargs="*")
    parser.add_argument("--only", choices=["sparkraft", "kafka"])
    chosen = parser.parse_intermixed_args()
    build(chosen.source)
    runs = wanted(chosen.numbers)
    kinds: list[Kind] = [chosen.only] if chosen.only else ["sparkraft", "kafka"]
    folder = Path(tempfile.mkdtemp(prefix="librdkafka-tests-"))
    columns = {kind: measure(kind, folder, chosen.source, runs) for kind in kinds}
    print(f"Output of the tests: {folder}\n")
    print(f"| test | protocol | {' | '.join(kinds)} |\n|---|---|{'---|' * len(kinds)}")
    for index, (number, protocol) in enumerate(runs):
        cells = " | ".join(columns[kind][index] for kind in kinds)
        print(f"| {number} | {protocol} | {cells} |")
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

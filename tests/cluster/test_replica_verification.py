"""The replica-verification command on three nodes, one of which keeps a record of its own."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.cli.replica_verification import Verification
from sparkraft.records.batch import CRC_AT, HEADER
from sparkraft.records.crc import crc32c
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, Member
from tests.support.kafka_tools import kafka_tool_command, run_kafka_tool
from tests.support.ports import wait_until
from tests.support.replicas import (
    log_folders,
    partition_of,
    records_produced_throughout,
    until_equal,
    until_in_sync,
)

pytestmark = pytest.mark.real_clients

IDS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("verified")
    with Cluster(directory, [Member(n) for n in IDS], overrides=STEADY) as cluster:
        yield cluster


OURS = [sys.executable, "-m", "sparkraft.cli.main", "replica-verification"]
KAFKAS = "org.apache.kafka.tools.ReplicaVerificationTool"
_STAMPED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: (.*)")


def verify(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OURS, "--once", "--broker-list", cluster.bootstrap, "--time", "-2", *options],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def told_until_level(command: list[str], folder: Path, cluster: Cluster, topic: str) -> list[str]:
    """What a tool that goes on for ever prints until nothing is left to compare, without times.

    Of the reports only the last: how often one is made is up to how long a round takes.
    """
    output, errors = folder / "printed", folder / "errors"
    options = ["--broker-list", cluster.bootstrap, "--time", "-2", "--topics-include", topic]
    often = ["--report-interval-ms", "100", "--max-wait-ms", "100", "--fetch-size", "20000"]
    with output.open("w") as printed, errors.open("w") as complained:
        tool = subprocess.Popen([*command, *options, *often], stdout=printed, stderr=complained)
    try:
        wait_until(
            lambda: ": max lag is 0 " in output.read_text() or tool.poll() is not None,
            "all is compared",
        )
    finally:
        tool.kill()
        tool.wait(60)
    found = [_STAMPED.fullmatch(line) for line in output.read_text().splitlines()]
    assert found, errors.read_text()
    sentences = [line[1] for line in found if line is not None]
    assert len(sentences) == len(found), output.read_text()
    reports = [sentence for sentence in sentences if sentence.startswith("max lag")]
    return [*(sentence for sentence in sentences if sentence not in reports), reports[-1]]


def filled(cluster: Cluster, topic: str, partitions: int = 2) -> None:
    cluster.create_topic(topic, partitions=partitions, replicas=3)
    until_in_sync(cluster, topic, partitions, 3)
    with records_produced_throughout(cluster, topic, partitions) as stream:
        stream.goes_on(3_000)
    for partition in range(partitions):
        until_equal(cluster, topic, partition, list(IDS))


@pytest.fixture(scope="module")
def differing(cluster: Cluster) -> int:
    """Which replica of the topic "differs" has another first record.

    A byte of its value and the checksum over it: no read of its own finds that.
    """
    filled(cluster, "differs", 1)
    follower = next(n for n in IDS if n != partition_of(cluster, "differs").leader)
    cluster.stop(follower)
    (folder,) = log_folders(cluster.nodes[follower], "differs", 0)
    path = folder / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    size = HEADER.unpack_from(data)[1] + 12
    data[size - 10] ^= 1
    data[CRC_AT : CRC_AT + 4] = crc32c(memoryview(data)[CRC_AT + 4 : size]).to_bytes(4, "big")
    path.write_bytes(data)
    cluster.start([follower])
    until_in_sync(cluster, "differs", 1, 3)
    return follower


def test_replicas_that_are_equal_are_told_so(cluster: Cluster) -> None:
    filled(cluster, "equal")
    done = verify(cluster, "--topics-include", "equal", "--fetch-size", "20000")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.endswith(": verification process is started")
    assert ": max lag is 0 for partition equal-" in last
    assert last.endswith(" among 2 partitions")


def test_a_replica_with_another_record_is_found(cluster: Cluster, differing: int) -> None:
    done = verify(cluster, "--topics-include", "differs")
    assert done.returncode == 1, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if "unmatched" in line]
    # Every replica is compared with the first: where that one is wrong, each of the others differs.
    found = IDS[1:] if differing == IDS[0] else (differing,)
    for line, replica in zip(told, found, strict=True):
        assert "partition differs-0 has unmatched checksum at offset " in line
        assert f"replica {IDS[0]}'s checksum " in line
        assert f"replica {replica}'s checksum " in line


@pytest.mark.java
@pytest.mark.usefixtures("differing")
def test_kafkas_tool_says_the_same_word_for_word(
    cluster: Cluster, kafka_jars: Path, tmp_path: Path
) -> None:
    said = []
    for command in (OURS, kafka_tool_command(kafka_jars, KAFKAS)):
        folder = tmp_path / str(len(said))
        folder.mkdir()
        said.append(told_until_level(command, folder, cluster, "differs"))
    ours, kafkas = said
    assert ours == kafkas
    assert ours[0] == "verification process is started"
    assert re.fullmatch(
        r"max lag is 0 for partition differs-0 at offset \d+ among 1 partitions", ours[-1]
    )


def both_refuse(options: list[str], jars: Path, kafkas_words: str, our_words: str) -> None:
    kafkas = run_kafka_tool(jars, KAFKAS, *options)
    assert kafkas.returncode == 1
    assert kafkas_words in kafkas.stderr
    done = subprocess.run(
        [*OURS, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode > 0
    assert our_words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == kafkas.stdout == ""


@pytest.mark.java
@pytest.mark.parametrize(
    ("options", "kafkas_words", "our_words"),
    [
        (["--topics-include", "no-such-topic"], "No topics found.", "no topic fits"),
        (["--topics-include", "("], "( is an invalid regex", "is not a regular expression"),
        (["--time", "-3"], "The target time cannot be negative", "--time wants ms, -1 or -2"),
        (["--time", "soon"], "Cannot parse argument 'soon' of option time", "--time: invalid int"),
        (["--time", "99999999999999"], "is null", "has no record as late as"),
        (["--fetch-size", "4294967296"], "of option fetch-size", "--fetch-size 4294967296 is more"),
        (["--max-wait-ms", "4294967296"], "of option max-wait-ms", "--max-wait-ms 4294967296 is"),
        (["--report", "5"], "report is not a recognized option", "unknown option --report"),
    ],
    ids=["topic", "pattern", "-3", "soon", "too-late", "fetch-size", "max-wait-ms", "report"],
)
def test_what_kafkas_tool_refuses_is_refused(
    options: list[str], kafkas_words: str, our_words: str, cluster: Cluster, kafka_jars: Path
) -> None:
    full = ["--broker-list", cluster.bootstrap, *options]
    both_refuse(full, kafka_jars, kafkas_words, our_words)


@pytest.mark.java
@pytest.mark.parametrize(
    ("options", "kafkas_words", "our_words"),
    [
        ([], 'Missing required argument "[broker-list]"', "missing --broker-list"),
        (
            ["--broker-list", "h:port"],
            "provide valid host:port",
            "'h:port' is not a server's address",
        ),
    ],
    ids=["none", "no-port"],
)
def test_servers_must_be_named(
    options: list[str], kafkas_words: str, our_words: str, kafka_jars: Path
) -> None:
    full = ["--topics-include", "any", *options]
    both_refuse(full, kafka_jars, kafkas_words, our_words)


def test_without_a_topic_there_is_nothing_to_verify(cluster: Cluster) -> None:
    done = verify(cluster, "--topics-include", "no-such-topic")
    assert done.returncode == 1
    assert "no topic fits" in done.stderr


def verification_of(replicas: tuple[int, ...], *, report_interval_ms: int = 0) -> Verification:
    """Of a topic's only partition, from its beginning on; it asks nobody."""
    topic = SimpleNamespace(
        name="t",
        id=Uuid(b"t" * 16),
        partitions={0: SimpleNamespace(replicas=replicas)},
    )
    values = SimpleNamespace(report_interval_ms=report_interval_ms, once=False)
    verification = Verification(None, [topic], values)  # type: ignore[arg-type, list-item]
    verification._offsets["t", 0] = 0
    return verification


def answer(count: int, *, checksum: int = 7) -> SimpleNamespace:
    """A batch of so many records, of ten that are committed."""
    records = HEADER.pack(0, 49, 1, 2, checksum, 0, count - 1, 0, 0, -1, -1, -1, count)
    return SimpleNamespace(error_code=0, records=records, high_watermark=10)


def test_offsets_that_differ_end_it() -> None:
    """One replica's batch ends elsewhere: from there on nothing can be compared."""
    verification = verification_of((1, 2))
    assert verification._compare(("t", 0), {1: answer(3), 2: answer(3)}) == 7
    verification._offsets["t", 0] = 0
    assert verification._compare(("t", 0), {1: answer(3)}) == 10
    assert verification._compare(("t", 0), {1: answer(3), 2: answer(4)}) is None


def test_what_a_replica_lacks_yet_is_compared_among_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verification = verification_of((1, 2, 3))
    assert verification._compare(("t", 0), {1: answer(3), 3: answer(3, checksum=8)}) == 10
    assert capsys.readouterr().out.endswith(
        ": partition t-0 has unmatched checksum at offset 2; replica 1's checksum 7; "
        "replica 3's checksum 8\n"
    )
    assert verification._compare(("t", 0), {2: answer(3), 3: answer(4)}) is None


def test_a_report_comes_after_its_interval(capsys: pytest.CaptureFixture[str]) -> None:
    verification_of((1, 2), report_interval_ms=60_000)._report({("t", 0): 10})
    assert capsys.readouterr().out == ""
    verification = verification_of((1, 2), report_interval_ms=-1)
    verification._report({("t", 0): verification._compare(("t", 0), {}) or 0})
    assert "max lag is -1 for partition null at offset -1 among 1 part" in capsys.readouterr().out
    verification._report({("t", 0): 10})
    assert "max lag is 10 for partition t-0 at offset 0 among 1 part" in capsys.readouterr().out

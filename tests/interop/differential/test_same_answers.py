"""The same requests to Apache Kafka and to us: the decoded answers must be equal.

Differences that are allowed stand in `allowed.py`, each with its reason; one that no longer shows
fails too, so the list can't grow stale.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.differential.allowed import ALLOWED
from tests.interop.differential.cases import all_cases, transaction_cases
from tests.interop.differential.comparing import Answers, check_equal, conversation, differing
from tests.interop.differential.nonsense_group_cases import SIZE_MAX
from tests.interop.differential.world import Case, World
from tests.support.nodes import KafkaNode, SparkraftNode

pytestmark = [pytest.mark.real_clients, pytest.mark.java]
OVERRIDES = {
    "auto.create.topics.enable": "false",
    # The records are years old by their times. The first look for such comes 10 s after our start
    # and 30 s after Kafka's, and where the machine is slow the requests are not over by then.
    "log.retention.ms": "-1",
    # Else a slow node removes the segments that DeleteRecords emptied while it is asked.
    "log.initial.task.delay.ms": "600000",
    # Else the epochs of consumer groups depend on the time between two requests.
    "group.consumer.assignment.interval.ms": "0",
    # Else members are fenced while a node starts again on a busy machine.
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.size": str(SIZE_MAX),
}


@pytest.fixture(scope="module")
def answers(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Every case with Kafka's answer and ours."""
    return asked(kafka_jars, tmp_path_factory.mktemp("differential"), all_cases())


def asked(kafka_jars: Path, folder: Path, cases: list[Case], *features: str) -> Answers:
    """Every case with Kafka's answer and ours, from nodes with these finalized features."""
    given = {"overrides": OVERRIDES, "format_as": ("--standalone", *features)}
    kafka = KafkaNode(folder / "kafka", jars=kafka_jars, **given)
    ours = SparkraftNode(folder / "ours", **given)
    with kafka, ours, ThreadPoolExecutor(2) as both:
        worlds = World("Kafka", kafka), World("sparkraft", ours)
        columns = list(both.map(lambda world: conversation(world, cases), worlds))
    return [(case, *pair) for case, *pair in zip(cases, *columns, strict=True)]


def test_there_are_at_least_300_requests_of_every_key() -> None:
    assert len(all_cases()) >= 300
    versions = Counter((case.key, case.version) for case in all_cases())
    assert len({key for key, _ in versions}) >= 37


def test_the_answers_are_equal(answers: Answers) -> None:
    check_equal(answers, ALLOWED)


@pytest.mark.long
@pytest.mark.parametrize("level", [0, 1])
def test_transactions_are_equal_at_an_older_version(
    kafka_jars: Path, tmp_path: Path, level: int
) -> None:
    cases = transaction_cases(level)
    found = asked(kafka_jars, tmp_path, cases, "--feature", f"transaction.version={level}")
    wrong = [line for line, reasons in differing(found, ALLOWED) if not reasons]
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong)

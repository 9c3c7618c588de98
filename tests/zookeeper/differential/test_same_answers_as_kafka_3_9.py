"""The same requests to a broker of Kafka 3.9.2 and to one of ours, both in ZooKeeper mode.

Each is alone in its cluster, in a chroot of one ensemble, and so is the controller. The decoded
answers must be equal, but for the differences in `allowed.py`; one that no longer shows fails, too.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.differential.comparing import Answers, check_equal, conversation
from tests.interop.differential.test_same_answers import OVERRIDES
from tests.support.zookeeper import Ensemble
from tests.zookeeper.differential.allowed import ALLOWED
from tests.zookeeper.differential.brokers import Kafka, Ours, ZooKeeperWorld, normalise_by_name
from tests.zookeeper.differential.cases import SERVED, zookeeper_cases
from tests.zookeeper.kafka_versions import KAFKA_3_9

pytestmark = [pytest.mark.java, pytest.mark.real_clients]

ALONE = {
    **{key: value for key, value in OVERRIDES.items() if not key.startswith("group.consumer.")},
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "zookeeper.session.timeout.ms": "4000",
    # Else records of the future are appended by Kafka 3.9 only: the defaults differ (KIP-1030).
    "log.message.timestamp.after.max.ms": "3600000",
}


@pytest.fixture(scope="module")
def answers(zookeeper_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Every case with Kafka's answer and ours."""
    folder = tmp_path_factory.mktemp("differential")
    cases = zookeeper_cases()
    with Ensemble(zookeeper_jars, folder) as ensemble:
        kafka = Kafka(folder / "kafka", 1, f"{ensemble.connect}/kafka", zookeeper_jars, ALONE)
        ours = Ours(
            folder / "ours",
            1,
            f"{ensemble.connect}/ours",
            {**ALONE, "sparkraft.controllership.enable": "true"},
        )
        with kafka, ours, ThreadPoolExecutor(2) as both:
            worlds = ZooKeeperWorld("Kafka", kafka), ZooKeeperWorld("sparkraft", ours)
            columns = list(
                both.map(lambda world: conversation(world, cases, normalise_by_name), worlds)
            )
    return [(case, *pair) for case, *pair in zip(cases, *columns, strict=True)]


def test_each_version_that_both_serve_is_sent() -> None:
    sent = {(case.key, case.version) for case in zookeeper_cases()}
    missing = {(key, version) for key in SERVED for version in SERVED[key]} - sent
    assert {key.name for key, _ in missing} == {"ENVELOPE"}, "sent only by brokers that migrate"


@pytest.mark.long  # 3,900 requests to each
def test_the_answers_are_equal(answers: Answers) -> None:
    check_equal(answers, ALLOWED)


@pytest.mark.long
def test_kafka_serves_the_recorded_versions(answers: Answers) -> None:
    """`KAFKA_3_9`, from which the list in docs/ZOOKEEPER.md follows."""
    hello = next(kafka for case, kafka, _ in answers if str(case) == "ApiVersions v3: hello")
    found = {
        int(key): range(entry["minVersion"], entry["maxVersion"] + 1)
        for key, entry in hello["apiKeys"].items()
    }
    assert found == {int(key): versions for key, versions in KAFKA_3_9.items()}

"""`zookeeper-migration` on a real ensemble."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.support.zookeeper import Ensemble
from tests.zookeeper.migration.trees import SECURED, tree_of

pytestmark = [pytest.mark.java, pytest.mark.real_time]


@pytest.fixture
def kazoo(ensemble: Ensemble) -> Iterator[KazooClient]:
    """A session of another client, below a chroot of its own."""
    root = f"/migration-{uuid.uuid4().hex}"
    client = KazooClient(ensemble.connect)
    client.start()
    client.ensure_path(root)
    client.chroot = root
    yield client
    client.stop()
    client.close()


def run(ensemble: Ensemble, kazoo: KazooClient, *options: str) -> "subprocess.CompletedProcess":
    server = ensemble.connect + kazoo.chroot
    command = [sys.executable, "-m", "sparkraft.cli.main", "zookeeper-migration", *options]
    return subprocess.run(
        [*command, "--zookeeper", server], capture_output=True, text=True, timeout=60, check=False
    )


def test_it_checks_a_cluster_and_prints_its_records(ensemble, kazoo):
    none = run(ensemble, kazoo, "check")
    assert none.returncode == 1
    assert "no Kafka cluster in" in none.stderr
    tree = tree_of(without=SECURED)
    for path in tree:
        kazoo.create(path, tree.get(path).data, makepath=True)
    good = run(ensemble, kazoo, "check")
    assert good.returncode == 0, good.stdout + good.stderr
    assert good.stdout.splitlines()[-1] == (
        "A migration writes 18 records: 1 TopicRecord, 4 ConfigRecord, 3 PartitionRecord, "
        "8 ClientQuotaRecord, 1 UserScramCredentialRecord, 1 ProducerIdsRecord"
    )
    shown = [json.loads(line) for line in run(ensemble, kazoo, "records").stdout.splitlines()]
    assert len(shown) == 18
    credential = next(each for each in shown if each["type"] == "UserScramCredentialRecord")
    assert credential["data"]["storedKey"] == "", "no secrets"
    kazoo.delete("/brokers/ids/3")
    bad = run(ensemble, kazoo, "check")
    assert bad.returncode == 1
    assert "NO  every broker with replicas is registered: broker 3 has replicas of t1" in bad.stdout
    status = json.loads(run(ensemble, kazoo, "status", "--output", "json").stdout)
    assert status["stage"] == "waiting"
    assert status["zookeeperBrokers"] == [1, 2]

"""`zookeeper-check` on a real ensemble."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.support.zookeeper import Ensemble
from tests.zookeeper.test_znodes import RECORDED

pytestmark = [pytest.mark.java, pytest.mark.real_time]


@pytest.fixture
def kazoo(ensemble: Ensemble) -> Iterator[KazooClient]:
    """A session of another client, below a chroot of its own."""
    root = f"/check-{uuid.uuid4().hex}"
    client = KazooClient(ensemble.connect)
    client.start()
    client.ensure_path(root)
    client.chroot = root
    yield client
    client.stop()
    client.close()


def check(ensemble: Ensemble, kazoo: KazooClient, *options: str) -> "subprocess.CompletedProcess":
    server = ensemble.connect + kazoo.chroot
    return subprocess.run(
        [sys.executable, "-m", "sparkraft.cli.main", "zookeeper-check", server, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_describes_a_cluster_and_names_malformed_znodes(ensemble, kazoo):
    for path, data in RECORDED:
        if not kazoo.exists(path):
            kazoo.create(path, data.encode(), makepath=True)
        elif kazoo.get(path)[0] == b"":
            kazoo.set(path, data.encode())
    kazoo.ensure_path("/another/program")
    good = check(ensemble, kazoo)
    assert good.returncode == 0, good.stderr
    assert good.stdout == (
        "Cluster:    IAQIZF5TQwWRSiA2T-d5DQ\n"
        "Controller: broker 1, epoch 1\n"
        "Brokers:    1, 4\n"
        "Topics:     4\n"
        "ACLs:       yes\n"
        "Migrated:   no\n"
    )
    kazoo.set("/brokers/topics/t2", b"{")
    kazoo.set("/feature", b'{"version":9}')
    bad = check(ensemble, kazoo)
    assert bad.returncode == 1
    assert bad.stdout.splitlines()[-2:] == [
        "Malformed:  /brokers/topics/t2: expected JSON, got b'{'",
        "Malformed:  /feature: version 9; Kafka 3.9 reads up to 2",
    ]
    as_json = json.loads(check(ensemble, kazoo, "--output", "json").stdout)
    assert [each["path"] for each in as_json["problems"]] == ["/brokers/topics/t2", "/feature"]
    assert as_json["brokers"] == [1, 4]


def test_an_empty_ensemble_is_an_error(ensemble, kazoo):
    done = check(ensemble, kazoo)
    assert done.returncode == 1
    assert "no Kafka cluster in" in done.stderr

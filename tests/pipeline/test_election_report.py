"""The example that sums up the time without a leader, against brokers that are killed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clusters import Cluster, Member
from tests.support.jvm import java
from tests.support.ports import wait_until
from tests.support.replicas import create_assigned, partition_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "election_report"
SECONDS_MAX = 300

pytestmark = [pytest.mark.spark, pytest.mark.real_clients]

LINE = re.compile(
    r"alone-0: \d+\.\d minutes without a leader, 3 times, has none now: (.*broker 2.*)\n"
)


@pytest.mark.long  # tests/pipeline/test_partition_history.py has the same rows in ./test
def test_the_report_names_the_partition_and_the_cause(tmp_path: Path) -> None:
    if java() is None:
        pytest.skip("Spark needs Java; no java command was found")
    members = [Member(100, roles="controller"), *(Member(n, roles="broker") for n in (1, 2))]
    with Cluster(tmp_path / "nodes", members) as cluster:
        create_assigned(cluster, "alone", [[2]])
        create_assigned(cluster, "both", [[1, 2]])
        for kill in range(3):
            cluster.kill(2)
            wait_until(lambda: partition_of(cluster, "alone").leader == -1, "no leader")
            if kill < 2:
                cluster.start()
                wait_until(lambda: partition_of(cluster, "alone").leader == 2, "a leader")
        done = subprocess.run(
            [sys.executable, "report.py", cluster.bootstrap],
            cwd=EXAMPLE, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = LINE.fullmatch(done.stdout)
    assert found, done.stdout
    assert found[1] in (EXAMPLE / "README.md").read_text()

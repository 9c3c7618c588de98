"""kill -9 of the Spark application, its parts and brokers: each source offset is visible once.

The first moments are those of `test_ten_kills`; between the commits, the topic has a decided batch
that Spark does not know of. Three nodes serve the topics: one of them is killed as the coordinator
of the driver's transactional id, or as another broker, and restarted. A killed worker, executor or
JVM may end the application; it is killed as a whole a little later.

With transactions that time out after two seconds, processes are also stopped for longer. The
application may then end with an error that names the batch. A batch that was decided and has lost
a part is replayed: only its records may be visible twice.
"""

import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.pipeline.wire import TRANSACTION_COORDINATOR
from sparkraft.pipeline.wire import Cluster as WireCluster
from tests.pipeline.test_fetch_and_produce import fill
from tests.pipeline.test_ten_kills import (
    HOLD,
    PATIENCE_S,
    Application,
    committed_batches,
    planned_batches,
    process_tree,
)
from tests.support.clusters import OF_TRANSACTIONS, Cluster, Member
from tests.support.killed_batches import client_options, committed_values
from tests.support.ports import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long]

log = logging.getLogger(__name__)

KILLS = {
    "between commits": 2, "at work": 1, "jvm": 1, "worker": 4, "executor": 4, "broker": 4,
    "coordinator": 4,
}  # fmt: skip
OUTAGES = {
    "at work": 4, "driver stopped": 4, "worker stopped": 4, "broker": 4, "coordinator": 4,
}  # fmt: skip
TIMEOUT_MS = 2_000
OUTAGE_S = 4.0
"""Longer than the timeout, after which the coordinator looks once a second (500 ms here)."""

PARTITIONS = 4
BATCH, LAST_BATCHES = 1_000, 50_000
"""Records of a batch, until all kills are done."""

RECORDS = 20_000
"""For each moment; more than a run gets through that is killed."""

PIPELINE = """
name = "killed"
checkpoint = "checkpoint"
trigger = "0 seconds"
[spark]
"spark.executor.memory" = "512m"
"spark.sql.streaming.minBatchesToRetain" = "10000"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "in"
startingOffsets = "earliest"
maxOffsetsPerTrigger = "${batch}"
[transform]
sql = "SELECT concat(partition, '-', offset) AS value FROM source"
[[sink]]
kind = "topic"
topic = "out"
delivery = "exactly_once"
options = { "kafka.transaction.timeout.ms" = "${timeout_ms}" }
[[sink]]
kind = "function"
function = "hold.py:hold"
"""
"""Spark keeps the offsets of all batches: these are counted, and name the records of a batch."""

PREFIX = "killed.out"

DECIDED = re.compile(r"batch (\d+) of query \S+ was decided, but the transactions of")


class KilledApplication(Application):
    """The application, and the nodes that serve its topics."""

    def __init__(self, folder, nodes, timeout_ms=60_000):
        super().__init__(folder, nodes.bootstrap)
        (folder / "pipeline.toml").write_text(PIPELINE)
        (folder / "hold.py").write_text(HOLD)
        self.command += ["--set", f"timeout_ms={timeout_ms}", "--set", f"batch={BATCH}"]
        self.nodes = nodes
        self.client = WireCluster(client_options(nodes.bootstrap))
        self.replayed: list[int] = []

    def start_on(self, master):
        """Start it on another master."""
        command = list(self.command)
        self.command[self.command.index("local[2]")] = master
        self.start()
        self.command = command

    def until_planned(self, batches):
        """Return when it has planned so many batches more; it must not end before."""
        before = len(planned_batches(self.folder))

        def works():
            assert self.process.poll() is None, f"it ended by itself:\n{self.output()}"
            return len(planned_batches(self.folder)) >= before + batches

        wait_until(works, f"{batches} more batches are planned", PATIENCE_S)

    def until_resumed(self, batches):
        """Return when it has planned so many batches more, or has ended."""
        before = len(planned_batches(self.folder))
        wait_until(
            lambda: (
                self.process.poll() is not None
                or len(planned_batches(self.folder)) >= before + batches
            ),
            "the application continues or ends",
            PATIENCE_S,
        )

    def descendants(self, word):
        """Descendants of the application with a word in their command lines."""
        found = []
        for pid in process_tree(self.process.pid)[1:]:
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                if word in command:
                    found.append(pid)
        return found

    def kill_part(self, word, dice):
        """Kill one of these processes in a batch; the application may continue or end."""
        self.until_planned(2)
        time.sleep(dice.uniform(0, 0.5))
        victims = self.descendants(word)
        assert victims, f"{word}\n{self.output()}"
        with suppress(ProcessLookupError):
            os.kill(dice.choice(victims), signal.SIGKILL)
        self.until_resumed(2)
        self.kill()

    def kill_node(self, dice, *, coordinates, seconds):
        """Kill the node that coordinates the driver's id, or another one, and restart it."""
        self.start()
        self.until_planned(2)
        time.sleep(dice.uniform(0, 0.5))
        coordinator = self.coordinator()
        others = [each for each in self.nodes.brokers if each != coordinator]
        victim = coordinator if coordinates else dice.choice(others)
        self.nodes.kill(victim)
        time.sleep(seconds)
        self.nodes.start([victim])
        self.until_resumed(2)
        self.kill()

    def coordinator(self):
        """The node that coordinates the driver's transactional id."""
        ports = {self.nodes.ports[each][0]: each for each in self.nodes.brokers}
        found = []

        def is_known():
            self.client.forget()
            with suppress(KafkaError, OSError):
                driver = f"{PREFIX}.driver"
                found.append(self.client.coordinator(driver, kind=TRANSACTION_COORDINATOR).port)
            return found

        wait_until(is_known, "the driver's id has a coordinator", PATIENCE_S)
        return ports[found[-1]]

    def stop_part(self, pids, seconds):
        """Stop processes for some time."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.until_resumed(2)
        self.kill()

    def finish_all(self):
        """Run until all records are processed; replay batches that have lost a part."""
        self.command[-1] = f"batch={LAST_BATCHES}"
        for _ in range(3):
            self.start("--once")
            code = self.process.wait(3 * PATIENCE_S)
            if code == 0:
                return
            assert self.replay(), self.output()
        raise AssertionError(f"it does not finish:\n{self.output()}")

    def replay(self):
        """Replay the batch that the output names last, if it was decided; whether there was one."""
        named = DECIDED.findall(self.output())
        if not named:
            return False
        run = [sys.executable, "-m", "sparkraft.cli.main", "pipeline", "reset"]
        values = self.command[self.command.index("--set") :]
        done = subprocess.run(
            [*run, str(self.folder / "pipeline.toml"), *values, "--replay", named[-1]],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        if done.returncode:
            return False  # It was replayed before.
        self.replayed.append(int(named[-1]))
        return True


def names_of_batch(folder, number):
    """The names of the records of a batch, from the offsets in Spark's checkpoint."""

    def ends(batch):
        if batch < 0:
            return {str(partition): 0 for partition in range(PARTITIONS)}
        lines = (folder / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()
        return json.loads(lines[-1])["in"]

    before, after = ends(number - 1), ends(number)
    return {
        b"%s-%d" % (name.encode(), offset)
        for name, end in after.items()
        for offset in range(before.get(name, 0), end)
    }


@pytest.fixture
def nodes(tmp_path):
    faster = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with Cluster(
        tmp_path / "nodes",
        [Member(1), Member(2), Member(3)],
        overrides=OF_TRANSACTIONS | faster | {"default.replication.factor": "3"},
    ) as started:
        yield started


def planned(moments, seed):
    """Moments in an order by seed, and the dice."""
    dice = random.Random(seed)
    plan = [moment for moment, count in moments.items() for _ in range(count)]
    dice.shuffle(plan)
    return plan, dice


def prepare(application, records):
    fill(application.client, "in", records, partitions=PARTITIONS)
    keep = {"retention.ms": "-1"}
    application.client.create_topic("out", partitions=PARTITIONS, configs=keep)


def kill(application, moment, dice):
    match moment:
        case "at work":
            application.kill_at_work(dice.randrange(1, 5), dice.uniform(0, 1.5))
        case "between commits":
            batch = application.kill_between_commits()
            assert batch not in committed_batches(application.folder)
        case "worker":
            application.start()
            application.kill_part("pyspark.daemon", dice)
        case "jvm":
            application.start()
            application.kill_part("org.apache.spark.deploy.SparkSubmit", dice)
        case "executor":
            application.start_on("local-cluster[2,1,1024]")
            application.kill_part("CoarseGrainedExecutorBackend", dice)
        case "broker" | "coordinator":
            coordinates = moment == "coordinator"
            application.kill_node(dice, coordinates=coordinates, seconds=1)


def interrupt(application, moment, dice):
    """An outage that is longer than the transactions' timeout."""
    match moment:
        case "at work":
            application.kill_at_work(dice.randrange(1, 5), dice.uniform(0, 1.5))
            time.sleep(OUTAGE_S)
        case "driver stopped" | "worker stopped":
            application.start()
            application.until_planned(2)
            time.sleep(dice.uniform(0, 0.5))
            workers = application.descendants("pyspark.daemon")
            everything = process_tree(application.process.pid)
            is_driver = moment == "driver stopped"
            application.stop_part(everything if is_driver else workers, OUTAGE_S)
        case "broker" | "coordinator":
            coordinates = moment == "coordinator"
            application.kill_node(dice, coordinates=coordinates, seconds=OUTAGE_S)


def check_visible(application, records):
    """Each record once; those of replayed batches at least once, and at most once per replay."""
    client = application.client
    client.forget()
    ends = client.list_offsets({("in", number): -1 for number in range(PARTITIONS)})
    expected = {b"%d-%d" % (number, at) for (_, number), end in ends.items() for at in range(end)}
    assert len(expected) == records
    found = Counter(committed_values(client, "out", PARTITIONS))
    replays = Counter(
        name for batch in application.replayed for name in names_of_batch(application.folder, batch)
    )
    lost = sorted(expected - set(found))
    extra = sorted(name for name, count in found.items() if count > 1 + replays[name])
    assert (lost[:20], extra[:20]) == ([], [])
    assert set(found) <= expected


@pytest.mark.parametrize(
    ("kind", "moments", "seed"),
    [("kills", KILLS, 20250101), ("outages", OUTAGES, 20250202)],
)
def test_each_record_is_visible_once(tmp_path, nodes, kind, moments, seed):
    plan, dice = planned(moments, seed)
    timeout_ms = 60_000 if kind == "kills" else TIMEOUT_MS
    application = KilledApplication(tmp_path, nodes, timeout_ms)
    records = RECORDS * len(plan)
    prepare(application, records)
    try:
        for moment in plan:
            at = application.folder / "out.txt"
            before = at.stat().st_size if at.exists() else 0
            (kill if kind == "kills" else interrupt)(application, moment, dice)
            said = at.read_text(errors="replace")[before:]
            if DECIDED.search(said):
                assert kind == "outages", said
                assert application.replay(), said
            done = len(committed_batches(application.folder))
            log.info("%s: %d planned, %d committed", moment, len(planned_batches(tmp_path)), done)
        application.finish_all()
        log.info("replayed: %s", application.replayed)
        check_visible(application, records)
    finally:
        if application.process is not None and application.process.poll() is None:
            application.kill()
        application.client.close()

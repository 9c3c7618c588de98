"""An audit reads every replica, and finds changed and damaged batches."""

import time
from dataclasses import replace

import pytest

from sparkraft.cli import main as cli
from sparkraft.pipeline import replica_audit
from sparkraft.pipeline.options import source_options
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.wire import Cluster as Client
from sparkraft.records.batch import BATCH_OVERHEAD, iter_batches, sealed
from sparkraft.records.record import BatchBuilder
from tests.support.clusters import Cluster, Member

BATCHES = 12
CHANGED = 5


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """Two brokers, with topics whose replicas on broker 2 were changed in its files."""
    cluster = Cluster(
        tmp_path_factory.mktemp("audit"),
        [Member(id=1), Member(id=2, roles="broker")],
        overrides={"default.replication.factor": "2", "log.cleaner.enable": "false"},
    )
    cluster.start()
    client = Client(options_of(cluster).client)
    for topic, policy in (("same", "delete"), ("differs", "delete"), ("keyed", "compact")):
        client.create_topic(topic, partitions=1, configs={"cleanup.policy": policy})
        producer = Producer(client)
        for number in range(BATCHES):
            at = int(time.time() * 1000)
            producer.send(topic, b"k%d" % number, b"value %d" % number, timestamp_ms=at)
            producer.flush()
    client.close()
    cluster.stop(2)
    for topic in ("differs", "keyed"):
        change(cluster.nodes[2].log_dir / f"{topic}-0" / f"{0:020d}.log")
    cluster.start([2])
    yield cluster
    cluster.stop()


def options_of(cluster):
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "same"}
    return source_options(given, streaming=False)


def change(path):
    """Give one batch another value and a checksum that fits: no broker finds that."""
    batches = [(header, bytearray(view)) for header, view in iter_batches(path.read_bytes())]
    header, batch = batches[CHANGED]
    at = batch.index(b"value")
    batch[at : at + 5] = b"VALUE"
    batch[:] = sealed(header, batch[BATCH_OVERHEAD:])
    path.write_bytes(b"".join(batch for _, batch in batches))


def rows_of(brokers, topic):
    tasks = replica_audit.plan(options_of(brokers).client, [topic])
    return {task.replica: list(task.rows()) for task in tasks}


def test_equal_replicas_have_equal_rows(brokers):
    found = rows_of(brokers, "same")
    assert sorted(found) == [1, 2]
    one, other = ([row._replace(replica=0) for row in found[each]] for each in (1, 2))
    assert one == other
    assert [(row.offset, row.last) for row in one] == [(each, each) for each in range(BATCHES)]


@pytest.mark.parametrize("topic", ["differs", "keyed"])
def test_a_changed_batch_is_found(brokers, topic):
    found = rows_of(brokers, topic)
    one, other = ({row.offset: row for row in found[each]} for each in (1, 2))
    assert sorted(one) == sorted(other) == list(range(BATCHES))
    assert [at for at in one if one[at].checksum != other[at].checksum] == [CHANGED]


def test_a_damaged_batch_and_a_replica_that_cannot_be_read_are_problems(brokers):
    (task, *_) = replica_audit.plan(options_of(brokers).client, ["same"])
    builder = BatchBuilder(base_offset=3, leader_epoch=1)
    builder.append(0, b"k", b"value")
    batch = bytearray(builder.build())
    batch[-3] ^= 1
    ((header, view),) = iter_batches(batch)
    (row,) = task._rows_of(header, view)
    assert (row.offset, row.problem) == (3, "does not have the checksum of its batch")
    (row,) = replace(task, replica=7).rows()
    assert (row.offset, row.replica) == (0, 7)
    assert "broker 7 is not known" in row.problem
    (row,) = replace(task, topic="nowhere").rows()
    assert row.problem.startswith("cannot be read: UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.spark
def test_the_command_lists_the_differences(brokers, spark, monkeypatch, capsys):
    # The session of this folder's tests stays.
    monkeypatch.setattr("sparkraft.pipeline.session.session", lambda *_, **__: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    command = ["pipeline", "audit", "--bootstrap-server", brokers.bootstrap, "--topic"]
    assert cli.main([*command, "same"]) == 0
    assert capsys.readouterr().out == "2 replicas compared: no difference\n"
    assert cli.main([*command, "differs,keyed"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "4 replicas compared: they differ"
    for topic in ("differs", "keyed"):
        (changed,) = [line for line in lines if line.startswith(f"{topic}-0 offset {CHANGED}:")]
        assert "replica 1 to 5 with " in changed
    assert len(lines) == 3
    tasks = replica_audit.plan(options_of(brokers).client, ["same"])
    (finding,) = replica_audit.differences(
        spark, [tasks[0], replace(tasks[1], replica=7)]
    ).collect()
    assert finding.offset == 0
    assert [each.replica for each in finding.found if each.problem] == [7]
    assert cli.main([*command, "nowhere"]) != 0
    assert "topic nowhere" in capsys.readouterr().err

"""The journal of leaders and ISRs: what a controller notes, and what survives its restart."""

import asyncio
from pathlib import Path

from sparkraft.controller.leader_election import ChosenBy
from sparkraft.server.zookeeper import controller_journal
from sparkraft.server.zookeeper.controller_journal import PartitionJournalFile
from sparkraft.storage.disk import OsDisk
from sparkraft.zookeeper.controller import events
from sparkraft.zookeeper.controller.partition_journal import PartitionChange, PartitionJournal
from sparkraft.zookeeper.controller.values import IsrChangeRequest, LeaderAndIsr
from tests.zookeeper.controller.test_controller import cluster_of, handle, kill

AT = ("t", 0)


def shown(change: PartitionChange) -> tuple:
    """Leaders and ISRs before and after, and the cause."""
    before = None if change.before is None else (change.before.leader, change.before.isr)
    return before, (change.after.leader, change.after.isr), change.cause.text


def changes_of(cluster) -> list[PartitionChange]:
    return list(cluster.active.journal.partitions.changes)


def test_the_death_of_a_leader_is_noted_with_candidates_and_reasons():
    cluster = cluster_of(1, 2, 3, topics={"t": {0: ([3, 2, 1], 3, [3, 1], 4)}})
    kill(cluster, 3)
    (change,) = changes_of(cluster)
    assert shown(change) == ((3, (3, 1)), (1, (1,)), "the session of broker 3 ended")
    assert (change.after.leader_epoch, change.after.partition_epoch) == (5, 1)
    reason = change.reason
    assert (reason.candidates, reason.live, reason.chosen_by) == (
        (3, 2, 1), (2, 1), ChosenBy.IN_SYNC_REPLICA)  # fmt: skip
    assert reason.ruled_out == ((3, "broker not registered"), (2, "not in the ISR"))


def test_a_partition_that_stays_without_a_leader_says_why_once():
    cluster = cluster_of(1, 2, topics={"t": {0: ([2], 2, [2], 0)}})
    kill(cluster, 2)
    failed, removed = changes_of(cluster)
    assert failed.reason.chosen_by is ChosenBy.NOBODY
    assert failed.reason.ruled_out == ((2, "broker not registered"),)
    assert shown(removed) == ((2, (2,)), (-1, (2,)), "replica 2: broker not registered")
    handle(cluster, events.UncleanElectionEnabled())
    handle(cluster, events.UncleanElectionEnabled())
    assert len(changes_of(cluster)) == 3  # once more: in the next leader epoch


def test_isr_changes_of_followers_leaders_and_shutdowns_have_their_causes():
    cluster = cluster_of(1, 2, 3, topics={"t": {0: ([1, 2, 3], 1, [1, 2, 3], 0)}})
    kill(cluster, 3)
    epoch = cluster.context.brokers[1].epoch
    for isr, partition_epoch in (((1,), 1), ((1, 2), 2)):
        states = {AT: LeaderAndIsr(1, isr, 1, partition_epoch)}
        request = IsrChangeRequest(broker=1, broker_epoch=epoch, version=3, states=states)
        handle(cluster, events.AlterPartition(request))
    handle(cluster, events.ControlledShutdown(2, cluster.context.brokers[2].epoch))
    assert [shown(change) for change in changes_of(cluster)] == [
        ((1, (1, 2, 3)), (1, (1, 2)), "replica 3: broker not registered"),
        ((1, (1, 2)), (1, (1,)), "broker 1 leads it"),
        ((1, (1,)), (1, (1, 2)), "broker 1 leads it"),
        ((1, (1, 2)), (1, (1,)), "replica 2: broker shutting down"),
    ]


def test_a_new_partition_is_noted_with_its_first_leader():
    cluster = cluster_of(1, 2)
    cluster.topic("t", {0: [2, 1]})
    handle(cluster, events.TopicsChanged())
    (change,) = changes_of(cluster)
    assert shown(change) == (None, (2, (2, 1)), "the partition was created")


def test_deletions_and_reassignments_are_noted_by_topic():
    cluster = cluster_of(1, 2, topics={"t": {0: ([1], 1, [1], 0)}, "u": {0: ([1], 1, [1], 0)}})
    handle(cluster, events.AlterReassignments({("u", 0): (2,)}))
    cluster.make("/admin/delete_topics/t")
    handle(cluster, events.DeletionsChanged())
    handle(cluster, events.StopReplicaResponded(1, 0, {AT: 56}))
    noted = [(e.topic, e.text) for e in cluster.active.journal.entries if e.topic]
    assert noted == [
        ("u", "u-0: adds [2], then removes [1]"),
        ("t", "t: requested"),
        ("t", "t: started"),
        ("t", "t: waits for broker 1"),
    ]


def test_changes_survive_a_restart_and_the_oldest_go(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(controller_journal, "CHANGES_MAX", 250)
    cluster = cluster_of(1, 2, topics={"t": {p: ([2, 1], 2, [2, 1], 0) for p in range(300)}})
    journal = cluster.active.journal.partitions
    file = PartitionJournalFile(OsDisk(), str(tmp_path), journal, lambda: 17)
    kill(cluster, 2)
    asyncio.run(file.close())
    assert not journal.unwritten
    found = PartitionJournal()
    again = PartitionJournalFile(OsDisk(), str(tmp_path), found, lambda: 18)
    assert list(found.changes) == list(journal.changes)[-250:]
    assert found.changes[-1].at_ms == 17
    asyncio.run(again.close())


def test_lines_of_another_version_are_skipped(tmp_path: Path):
    path = tmp_path / controller_journal.PARTITIONS_FILE_NAME
    path.write_bytes(b'{"topic":"t"}\n[]\n{"cause":["unknown kind","x"]}\n{"torn')
    journal = PartitionJournal()
    PartitionJournalFile(OsDisk(), str(tmp_path), journal, lambda: 0)
    assert not journal.changes

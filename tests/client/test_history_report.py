"""Match journaled election reasons to elections when several controllers noted some."""

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.client import history
from sparkraft.protocol.messages import k10002_describe_history as k10002
from sparkraft.protocol.messages import k10003_describe_isr_changes as k10003

TOPIC = Uuid(bytes(15) + b"\x01")


def described(
    controller_epoch: int, leader: int, why: str, *, noted: bool
) -> k10002.HistoryPartition:
    event = k10002.HistoryEvent(
        offset=7,
        controller_epoch=controller_epoch,
        topic="t",
        topic_id=TOPIC,
        partition=0,
        before=k10002.PartitionState(leader=1, leader_epoch=3),
        after=k10002.PartitionState(leader=leader, leader_epoch=4),
        cause=why,
        election=k10002.ElectionReason(kind=why, from_journal=noted),
    )
    return k10002.HistoryPartition(topic="t", topic_id=TOPIC, partition=0, events=[event])


@pytest.mark.parametrize(
    ("epoch", "leader", "cause"), [(5, 2, "noted"), (4, 2, "from the log"), (5, 3, "from the log")]
)
def test_what_a_deposed_controller_decided_explains_nothing(epoch, leader, cause):
    answer = k10002.DescribeHistoryResponse(
        partitions=[described(5, 2, "from the log", noted=False)]
    )
    journal = k10002.DescribeHistoryResponse(
        partitions=[described(epoch, leader, "noted", noted=True)]
    )
    history._add_reasons(answer, [journal])
    event = answer.partitions[0].events[0]
    assert (event.cause, event.election.kind) == (cause, cause)


def test_what_leaders_noted_is_found_by_topic_partition_and_epoch():
    def noted(partition: int, epoch: int, behind_ms: int) -> k10003.IsrChangeEntry:
        left = [k10003.LeftIsr(replica=3, behind_ms=behind_ms)]
        return k10003.IsrChangeEntry(
            partition=partition, partition_epoch=epoch, isr=[1, 2], left=left
        )

    def behind_ms(topic: str, partition: int, epoch: int, isr: list[int]) -> int | None:
        after = k10002.PartitionState(partition_epoch=epoch, isr=isr)
        event = k10002.HistoryEvent(topic=topic, partition=partition, after=after)
        found = report.isr_change(event)
        return None if found is None else found.left[0].behind_ms

    answers = [
        k10003.DescribeIsrChangesResponse(changes=[noted(0, 4, 40), noted(1, 4, 41)]),
        k10003.DescribeIsrChangesResponse(changes=[noted(0, 5, 50)]),
    ]
    described_history = k10002.DescribeHistoryResponse()
    report = history.merge_journals(described_history, [], {"t": answers}, {"n3": "silent"})
    assert [behind_ms("t", 0, epoch, [2, 1]) for epoch in (4, 5, 6)] == [40, 50, None]
    assert behind_ms("t", 1, 4, [1, 2]) == 41
    assert behind_ms("u", 0, 4, [1, 2]) is None
    assert behind_ms("t", 0, 4, [1, 2, 3]) is None
    assert (report.history, report.silent) == (described_history, {"n3": "silent"})

"""Whose reasons go with which election, where several controllers noted some."""

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.client import history
from sparkraft.protocol.messages import k10002_describe_history as k10002

TOPIC = Uuid(bytes(15) + b"\x01")


def told(controller_epoch: int, leader: int, why: str, *, noted: bool) -> k10002.HistoryPartition:
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
    answer = k10002.DescribeHistoryResponse(partitions=[told(5, 2, "from the log", noted=False)])
    journal = k10002.DescribeHistoryResponse(partitions=[told(epoch, leader, "noted", noted=True)])
    history._add_reasons(answer, [journal])
    event = answer.partitions[0].events[0]
    assert (event.cause, event.election.kind) == (cause, cause)

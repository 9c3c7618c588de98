"""Journals of decisions are described and encoded in bounded slices, however full they are."""

from typing import Any

from sparkraft.base.ids import LeaderEpoch, Millis
from sparkraft.coordinator.group.journal import LISTED_MAX, MOVES_MAX, JournalEntry, Move
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import decode
from sparkraft.protocol.messages import k10000_describe_elections as k10000
from sparkraft.protocol.messages import k10003_describe_isr_changes as k10003
from sparkraft.protocol.messages import k10004_describe_group_decisions as k10004
from sparkraft.raft.replica import Transition
from sparkraft.raft.states import Unattached
from sparkraft.replication.in_sync import Lag
from sparkraft.server.broker.isr_journal import IsrChange
from tests.server.harness import node_in, run
from tests.server.test_large_requests import STEP_UNITS_MAX, work_on

ENTRIES = 1_000
"""As many as each journal keeps."""

GROUP_ENTRIES = 100
"""Of groups: each has hundreds of members."""


def described(node: Any, key: ApiKey, request: Any, response_class: Any) -> Any:
    """The response, made in steps of few units."""
    units, buffers = work_on(node, key, request, 0)
    assert max(units) <= STEP_UNITS_MAX
    assert sum(units) > STEP_UNITS_MAX
    return decode(response_class, 0, b"".join(buffers))


def test_elections(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            for epoch in range(ENTRIES):
                state = Unattached(epoch=LeaderEpoch(epoch), election_deadline=None)
                change = Transition(old=state, new=state, reason=f"why {epoch}", at=Millis(epoch))
                node.raft.journal.note_transition(change)
            request = k10000.DescribeElectionsRequest()
            found = described(
                node, ApiKey.DESCRIBE_ELECTIONS, request, k10000.DescribeElectionsResponse
            )
            known = list(node.raft.journal.entries())
            assert [entry.reason for entry in found.entries] == [entry.reason for entry in known]
            assert found.node_id == node.raft.node_id

    run(test())


def test_isr_changes(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            left = (Lag(replica=3, log_end_offset=4, leader_end=5, behind_ms=6),)
            for number in range(ENTRIES):
                node.broker.isr_journal.changes.append(
                    IsrChange(
                        topic="t", partition=number % 2, leader_epoch=1, partition_epoch=number,
                        wall_ms=number, isr_before=(1, 2, 3), isr=(1, 2), joined=None, left=left,
                    )
                )  # fmt: skip
            request = k10003.DescribeIsrChangesRequest(topic="t", partition=-1)
            found = described(
                node, ApiKey.DESCRIBE_ISR_CHANGES, request, k10003.DescribeIsrChangesResponse
            )
            assert [change.partition_epoch for change in found.changes] == list(range(ENTRIES))
            assert found.changes[-1].left[0].behind_ms == 6

    run(test())


def test_group_decisions(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            moves = tuple(Move("t", index, "a", "b") for index in range(MOVES_MAX))
            members = [f"m{number}" for number in range(5 * LISTED_MAX)]
            for number in range(GROUP_ENTRIES):
                node.broker.groups.journal.add(
                    JournalEntry(
                        at_ms=Millis(number), group_id="g", generation=number, kind="generation",
                        reason="", candidates=tuple(members), votes=dict.fromkeys(members, "range"),
                        moves=moves, move_count=len(moves),
                    )
                )  # fmt: skip
            request = k10004.DescribeGroupDecisionsRequest(
                group_id="g", entries_max=GROUP_ENTRIES - 1
            )
            found = described(
                node,
                ApiKey.DESCRIBE_GROUP_DECISIONS,
                request,
                k10004.DescribeGroupDecisionsResponse,
            )
            assert [decision.epoch for decision in found.decisions] == list(
                range(GROUP_ENTRIES - 1)
            )
            assert found.next == GROUP_ENTRIES - 1
            last = found.decisions[-1]
            assert [move.partition for move in last.moves] == list(range(MOVES_MAX))
            assert [vote.member_id for vote in last.votes] == members[:LISTED_MAX]

    run(test())

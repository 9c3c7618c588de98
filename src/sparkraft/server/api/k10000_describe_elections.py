"""DescribeElections: v0, ours. What did this node see of the quorum's elections, and why?

Behaviour:
    * Every node answers for itself, brokers too: its states, the votes it gave and refused with
      reasons, and the LeaderChange records it got. Oldest first, at most 1,000.
    * `since_ms` leaves out what is older; -1 gives all.
Versions: v0 only; not advertised.    Not done: -
"""

from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k10000_describe_elections import (
    Ballot,
    DescribeElectionsRequest,
    DescribeElectionsResponse,
    ElectionEntry,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext


def handle(
    node: Any, context: RequestContext, request: DescribeElectionsRequest
) -> DescribeElectionsResponse:
    raft = node.raft
    known = raft.leader_and_epoch
    return DescribeElectionsResponse(
        error_message=None,
        node_id=raft.node_id,
        directory_id=raft.directory_id,
        is_voter=raft.is_voter,
        state=raft.state_name,
        leader_id=-1 if known.leader_id is None else known.leader_id,
        epoch=known.epoch,
        high_watermark=raft.high_watermark,
        dropped=raft.journal.dropped,
        entries=[
            ElectionEntry(
                at_ms=entry.at,
                kind=entry.kind,
                epoch=entry.epoch,
                leader_id=entry.leader,
                candidate_id=entry.candidate,
                reason=entry.reason,
                lasted_ms=entry.lasted_ms,
                ballots=[
                    Ballot(voter_id=voter, is_granted=granted, reason=reason)
                    for voter, granted, reason in entry.ballots
                ],
            )
            for entry in raft.journal.entries(request.since_ms)
        ],
    )


API = Api(
    key=ApiKey.DESCRIBE_ELECTIONS,
    handle=handle,
    zookeeper=False,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
    controller=True,
)

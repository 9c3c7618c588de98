"""DescribeElections: v0, ours. What did this node see of the quorum's elections, and why?

Behaviour:
    * Every node answers for itself, brokers too: its states, the votes it gave and refused with
      reasons, and the LeaderChange records it got. Oldest first, at most 1,000.
    * `since_ms` leaves out what is older; -1 gives all.
Versions: v0 only; not advertised.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages.k10000_describe_elections import (
    Ballot,
    DescribeElectionsRequest,
    DescribeElectionsResponse,
    ElectionEntry,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import NESTED_CHUNK, encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from sparkraft.server.raft.election_journal import Entry


def handle(node: Any, context: RequestContext, request: DescribeElectionsRequest) -> Steps:
    """Describe and encode in slices."""
    version = context.api_version
    response = _state(node)
    # The journal may grow between slices.
    entries = map(_entry, list(node.raft.journal.entries(request.since_ms)))
    response.entries = yield from encoded_in_pieces(
        DescribeElectionsResponse, version, entries, NESTED_CHUNK
    )
    return encode_parts(response, version)


def describe(node: Any, request: DescribeElectionsRequest) -> DescribeElectionsResponse:
    """The whole response at once."""
    response = _state(node)
    response.entries = [_entry(entry) for entry in node.raft.journal.entries(request.since_ms)]
    return response


def _state(node: Any) -> DescribeElectionsResponse:
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
    )


def _entry(entry: "Entry") -> ElectionEntry:
    return ElectionEntry(
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


API = Api(
    key=ApiKey.DESCRIBE_ELECTIONS,
    handle=handle,
    zookeeper=False,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
    controller=True,
)

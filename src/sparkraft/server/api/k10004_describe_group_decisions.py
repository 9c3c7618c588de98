"""DescribeGroupDecisions: v0, ours. Who joined, left or was fenced, what moved, and why?

Behaviour:
    * Every broker answers for the groups it coordinated, also before its last restart: the last
      thousand decisions of all groups together. Oldest first.
    * Paged: at most `entries_max` (1 to 1,000) decisions, and where the next page begins.
Versions: v0 only; not advertised.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages import k10004_describe_group_decisions as k10004
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_each
from sparkraft.server.api.encoded_array import EncodedArray
from sparkraft.server.api.item_errors import check_group
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from sparkraft.coordinator.group.journal import JournalEntry
    from sparkraft.server.broker_services import BrokerServices

PAGE_MAX = 1_000
"""With a hundred moves each, about 10 MB."""

ITEMS_PER_UNIT = 2
"""Moves, votes and candidates of a decision that are one unit of work."""


def handle(
    broker: "BrokerServices", context: RequestContext, request: k10004.DescribeGroupDecisionsRequest
) -> Steps:
    """Describe and encode in slices."""
    check_group(context, AclOperation.DESCRIBE, request.group_id)
    limit = min(max(request.entries_max, 1), PAGE_MAX)
    version = context.api_version
    response = k10004.DescribeGroupDecisionsResponse(node_id=broker.node_id)
    decisions = EncodedArray(k10004.DescribeGroupDecisionsResponse, version, at_once=1)
    # The journal may grow between slices.
    for number, entry in list(broker.groups.journal.numbered(request.first)):
        if entry.group_id != request.group_id:
            continue
        if decisions.count == limit:
            response.next = number
            break
        decisions.add(_decision(number, entry))
        yield 1 + entry.item_count // ITEMS_PER_UNIT
    response.decisions = decisions.encoded()
    return encode_parts(response, version)


def _decision(number: int, entry: "JournalEntry") -> k10004.GroupDecision:
    return k10004.GroupDecision(
        number=number,
        at_ms=entry.at_ms,
        epoch=entry.generation,
        kind=entry.kind,
        member_id=entry.member_id,
        chosen=entry.chosen,
        reason=entry.reason,
        candidates=list(entry.candidates),
        votes=[
            k10004.Vote(member_id=member_id, protocol=protocol)
            for member_id, protocol in entry.votes.items()
        ],
        ruled_out=[
            k10004.RuledOut(candidate=candidate, reason=reason)
            for candidate, reason in entry.ruled_out.items()
        ],
        moves=[k10004.Move(**move._asdict()) for move in entry.moves],
        move_count=entry.move_count,
        took_ms=entry.took_ms,
    )


API = Api(
    key=ApiKey.DESCRIBE_GROUP_DECISIONS,
    handle=handle,
    authorize=(on_each(AclOperation.DESCRIBE, AclResourceType.GROUP),),
)

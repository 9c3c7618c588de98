"""DescribeIsrChanges: v0, ours. Which ISRs did this broker change as a leader, and why?

Behaviour:
    * Each follower that left, with its lag in offsets and time, and each that caught up; from
      memory: the last thousand changes of all partitions this broker led since it started.
Versions: v0 only; not advertised.    Not done: -
"""

from typing import TYPE_CHECKING, Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_parts
from sparkraft.protocol.messages import k10003_describe_isr_changes as k10003
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_cluster, on_each
from sparkraft.server.api.encoded_array import NESTED_CHUNK, encoded_in_pieces
from sparkraft.server.api.item_errors import check_topic
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from sparkraft.server.broker.isr_journal import IsrChange


def handle(node: Any, context: RequestContext, request: k10003.DescribeIsrChangesRequest) -> Steps:
    """Describe and encode in slices."""
    check_topic(context, AclOperation.DESCRIBE, request.topic)
    version = context.api_version
    response = k10003.DescribeIsrChangesResponse(error_message=None, node_id=node.node_id)
    entries = map(_entry, _changes(node, request))
    response.changes = yield from encoded_in_pieces(
        k10003.DescribeIsrChangesResponse, version, entries, NESTED_CHUNK
    )
    return encode_parts(response, version)


def describe(
    node: Any, request: k10003.DescribeIsrChangesRequest
) -> k10003.DescribeIsrChangesResponse:
    """The whole response at once."""
    return k10003.DescribeIsrChangesResponse(
        error_message=None,
        node_id=node.node_id,
        changes=[_entry(change) for change in _changes(node, request)],
    )


def _changes(node: Any, request: k10003.DescribeIsrChangesRequest) -> "list[IsrChange]":
    return [
        change
        for change in node.isr_journal.changes
        if change.topic == request.topic and request.partition in {-1, change.partition}
    ]


def _entry(change: "IsrChange") -> k10003.IsrChangeEntry:
    return k10003.IsrChangeEntry(
        partition=change.partition,
        at_ms=change.wall_ms,
        leader_epoch=change.leader_epoch,
        partition_epoch=change.partition_epoch,
        isr_before=list(change.isr_before),
        isr=list(change.isr),
        joined=-1 if change.joined is None else change.joined,
        left=[
            k10003.LeftIsr(
                replica=lag.replica,
                log_end_offset=lag.log_end_offset,
                leader_end=lag.leader_end,
                behind_ms=-1 if lag.behind_ms is None else lag.behind_ms,
            )
            for lag in change.left
        ],
    )


API = Api(
    key=ApiKey.DESCRIBE_ISR_CHANGES,
    handle=handle,
    authorize=(
        on_cluster(AclOperation.DESCRIBE),
        on_each(AclOperation.DESCRIBE, AclResourceType.TOPIC),
    ),
)

"""DescribeIsrChanges: v0, ours. Which ISRs did this broker change as a leader, and why?

Behaviour:
    * Each follower that left, with its lag in offsets and time, and each that caught up; from
      memory: the last thousand changes of all partitions this broker led since it started.
Versions: v0 only; not advertised.    Not done: -
"""

from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k10003_describe_isr_changes as k10003
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.authorization import on_cluster, on_each
from sparkraft.server.api.item_errors import check_topic
from sparkraft.server.api.registry import Api, RequestContext


def handle(
    node: Any, context: RequestContext, request: k10003.DescribeIsrChangesRequest
) -> k10003.DescribeIsrChangesResponse:
    check_topic(context, AclOperation.DESCRIBE, request.topic)
    return k10003.DescribeIsrChangesResponse(
        error_message=None,
        node_id=node.node_id,
        changes=[
            _entry(change)
            for change in node.isr_journal.changes
            if change.topic == request.topic and request.partition in {-1, change.partition}
        ],
    )


def _entry(change: Any) -> k10003.IsrChangeEntry:
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

"""DescribeControllerDecisions: v0, ours. Who was controller in ZooKeeper, and why?

Behaviour:
    * Every broker in ZooKeeper mode answers for itself: its attempts to become the controller, the
      steps of its failovers, its resignations, and what it did with brokers, topics and
      reassignments as the controller. Also before its last restart. Oldest first.
    * Paged: at most `entries_max` (1 to 1,000) decisions, and where the next page begins.
Versions: v0 only; not advertised.    Not done: -
"""

from typing import TYPE_CHECKING

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k10007_describe_controller_decisions as k10007
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices

PAGE_MAX = 1_000
"""All of a journal; about 100 kB."""


def handle(
    broker: "BrokerServices", _: RequestContext, request: k10007.DescribeControllerDecisionsRequest
) -> k10007.DescribeControllerDecisionsResponse:
    """Return a page of the journal."""
    journal = broker.controller_journal
    assert journal is not None, "only in ZooKeeper mode"
    response = k10007.DescribeControllerDecisionsResponse(
        node_id=broker.node_id,
        controller_id=broker.controlled.controller_id,
        epoch=broker.controlled.controller_epoch,
        is_kraft=broker.controlled.has_kraft_controller,
        stands=broker.config.flag("sparkraft.controllership.enable"),
    )
    limit = min(max(request.entries_max, 1), PAGE_MAX)
    for number, entry in journal.numbered(request.first):
        if len(response.decisions) == limit:
            response.next = number
            break
        response.decisions.append(
            k10007.ControllerDecision(
                number=number, at_ms=entry.at_ms, kind=entry.kind, text=entry.text
            )
        )
    return response


API = Api(
    key=ApiKey.DESCRIBE_CONTROLLER_DECISIONS,
    handle=handle,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
    broker=False,
    zookeeper=True,
)

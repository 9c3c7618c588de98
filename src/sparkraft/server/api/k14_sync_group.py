"""SyncGroup: v0-5. The leader hands the assignment in, everyone takes theirs. (KIP-345, KIP-559)

Behaviour:
    * Parked until the leader's assignment is durable; in a stable group answered at once.
    * A rebalance has begun: REBALANCE_IN_PROGRESS; an older generation: ILLEGAL_GENERATION.
    * Who has not sent it within the rebalance timeout is removed from the group.
    * From v5 protocol type and name must be given and agree with the group's:
      INCONSISTENT_GROUP_PROTOCOL.
Versions: v1 throttle; v3 static members; v4 flexible; v5 protocol type and name.
Not done: members of KIP-848 groups.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k14_sync_group import SyncGroupRequest
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_group
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.requests import check_group_id

if TYPE_CHECKING:
    from sparkraft.server.broker.services import BrokerServices

_PROTOCOL_FROM = 5


def handle(broker: "BrokerServices", context: RequestContext, request: SyncGroupRequest) -> Any:
    """Let the group's shard decide; the answer comes with the leader's assignment."""
    if context.api_version >= _PROTOCOL_FROM and (
        request.protocol_type is None or request.protocol_name is None
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no protocol type or name given")
    check_group_id(request.group_id)
    return broker.groups.shard_of(request.group_id).ask_parked(
        lambda core, reply_to, now: core.handle_sync_group(request, reply_to, now)
    )


API = Api(
    key=ApiKey.SYNC_GROUP,
    handle=handle,
    authorize=(on_group(AclOperation.READ),),
)

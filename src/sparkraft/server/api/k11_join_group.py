"""JoinGroup: v0-9. Become or stay a member; wait for the next generation. (KIP-62, 134, 345, 394)

Behaviour:
    * Parked until all members have joined or the rebalance timeout ends the wait; an empty group
      waits group.initial.rebalance.delay.ms for company first.
    * Leader: the first to join; who fails to rejoin is replaced. It alone is told all members.
    * Protocol: each member votes for the first of its own that all know; none in common:
      INCONSISTENT_GROUP_PROTOCOL.
    * From v4 a new dynamic member is first given an id: MEMBER_ID_REQUIRED.
    * A static member that comes back to a stable group causes no rebalance; its predecessor is
      fenced (FENCED_INSTANCE_ID). From v9 a returning leader is told to skip the assignment.
    * A session timeout out of bounds: INVALID_SESSION_TIMEOUT; more than group.max.size members:
      GROUP_MAX_SIZE_REACHED.
Versions: v1 rebalance timeout (v0: the session timeout); v5 static members; v6 flexible; v7
    protocol type (KIP-559); v8 reason (KIP-800); v9 skip_assignment (KIP-814).
Not done: joining a KIP-848 group that has members.
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_group
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.answers import when
from sparkraft.server.coordinator.requests import check_group_id, peer_of

if TYPE_CHECKING:
    from sparkraft.server.broker.services import BrokerServices

_REBALANCE_TIMEOUT_FROM = 1
_NULL_PROTOCOL_FROM = 7


def handle(broker: "BrokerServices", context: RequestContext, request: JoinGroupRequest) -> Any:
    """Let the group's shard decide; the answer may take as long as a rebalance."""
    check_group_id(request.group_id)
    config = broker.groups.group_config
    timeout_ms = request.session_timeout_ms
    if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"a session timeout of {timeout_ms} ms is not within group.min.session.timeout.ms "
            f"{config.min_session_timeout_ms} and group.max.session.timeout.ms "
            f"{config.max_session_timeout_ms}",
        )
    if context.api_version < _REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = timeout_ms
    peer = peer_of(context)
    answer = broker.groups.shard_of(request.group_id).ask_parked(
        lambda core, reply_to, now: core.handle_join_group(request, peer, reply_to, now)
    )
    return when(answer, lambda response: _for_version(response, context.api_version))


def _for_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """No protocol is an empty name to old clients, null to new ones (KIP-559)."""
    if version >= _NULL_PROTOCOL_FROM:
        response.protocol_name = response.protocol_name or None
    else:
        response.protocol_name = response.protocol_name or ""
    return response


def refuse(
    _: type, request: JoinGroupRequest, version: int, error: KafkaError
) -> JoinGroupResponse:
    """The request's error, and the member id it came with."""
    response = JoinGroupResponse(member_id=request.member_id, error_code=error.code)
    return _for_version(response, version)


API = Api(
    key=ApiKey.JOIN_GROUP,
    handle=handle,
    authorize=(on_group(AclOperation.READ),),
    refuse=refuse,
)

"""JoinGroup: v0-9. Join or rejoin a group and wait for the next generation. (KIP-62, 134, 345, 394)

Behaviour:
    * Parked until all members have joined or the rebalance timeout ends the wait; an empty group
      waits group.initial.rebalance.delay.ms for more members first.
    * Leader: the first to join, replaced if it does not rejoin. Only it gets all members.
    * Protocol: each member votes for its first one that all support; none in common:
      INCONSISTENT_GROUP_PROTOCOL.
    * From v4 a new dynamic member first gets an id: MEMBER_ID_REQUIRED.
    * A static member that rejoins a stable group causes no rebalance; its predecessor is fenced
      (FENCED_INSTANCE_ID). From v9 a leader that rejoins so skips the assignment.
    * In a consumer group (KIP-848) with members: answered at once, without a leader; generation =
      member epoch. `group.consumer.migration.policy=disabled`: INCONSISTENT_GROUP_PROTOCOL.
    * A session timeout out of bounds: INVALID_SESSION_TIMEOUT; more than group.max.size members:
      GROUP_MAX_SIZE_REACHED. Above sparkraft.group.members.max.bytes of metadata in all groups of
      the broker: COORDINATOR_NOT_AVAILABLE.
Versions: v1 rebalance timeout (v0: the session timeout); v5 static members; v6 flexible; v7
    protocol type (KIP-559); v8 reason (KIP-800); v9 skip_assignment (KIP-814).    Not done: -
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.coordinator.steps import PIECE_UNITS
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_group
from sparkraft.server.api.encoded_array import encoded_and_released
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.coordinator.requests import check_group_id, peer_of
from sparkraft.server.coordinator.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.server.broker_services import BrokerServices
    from sparkraft.server.loop_turns import Turn

_REBALANCE_TIMEOUT_FROM = 1
_NULL_PROTOCOL_FROM = 7


def handle(
    broker: "BrokerServices", context: RequestContext, request: JoinGroupRequest
) -> Response[JoinGroupResponse]:
    """Let the group's shard decide; the response may take as long as a rebalance."""
    check_group_id(request.group_id)
    config = broker.groups.group_config
    timeout_ms = request.session_timeout_ms
    if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session timeout {timeout_ms} ms is not between group.min.session.timeout.ms "
            f"({config.min_session_timeout_ms}) and group.max.session.timeout.ms "
            f"({config.max_session_timeout_ms})",
        )
    if context.api_version < _REBALANCE_TIMEOUT_FROM:
        request.rebalance_timeout_ms = timeout_ms
    size = sum(len(protocol.metadata) for protocol in request.protocols)
    broker.groups.member_memory.admit(size, Millis(context.received_ms))
    peer = peer_of(context)
    runtime = broker.groups.shard_for(request.group_id)
    response = runtime.execute_parked(
        JoinGroupResponse,
        lambda shard, reply_to, now: shard.handle_join_group(request, peer, reply_to, now),
    )
    version = context.api_version
    if isinstance(response, Awaitable) or len(response.members) > PIECE_UNITS:
        return _encoded(response, version, runtime.turn)
    return _for_version(response, version)


async def _encoded(
    response: Response[JoinGroupResponse], version: int, new_turn: "Callable[[], Turn]"
) -> JoinGroupResponse:
    """Encode the members in the response to the leader in pieces: there may be any number."""
    found = _for_version(await response if isinstance(response, Awaitable) else response, version)
    if len(found.members) > PIECE_UNITS:
        steps = encoded_and_released(JoinGroupResponse, version, found.members)
        found.members = await new_turn().carry_out(steps)
    return found


def _for_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """No protocol: an empty name for old clients, null for new ones (KIP-559)."""
    if version >= _NULL_PROTOCOL_FROM:
        response.protocol_name = response.protocol_name or None
    else:
        response.protocol_name = response.protocol_name or ""
    return response


def refuse(
    _: type, request: JoinGroupRequest, version: int, error: KafkaError
) -> JoinGroupResponse:
    """The request's error, and the member id it came with, unless its group is denied."""
    is_denied = error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    member_id = "" if is_denied else request.member_id
    response = JoinGroupResponse(member_id=member_id, error_code=error.code)
    return _for_version(response, version)


API = Api(
    key=ApiKey.JOIN_GROUP,
    handle=handle,
    authorize=(on_group(AclOperation.READ),),
    refuse=refuse,
)

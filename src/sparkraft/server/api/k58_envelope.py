"""Envelope: v0. A client's request that a broker passes on, on the controller listener. (KIP-590)

Behaviour:
    * The request inside is handled as if its client had sent it here: with the client's principal
      and address, which the envelope carries. Its response is returned inside.
    * The forwarding broker must be allowed CLUSTER_ACTION, else CLUSTER_AUTHORIZATION_FAILED.
    * Checked in the order of Kafka's EnvelopeUtils. No valid principal:
      PRINCIPAL_DESERIALIZATION_FAILURE. An address that is not 4 or 16 bytes: INVALID_REQUEST. A
      header that cannot be parsed or names an unknown key: UNSUPPORTED_VERSION. A key that brokers
      do not forward: INVALID_REQUEST. A request that cannot be parsed, or of a version that is not
      served: UNSUPPORTED_VERSION, so that INVALID_REQUEST always means the envelope itself.
    * Not the active controller: NOT_CONTROLLER, and the broker looks for it again. The same if
      DescribeQuorum, inside, finds another leader (Kafka's `shouldReturnNotController`).
    * The request inside counts against its client's `request_percentage` and
      `controller_mutation_rate`, by the principal and client id inside, as in Kafka. The response
      inside reports the longer throttle, and the broker holds its client up.
    * The broker's connection is not held up. In Kafka it is if the request inside is refused with
      CLUSTER_AUTHORIZATION_FAILED and throttled: a denied client delays all others of its broker.
Versions: v0.    Not done: -
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.protocol import codec, headers
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from sparkraft.protocol.positions import has_field
from sparkraft.security.acls import AclOperation
from sparkraft.security.session import Session
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext, load_api
from sparkraft.server.broker.envelope import address_of, principal_of, seal_response

if TYPE_CHECKING:
    from sparkraft.server.controller.services import ControllerServices

_HEADER_BYTES = 4


async def handle(
    node: "ControllerServices", context: RequestContext, request: EnvelopeRequest
) -> EnvelopeResponse:
    return await open_and_serve(node, context, request)


async def open_and_serve(
    node: Any, context: RequestContext, request: EnvelopeRequest, *, zookeeper: bool = False
) -> EnvelopeResponse:
    """Serve the request inside, and put its response into an envelope.

    Args:
        node: the services of the controller.
        context: of the envelope.
        request: the envelope.
        zookeeper: whether the controller is that of a cluster in ZooKeeper mode.

    Raises:
        KafkaError: see the module docstring.
    """
    session = _client_session(context.session, request)
    turn = node.env.turn(node.env.work_max.partitions)
    data = request.request_data
    assert isinstance(data, memoryview), "it was received"
    key, version = _key_and_version(data)
    with _parsing():
        header, at = codec.decode_from(
            headers.RequestHeader, headers.request_header_version(key, version), data, 0
        )
    api = _forwardable(key, version, zookeeper=zookeeper)
    with _parsing():
        # Bytes after it are ignored, as on a client's connection: Kafka's brokers pass them on.
        inner = await turn.carry_out(
            codec.decode_slices(API_INFO[key].request_class(), version, data[at:])
        )
    as_client = RequestContext(
        key,
        version,
        header.correlation_id,
        header.client_id,
        session=session,
        connection=context.connection,
        received_ms=context.received_ms,
    )
    answer = await turn.carry_out(_steps_of(await _handle(node, as_client, api, inner)))
    if _is_of_another_controller(api, answer):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    _throttle(context, as_client, api, answer)
    sealed: EnvelopeResponse = await turn.carry_out(
        seal_response(answer, key, version, header.correlation_id)
    )
    return sealed


def _is_of_another_controller(api: Api, response: Any) -> bool:
    if api.key is ApiKey.DESCRIBE_QUORUM:
        partitions = (each for topic in response.topics for each in topic.partitions)
        return any(each.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for each in partitions)
    return bool(getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER)


def _throttle(context: RequestContext, client: RequestContext, api: Api, response: Any) -> None:
    """Count the time so far against the client's quota, and report its throttle."""
    is_denied = getattr(response, "error_code", 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if api.is_exempt_from_time and not is_denied:
        return
    if context.loop_time is None:
        return
    throttle_ms = context.connection.charge_forwarded(context, client)
    kind = API_INFO[api.key].response_class()
    if has_field(kind, client.api_version, "throttle_time_ms"):
        response.throttle_time_ms = max(throttle_ms, response.throttle_time_ms)


def _client_session(of_broker: Session, request: EnvelopeRequest) -> Session:
    """The session of the client whose request it is, on the listener its broker uses."""
    return Session(
        principal_of(request.request_principal),
        listener_name=of_broker.listener_name,
        security_protocol=of_broker.security_protocol,
        client_host=address_of(request.client_host_address),
        authorizer=of_broker.authorizer,
        is_forwarded=True,
    )


@contextmanager
def _parsing() -> Iterator[None]:
    try:
        yield
    except DecodeError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error


def _key_and_version(data: memoryview) -> tuple[ApiKey, int]:
    """The first fields of the request header."""
    key = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < _HEADER_BYTES or key not in ApiKey.__members__.values():
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"no API key in {bytes(data[:2])!r}")
    return ApiKey(key), int.from_bytes(data[2:_HEADER_BYTES], "big", signed=True)


def _forwardable(key: ApiKey, version: int, *, zookeeper: bool) -> Api:
    api = load_api(key, controller_listener=not zookeeper, zookeeper=zookeeper)
    if api is None or not api.forward:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key.name} is not forwarded")
    lowest, highest = api.version_range()
    if not lowest <= version <= highest:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api.key.name} version {version}")
    return api


async def _handle(node: Any, context: RequestContext, api: Api, request: Any) -> Any:
    try:
        answer: Any = api.call(node, context, request)
        return await answer if hasattr(answer, "__await__") else answer
    except KafkaError as error:
        if error.code == ErrorCode.NOT_CONTROLLER:
            raise
        response_class = API_INFO[api.key].response_class()
        return api.refuse(response_class, request, context.api_version, error)


def _steps_of(answer: Any) -> Generator[int, None, Any]:
    """A response, or the steps to a refusal."""
    return (yield from answer) if isinstance(answer, Generator) else answer


API = Api(
    key=ApiKey.ENVELOPE,
    handle=handle,
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)

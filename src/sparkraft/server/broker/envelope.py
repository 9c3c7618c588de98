"""Envelope: a client's request as a broker passes it to the controller (KIP-590).

    EnvelopeRequest.request_data      = request header | request, as the client's would be
    EnvelopeRequest.request_principal = int16 0 | DefaultPrincipalData v0
    EnvelopeRequest.client_host_address = the client's IP address, 4 or 16 bytes
    EnvelopeResponse.response_data    = response header | response

Both directions are here, so that each is the other's inverse.
"""

from collections.abc import Generator
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.protocol import codec, headers
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from sparkraft.protocol.messages.misc import DefaultPrincipalData
from sparkraft.security.principal import KafkaPrincipal

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext

_PRINCIPAL_VERSION = b"\0\0"


class EnvelopeError(KafkaError):
    """The active controller refused an envelope; the same request would be refused again."""


def seal_envelope(
    request: Any, key: ApiKey, version: int, context: "RequestContext"
) -> Generator[int, None, EnvelopeRequest]:
    """Wrap `request`, on behalf of `context`'s client; yields the elements encoded."""
    header = headers.RequestHeader(
        request_api_key=int(key),
        request_api_version=version,
        correlation_id=context.correlation_id,
        client_id=context.client_id,
    )
    head = codec.encode(header, headers.request_header_version(key, version))
    parts = codec.encode_parts((yield from codec.encode_arrays(request, version)), version)
    return EnvelopeRequest(
        request_data=[head, *parts],
        request_principal=principal_bytes(context.principal),
        client_host_address=address_bytes(context.client_host),
    )


def seal_response(
    response: Any, key: ApiKey, version: int, correlation_id: int
) -> Generator[int, None, EnvelopeResponse]:
    """Wrap the response to a request in an envelope; yields the elements encoded."""
    header = headers.ResponseHeader(correlation_id=correlation_id)
    head = codec.encode(header, headers.response_header_version(key, version))
    parts = codec.encode_parts((yield from codec.encode_arrays(response, version)), version)
    return EnvelopeResponse(response_data=[head, *parts])


def open_envelope(
    answer: EnvelopeResponse, key: ApiKey, version: int, correlation_id: int
) -> memoryview:
    """The response inside, without its header: encoded, as the client gets it.

    It may be large, and a broker has no use for most of it, so it is not decoded.

    Raises:
        KafkaError: NOT_CONTROLLER.
        EnvelopeError: the controller refused the envelope itself, or responds to another request.
    """
    if answer.error_code == ErrorCode.NOT_CONTROLLER:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if answer.error_code:
        raise EnvelopeError(ErrorCode(answer.error_code), "the controller refused the envelope")
    data = answer.response_data or b""
    assert isinstance(data, bytes | memoryview), "it was received"
    view = memoryview(data)
    header_version = headers.response_header_version(key, version)
    try:
        header, at = codec.decode_from(headers.ResponseHeader, header_version, view, 0)
    except DecodeError as error:
        raise EnvelopeError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    if header.correlation_id != correlation_id:
        raise EnvelopeError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"expected the response to request {correlation_id} in an envelope, "
            f"got {header.correlation_id}",
        )
    return view[at:]


def address_bytes(host: str) -> bytes:
    """An IP address as 4 or 16 bytes; a zone id is left out, IPv4 in IPv6 becomes IPv4, as in Java.

    Raises:
        ValueError: `host` is not an IP address, so it did not come from a connection.
    """
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.packed


def address_of(data: bytes) -> str:
    """The client's address as text.

    Raises:
        KafkaError: INVALID_REQUEST if `data` is neither 4 nor 16 bytes.
    """
    try:
        return str(ip_address(bytes(data)))
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"client_host_address has {len(data)} bytes"
        ) from error


def principal_bytes(principal: KafkaPrincipal) -> bytes:
    """As Java's DefaultKafkaPrincipalBuilder serializes it."""
    data = DefaultPrincipalData(
        type=principal.type,
        name=principal.name,
        token_authenticated=principal.token_authenticated,
    )
    return _PRINCIPAL_VERSION + codec.encode(data, 0)


def principal_of(data: bytes | None) -> KafkaPrincipal:
    """The principal of an envelope.

    Raises:
        KafkaError: PRINCIPAL_DESERIALIZATION_FAILURE if it is missing or malformed.
    """
    if data is None or data[:2] != _PRINCIPAL_VERSION:
        raise KafkaError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "no principal of version 0 in the envelope"
        )
    try:
        found = codec.decode(DefaultPrincipalData, 0, memoryview(data)[2:])
    except DecodeError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    return KafkaPrincipal(found.type, found.name, token_authenticated=found.token_authenticated)

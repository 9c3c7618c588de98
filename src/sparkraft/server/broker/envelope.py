"""Envelope: a client's request as a broker passes it to the controller (KIP-590).

    EnvelopeRequest.request_data      = request header | request, as the client's would be
    EnvelopeRequest.request_principal = int16 0 | DefaultPrincipalData v0
    EnvelopeResponse.response_data    = response header | response

Both ends are here, so that they stay each other's inverse.
"""

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.protocol import codec, headers
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext

_PRINCIPAL_VERSION = b"\0\0"


def seal_envelope(
    request: Any, key: ApiKey, version: int, context: "RequestContext"
) -> EnvelopeRequest:
    """Wrap `request`, on behalf of `context`'s client."""
    header = headers.RequestHeader(
        request_api_key=int(key),
        request_api_version=version,
        correlation_id=context.correlation_id,
        client_id=context.client_id,
    )
    data = codec.encode(header, headers.request_header_version(key, version))
    try:
        host = ip_address(context.client_host).packed
    except ValueError:
        host = b"\x7f\0\0\1"
    return EnvelopeRequest(
        request_data=data + codec.encode(request, version),
        request_principal=_principal_bytes(context.principal),
        client_host_address=host,
    )


def open_envelope(answer: EnvelopeResponse, key: ApiKey, version: int) -> Any:
    """The response inside; KafkaError where the controller refused the envelope itself."""
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code), "the controller refused the envelope")
    data = memoryview(answer.response_data or b"")
    header_version = headers.response_header_version(key, version)
    _, at = codec.decode_from(headers.ResponseHeader, header_version, data, 0)
    return codec.decode(API_INFO[key].response_class(), version, data[at:])


def _principal_bytes(principal: str) -> bytes:
    """`User:name` as Java's DefaultKafkaPrincipalBuilder writes it; flexible, token flag false."""
    kind, _, name = principal.partition(":")
    parts = [_PRINCIPAL_VERSION]
    for text in (kind.encode(), name.encode()):
        if len(text) >= 127:  # noqa: PLR2004 (one byte of varint is all a principal needs here)
            raise ValueError(f"principal {principal!r} is too long")
        parts += [bytes([len(text) + 1]), text]
    return b"".join([*parts, b"\0", b"\0"])


def principal_of(data: bytes | None) -> str:
    """The principal of an envelope; DecodeError where it is malformed."""
    if data is None:
        return "User:ANONYMOUS"
    texts = []
    at = 2
    if data[:2] != _PRINCIPAL_VERSION:
        raise DecodeError("a principal of an unknown version", path="request_principal", at=0)
    for _ in range(2):
        if at >= len(data) or not 1 <= data[at] <= len(data) - at:
            raise DecodeError("a malformed principal", path="request_principal", at=at)
        end = at + data[at]
        texts.append(bytes(data[at + 1 : end]).decode(errors="replace"))
        at = end
    return ":".join(texts)

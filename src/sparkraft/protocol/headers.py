"""Headers of requests and responses, and the choice of their versions.

    request   api_key i16 | version i16 | correlation_id i32 | v1: client_id | v2: tagged fields
    response  correlation_id i32 | v1: tagged fields

A header is flexible if its body is, but the response to ApiVersions always has header version 0:
the client may not know our versions yet (KIP-482, KIP-511). Only ControlledShutdown v0 has request
header version 0, in Kafka up to 3.9 (`ApiMessageType.requestHeaderVersion`).
"""

from typing import Final

from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages.headers import RequestHeader, ResponseHeader

__all__ = [
    "HEADER_TAGS_MAX",
    "RequestHeader",
    "ResponseHeader",
    "request_header_version",
    "response_header_version",
]

HEADER_TAGS_MAX: Final = 16
"""Tagged fields in a header; Kafka 4.3 defines none (CVE-2026-111115)."""


def _is_flexible(key: ApiKey, version: int) -> bool:
    flexible_from = API_INFO[key].flexible_from
    return flexible_from is not None and version >= flexible_from


def request_header_version(key: ApiKey, version: int) -> int:
    """Return 2 if `version` of the request is flexible, 0 for ControlledShutdown v0, else 1."""
    if key is ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return 0
    return 2 if _is_flexible(key, version) else 1


def response_header_version(key: ApiKey, version: int) -> int:
    """Return 1 if version `version` of the response is flexible, else 0."""
    return 1 if key != ApiKey.API_VERSIONS and _is_flexible(key, version) else 0

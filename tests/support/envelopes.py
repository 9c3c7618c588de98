"""Responses of controllers in envelopes, decoded as a client does."""

from typing import Any

from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode
from sparkraft.protocol.messages.k58_envelope import EnvelopeResponse
from sparkraft.server.broker.envelope import open_envelope


def response_in(
    answer: EnvelopeResponse, key: ApiKey, version: int, correlation_id: int = 0
) -> Any:
    """The response to a request that was sent in an envelope."""
    body = open_envelope(answer, key, version, correlation_id)
    return decode(API_INFO[key].response_class(), version, body)

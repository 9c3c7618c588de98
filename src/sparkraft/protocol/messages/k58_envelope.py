"""Envelope (key 58): v0, flexible from v0."""

from sparkraft.protocol.declare import Message, Records, blob, int16, records, secret


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    """A broker forwards a client's request to the controller, with its principal (KIP-590).

    The request inside is not copied, as `zeroCopy` in Kafka's schema.
    """

    request_data: Records | None = secret(records(default=b""))
    request_principal: bytes | None = blob(nullable=True)
    client_host_address: bytes = blob()


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    """The controller's answer, to be passed on as it is; it is not copied either."""

    response_data: Records | None = secret(records(nullable=True))
    error_code: int = int16()

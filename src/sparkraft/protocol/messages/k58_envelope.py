"""Envelope (key 58): v0, flexible from v0."""

from sparkraft.protocol.declare import Message, blob, int16, secret


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    """A broker forwards a client's request to the controller, with its principal (KIP-590)."""

    request_data: bytes = secret(blob())
    request_principal: bytes | None = blob(nullable=True)
    client_host_address: bytes = blob()


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    """The controller's answer, to be passed on as it is."""

    response_data: bytes | None = secret(blob(nullable=True, default=None))
    error_code: int = int16()

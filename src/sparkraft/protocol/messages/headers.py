"""What stands before every request and response."""

from sparkraft.protocol.declare import Message, int16, int32, string


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """What a request is: key, version, and the number its answer will bear.

    The client id keeps its old length prefix in v2.
    """

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(nullable=True, compact=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """Which request is answered."""

    correlation_id: int = int32()

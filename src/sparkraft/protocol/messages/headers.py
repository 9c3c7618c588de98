"""Headers of requests and responses."""

from sparkraft.protocol.declare import Message, int16, int32, string


class RequestHeader(Message, versions="0-2", flexible="2+"):
    """API key and version of a request, and the correlation id of its response.

    v0 lacks the client id: that of ControlledShutdown v0, which Kafka 4 has removed. The client id
    keeps its old length prefix in v2.
    """

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string("1+", nullable="1+", ignorable=True, compact=False)


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """Which request is answered."""

    correlation_id: int = int32()

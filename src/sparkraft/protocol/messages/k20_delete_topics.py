"""DeleteTopics (key 20): v1-6, flexible from v4."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, array, int16, int32, string, strings, uuid


class DeleteTopicState(Message):
    """A topic by name or id: `DeleteTopicsRequest.topics`."""

    name: str | None = string("6+", nullable=True, default=None)
    topic_id: Uuid = uuid("6+")


class DeleteTopicsRequest(Message, key=20, versions="1-6", flexible="4+"):
    """Deletes topics by name, or from v6 by id (KIP-516)."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = strings("0-5", ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Message):
    """Result for a topic: `DeleteTopicsResponse.responses`."""

    name: str | None = string(nullable="6+")
    topic_id: Uuid = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable=True, default=None, ignorable=True)


class DeleteTopicsResponse(Message, key=20, versions="1-6", flexible="4+"):
    """An error code for each topic."""

    throttle_time_ms: int = int32(ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)

"""FindCoordinator (key 10): v0-6, flexible from v3."""

from sparkraft.protocol.declare import Message, array, int8, int16, int32, string, strings


class FindCoordinatorRequest(Message, key=10, versions="0-6", flexible="3+"):
    """Asks which broker coordinates a group, transactional id (1) or share partition (2).

    v4 several keys at once (KIP-699).
    """

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = strings("4+")


class Coordinator(Message):
    """The coordinator of a key: `FindCoordinatorResponse.coordinators`."""

    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable=True, ignorable=True)


class FindCoordinatorResponse(Message, key=10, versions="0-6", flexible="3+"):
    """The coordinator's address for each key."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable=True, ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")

"""BrokerHeartbeat (key 63): v0-2, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, boolean, int16, int32, int64, uuids


class BrokerHeartbeatRequest(Message, key=63, versions="0-2", flexible="0+"):
    """Keeps a broker's session alive and reports how far it has read the metadata (KIP-631).

    v1 failed log directories (KIP-858); v2 cordoned ones (KIP-1066).
    """

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[Uuid] = uuids("1+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = uuids("2+", nullable=True, default=None, tag=1)


class BrokerHeartbeatResponse(Message, key=63, versions="0-2", flexible="0+"):
    """Whether the broker is fenced, caught up, or may shut down."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()

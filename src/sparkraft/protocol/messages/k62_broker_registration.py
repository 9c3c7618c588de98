"""BrokerRegistration (key 62): v0-4, flexible from v0."""

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import (
    Message,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
    uuids,
)


class Listener(Message):
    """In `BrokerRegistrationRequest.listeners`."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Message):
    """In `BrokerRegistrationRequest.features`."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class BrokerRegistrationRequest(Message, key=62, versions="0-4", flexible="0+"):
    """Asks for BrokerRegistration."""

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable=True)
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[Uuid] = uuids("2+", ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Message, key=62, versions="0-4", flexible="0+"):
    """Answers BrokerRegistrationRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)

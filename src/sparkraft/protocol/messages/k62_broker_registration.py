"""BrokerRegistration (key 62): v0-4, flexible from v0.

v2 log directories (KIP-858); v3 the previous epoch (KIP-966).
"""

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
    """How to reach the node: `BrokerRegistrationRequest.listeners`."""

    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class Feature(Message):
    """A range of feature levels: `BrokerRegistrationRequest.features`."""

    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class BrokerRegistrationRequest(Message, key=62, versions="0-4", flexible="0+"):
    """A broker enters the cluster: listeners, features, log directories (KIP-631).

    v4 features that begin at 0 (KIP-1022).
    """

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
    """The broker epoch that proves the registration from now on."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)

"""Brokers that are registered and run nowhere: what a controller must know of them."""

from typing import Any

from sparkraft.base.env import random_uuid
from sparkraft.metadata.features import SUPPORTED_FEATURES
from sparkraft.protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from sparkraft.server.env import SystemEntropy


def registration_of(broker_id: int, cluster_id: str, **given: Any) -> BrokerRegistrationRequest:
    """The request of a broker with one new log directory, whom nobody reaches."""
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=random_uuid(SystemEntropy()),
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
        ],
        log_dirs=[random_uuid(SystemEntropy())],
        **given,
    )

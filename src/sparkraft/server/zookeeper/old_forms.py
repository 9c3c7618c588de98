"""Requests of the controller in old versions, brought into the form of the newest.

    LeaderAndIsr v0-1, UpdateMetadata v0-4   each partition repeats its topic: grouped by topic
    UpdateMetadata v0                        one plaintext endpoint of each broker
    UpdateMetadata v1-2                      listeners are named by their security protocol

Kafka 3.9: `LeaderAndIsrRequest.normalize`, `UpdateMetadataRequest.normalize`.
"""

from typing import TYPE_CHECKING

from sparkraft.protocol.messages.k04_leader_and_isr import LeaderAndIsrTopicState
from sparkraft.protocol.messages.k06_update_metadata import (
    UpdateMetadataEndpoint,
    UpdateMetadataTopicState,
)
from sparkraft.security.protocols import SecurityProtocol

if TYPE_CHECKING:
    from sparkraft.protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
    from sparkraft.protocol.messages.k06_update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataRequest,
    )

_FIRST_WITH_ENDPOINTS = 1
_FIRST_WITH_LISTENER_NAMES = 3


def normalize_leader_and_isr(request: "LeaderAndIsrRequest") -> None:
    """Group the partitions by topic."""
    topics: dict[str, LeaderAndIsrTopicState] = {}
    for state in request.ungrouped_partition_states:
        name = state.topic_name
        topic = topics.setdefault(name, LeaderAndIsrTopicState(topic_name=name))
        topic.partition_states.append(state)
    request.topic_states += topics.values()
    request.ungrouped_partition_states = []


def normalize_update_metadata(request: "UpdateMetadataRequest", version: int) -> None:
    """Group the partitions by topic, and name the listeners of all brokers."""
    topics: dict[str, UpdateMetadataTopicState] = {}
    for state in request.ungrouped_partition_states:
        name = state.topic_name
        topic = topics.setdefault(name, UpdateMetadataTopicState(topic_name=name))
        topic.partition_states.append(state)
    request.topic_states += topics.values()
    request.ungrouped_partition_states = []
    if version < _FIRST_WITH_LISTENER_NAMES:
        for broker in request.live_brokers:
            _name_listeners(broker, version)


def _name_listeners(broker: "UpdateMetadataBroker", version: int) -> None:
    if version < _FIRST_WITH_ENDPOINTS:
        plain = UpdateMetadataEndpoint(port=broker.v0_port, host=broker.v0_host)
        broker.endpoints = [plain]
    for endpoint in broker.endpoints:
        endpoint.listener = SecurityProtocol(endpoint.security_protocol).name

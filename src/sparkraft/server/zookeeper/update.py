"""UpdateMetadata as a change of the image: live brokers, topics, partitions.

As Kafka 3.9 (`ZkMetadataCache.updateMetadata`):
    * The live brokers replace those before; a broker that is missing is not live.
    * Partitions are merged into those before. Leader -2 (`LeaderDuringDelete`) removes one; a topic
      without partitions does not exist.
    * A replica that the controller reports as offline is in directory LOST here.

In the image live brokers are not fenced. They have no epoch, since the request has none.
"""

from typing import TYPE_CHECKING, NamedTuple

from immutables import Map

from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.metadata.image import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    BrokerRegistration,
    ClusterImage,
    Endpoint,
    Topic,
)
from sparkraft.metadata.partition_state import RECOVERED, PartitionState

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from sparkraft.protocol.messages.k06_update_metadata import (
        UpdateMetadataBroker,
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
        UpdateMetadataTopicState,
    )

LEADER_DURING_DELETE = -2
"""Leader of a partition whose topic is being deleted."""

NO_EPOCH = -1
"""Broker epoch of a registration that is known from UpdateMetadata."""


class Update(NamedTuple):
    """The image after a request, and the topics that differ."""

    image: ClusterImage
    changed: frozenset[Uuid]


def updated(
    image: ClusterImage, request: "UpdateMetadataRequest"
) -> "Generator[int, None, Update]":
    """Apply a request; yields the partitions done since the last time.

    Topics without an id are ignored: inter.broker.protocol.version is at least 3.3, and the
    controller has given each topic one.
    """
    by_id, by_name = image.topics_by_id.mutate(), image.topics_by_name.mutate()
    changed: set[Uuid] = set()
    for state in request.topic_states:
        if state.topic_id == Uuid.ZERO:
            continue
        known_id = by_name.get(state.topic_name)
        if known_id is not None and known_id != state.topic_id:
            del by_id[known_id]  # the topic was deleted and created again
            changed.add(known_id)
        before = by_id.get(state.topic_id)
        topic = yield from _topic(before, state)
        changed.add(state.topic_id)
        if topic.partitions:
            by_id[topic.id] = topic
            by_name[topic.name] = topic.id
        elif before is not None:
            del by_id[topic.id]
            del by_name[topic.name]
    after = image._replace(
        brokers=_brokers(request.live_brokers),
        topics_by_id=by_id.finish(),
        topics_by_name=by_name.finish(),
    )
    return Update(after, frozenset(changed))


def _topic(
    before: Topic | None, state: "UpdateMetadataTopicState"
) -> "Generator[int, None, Topic]":
    partitions: Map[int, PartitionState] = Map() if before is None else before.partitions
    with partitions.mutate() as changing:
        for each in state.partition_states:
            if each.leader == LEADER_DURING_DELETE:
                changing.pop(each.partition_index, None)
            else:
                changing[each.partition_index] = _partition(each)
            yield 1
        partitions = changing.finish()
    return Topic(name=state.topic_name, id=state.topic_id, partitions=partitions)


def _partition(state: "UpdateMetadataPartitionState") -> PartitionState:
    offline = state.offline_replicas
    return PartitionState(
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        elr=(),
        last_known_elr=(),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.zk_version,
        directories=tuple(
            DIRECTORY_LOST if replica in offline else DIRECTORY_UNASSIGNED
            for replica in state.replicas
        ),
        adding_replicas=(),
        removing_replicas=(),
        leader_recovery_state=RECOVERED,
    )


def _brokers(live: "Iterable[UpdateMetadataBroker]") -> Map[int, BrokerRegistration]:
    return Map({each.id: _broker(each) for each in live})


def _broker(broker: "UpdateMetadataBroker") -> BrokerRegistration:
    return BrokerRegistration(
        id=BrokerId(broker.id),
        epoch=NO_EPOCH,
        incarnation_id=Uuid.ZERO,
        endpoints=tuple(
            Endpoint(each.listener.upper(), each.host, each.port, each.security_protocol)
            for each in broker.endpoints
        ),
        supported_features=Map(),
        rack=broker.rack,
        fenced=False,
        in_controlled_shutdown=False,
        directories=(),
        cordoned_directories=None,
        is_migrating_zk_broker=False,
    )

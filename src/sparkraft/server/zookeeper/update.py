"""UpdateMetadata as a change of the image: live brokers, topics, partitions.

As Kafka 3.9 (`ZkMetadataCache.updateMetadata`):
    * The live brokers replace those before; a broker that is missing is not live.
    * Partitions are merged into those before. Leader -2 (`LeaderDuringDelete`) removes one; a topic
      without partitions does not exist.
    * A replica that the controller reports as offline is in directory LOST here.
    * A full request of a KRaft controller (KIP-866) has all topics; others do not exist.
    * A topic without an id has the zero id, with inter.broker.protocol.version below 2.8. In the
      image it has a placeholder (`base.placeholder_ids`). A topic that gets its id, or loses it to
      an older controller, keeps its partitions.

In the image live brokers are not fenced. They have no epoch, since the request has none.
"""

from typing import TYPE_CHECKING, NamedTuple

from immutables import Map

from sparkraft.base.ids import BrokerId, Uuid
from sparkraft.base.placeholder_ids import is_same_topic, placeholder_id
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
    """The image after a request, and the ids and names of topics that differ."""

    image: ClusterImage
    changed: frozenset[Uuid]
    names: frozenset[str]


def updated(
    image: ClusterImage, request: "UpdateMetadataRequest", *, is_full: bool = False
) -> "Generator[int, None, Update]":
    """Apply a request; yields the partitions done since the last time."""
    by_id, by_name = image.topics_by_id.mutate(), image.topics_by_name.mutate()
    changed: set[Uuid] = set()
    names = {state.topic_name for state in request.topic_states}
    if is_full:
        for name, topic_id in (yield from _missing(image, request)):
            del by_id[topic_id], by_name[name]
            changed.add(topic_id)
            names.add(name)
            yield 1
    for state in request.topic_states:
        topic_id = state.topic_id
        if topic_id == Uuid.ZERO:
            topic_id = placeholder_id(state.topic_name)
        known_id = by_name.get(state.topic_name)
        before = None if known_id is None else by_id[known_id]
        if known_id is not None and known_id != topic_id:
            del by_id[known_id]
            changed.add(known_id)
            if not is_same_topic(known_id, topic_id):
                before = None  # the topic was deleted and created again
        topic = yield from _topic(before, topic_id, state)
        changed.add(topic_id)
        if topic.partitions:
            by_id[topic.id] = topic
            by_name[topic.name] = topic.id
        elif known_id is not None:
            by_id.pop(topic.id, None)
            del by_name[topic.name]
    after = image._replace(
        brokers=_brokers(request.live_brokers),
        topics_by_id=by_id.finish(),
        topics_by_name=by_name.finish(),
    )
    return Update(after, frozenset(changed), frozenset(names))


def _missing(
    image: ClusterImage, request: "UpdateMetadataRequest"
) -> "Generator[int, None, list[tuple[str, Uuid]]]":
    """Names and ids of topics that a request does not have, in order of their names."""
    present = {state.topic_id for state in request.topic_states}
    found = []
    for topic_id, topic in image.topics_by_id.items():
        if topic_id not in present:
            found.append((topic.name, topic_id))
        yield 1
    return sorted(found)


def _topic(
    before: Topic | None, topic_id: Uuid, state: "UpdateMetadataTopicState"
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
    return Topic(name=state.topic_name, id=topic_id, partitions=partitions)


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

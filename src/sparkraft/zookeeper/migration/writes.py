"""Changes of the metadata as writes of znodes, for the time of a migration (KIP-866).

    image before, image after → changes, each in stages: parents before children

Rules of Kafka 3.9's KRaftMigrationZkWriter:
    * Deletions come first, then topics, configs, quotas with SCRAM credentials, producer ids,
      access control entries, delegation tokens.
    * The controller epoch in a partition's state is that of KRaft.
    * A user's SCRAM credentials and quotas share a znode, which is written whole.
    * A topic or broker without configs has no znode; other entities keep an empty one.
    * The entries of a resource are written whole; without any it has no znode.
    * Brokers are notified of changed configs, except of those of a new topic, and of changed
      access control entries; not of delegation tokens.
    * Features, groups, client metrics, log directories and ELRs have no place in ZooKeeper.

Difference: the block of producer ids ends before the next id, so that reading it gives this id
again. Kafka writes a block that starts there.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from sparkraft.base.ids import Uuid
from sparkraft.metadata.configs.definition import java_double
from sparkraft.metadata.image import ClusterImage, ResourceType, Topic
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.security.quotas import USER, QuotaEntity
from sparkraft.security.scram import BY_TYPE
from sparkraft.zookeeper.controller.steps import pieces
from sparkraft.zookeeper.znodes.acl_resources import AclResource, encode_entries
from sparkraft.zookeeper.znodes.changes import encode_config_change
from sparkraft.zookeeper.znodes.cluster import (
    PRODUCER_IDS,
    ProducerIdBlock,
    encode_producer_ids,
)
from sparkraft.zookeeper.znodes.credentials import encode_credential
from sparkraft.zookeeper.znodes.entities import DEFAULT_ENTITY, is_integral, quota_path
from sparkraft.zookeeper.znodes.security import TOKENS
from sparkraft.zookeeper.znodes.tokens import encode_delegation_token
from sparkraft.zookeeper.znodes.topics import (
    CONFIG,
    TOPICS,
    Assignment,
    encode_configs,
    encode_state,
    encode_topic,
)
from sparkraft.zookeeper.znodes.topics import PartitionState as StateZnode
from sparkraft.zookeeper.znodes.topics import Topic as TopicZnode

if TYPE_CHECKING:
    from sparkraft.security.acls import Acl

SCANNED_MAX = 1_000
"""Unchanged entities between two steps: about 1 ms."""

PRODUCER_IDS_PER_BLOCK = 1_000
NO_BROKER = -1

_RESOURCES = {ResourceType.TOPIC: "topics", ResourceType.BROKER: "brokers"}


class Put(NamedTuple):
    """Create a znode, or replace its data."""

    path: str
    data: bytes
    is_new: bool = False
    """Whether it probably does not exist."""


class Remove(NamedTuple):
    """Delete a znode without children, if it exists."""

    path: str


class Notice(NamedTuple):
    """A sequential znode that notifies brokers in ZooKeeper mode of a change."""

    path: str
    """Without its number."""
    data: bytes


Stage = tuple[Put | Remove, ...]


class Change(NamedTuple):
    """The writes for one topic or entity."""

    stages: tuple[Stage, ...]
    """Each needs the one before."""
    notice: Notice | None = None
    """Created once all is written."""
    is_removal: bool = False
    """Whether it must be complete before others begin: a topic's name may be used again."""


def changes_between(
    before: ClusterImage, after: ClusterImage, topics: Collection[Uuid] | None, epoch: int
) -> Iterator[Change | None]:
    """Find the writes that turn znodes equal to `before` into those equal to `after`.

    Args:
        before: the metadata that ZooKeeper has.
        after: the metadata that it shall have.
        topics: ids of topics that may differ; None: all.
        epoch: of the KRaft controller.

    Yields:
        Changes, and None after each `SCANNED_MAX` entities that need no write.
    """
    yield from _topics(before, after, topics, epoch)
    yield from _configs(before, after)
    yield from _quotas(before, after)
    if after.next_producer_id not in (before.next_producer_id, -1):
        yield Change((_producer_ids(after.next_producer_id),))
    yield from _acls(before, after)
    yield from _tokens(before, after)


def _producer_ids(following: int) -> Stage:
    first = max(following - PRODUCER_IDS_PER_BLOCK, 0)
    block = ProducerIdBlock(NO_BROKER, first, following - 1)
    return (Put(PRODUCER_IDS, encode_producer_ids(block)),)


# ---- topics


def _topics(
    before: ClusterImage, after: ClusterImage, topics: Collection[Uuid] | None, epoch: int
) -> Iterator[Change | None]:
    if before.topics_by_id is after.topics_by_id:
        return
    some = topics
    if some is None:
        some = [
            *before.topics_by_id,
            *(i for i in after.topics_by_id if i not in before.topics_by_id),
        ]
    ordered = sorted(some)
    scanned = 0
    for topic_id in ordered:
        old = before.topics_by_id.get(topic_id)
        if old is not None and topic_id not in after.topics_by_id:
            yield _removed_topic(old)
    for topic_id in ordered:
        old, new = before.topics_by_id.get(topic_id), after.topics_by_id.get(topic_id)
        scanned += 1
        if scanned % SCANNED_MAX == 0:
            yield None
        if new is None or new is old:
            continue
        if old is None:
            configs = after.config(ResourceType.TOPIC, new.name)
            yield from _new_topic(new, dict(configs), epoch)
        else:
            yield from _changed_topic(old, new, epoch)


def _topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def _partitions_path(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def _topic_data(topic: Topic) -> bytes:
    assignments = {
        index: Assignment(each.replicas, each.adding_replicas, each.removing_replicas)
        for index, each in topic.in_order()
    }
    return encode_topic(TopicZnode(topic.id, assignments))


def _state_data(partition: PartitionState, epoch: int) -> bytes:
    return encode_state(
        StateZnode(
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            controller_epoch=epoch,
            recovery_state=partition.leader_recovery_state,
        )
    )


def _new_topic(topic: Topic, configs: Mapping[str, str], epoch: int) -> Iterator[Change]:
    root = _partitions_path(topic.name)
    yield Change(
        (
            (
                Put(_topic_path(topic.name), _topic_data(topic), is_new=True),
                Put(f"{CONFIG}/topics/{topic.name}", encode_configs(dict(configs)), is_new=True),
            ),
            (Put(root, b"", is_new=True),),
        )
    )
    yield from _new_partitions(topic, [index for index, _ in topic.in_order()], epoch)


def _new_partitions(topic: Topic, indexes: Iterable[int], epoch: int) -> Iterator[Change]:
    """Partitions, in pieces; the stages of the topic above them come first."""
    root = _partitions_path(topic.name)
    for piece in pieces(indexes):
        partitions = tuple(Put(f"{root}/{index}", b"", is_new=True) for index in piece)
        states = tuple(
            Put(f"{root}/{index}/state", _state_data(topic.partitions[index], epoch), is_new=True)
            for index in piece
        )
        yield Change(((), (), partitions, states))


def _removed_topic(topic: Topic) -> Change:
    root = _partitions_path(topic.name)
    indexes = [index for index, _ in topic.in_order()]
    return Change(
        (
            tuple(Remove(f"{root}/{index}/state") for index in indexes),
            tuple(Remove(f"{root}/{index}") for index in indexes),
            (Remove(root),),
            (Remove(f"{CONFIG}/topics/{topic.name}"), Remove(_topic_path(topic.name))),
        ),
        is_removal=True,
    )


def _changed_topic(old: Topic, new: Topic, epoch: int) -> Iterator[Change]:
    added = sorted(index for index in new.partitions if index not in old.partitions)
    gone = sorted(index for index in old.partitions if index not in new.partitions)
    kept = [(index, each) for index, each in new.in_order() if index in old.partitions]
    if added or gone or any(_is_reassigned(old.partitions[at], each) for at, each in kept):
        yield Change(((Put(_topic_path(new.name), _topic_data(new)),),))
    root = _partitions_path(new.name)
    changed = [(at, each) for at, each in kept if _has_new_state(old.partitions[at], each)]
    for piece in pieces(changed):
        states = tuple(Put(f"{root}/{at}/state", _state_data(each, epoch)) for at, each in piece)
        yield Change((states,))
    if added:
        yield from _new_partitions(new, added, epoch)
    if gone:
        yield Change(
            (
                tuple(Remove(f"{root}/{index}/state") for index in gone),
                tuple(Remove(f"{root}/{index}") for index in gone),
            )
        )


def _is_reassigned(old: PartitionState, new: PartitionState) -> bool:
    return (old.replicas, old.adding_replicas, old.removing_replicas) != (
        new.replicas,
        new.adding_replicas,
        new.removing_replicas,
    )


def _has_new_state(old: PartitionState, new: PartitionState) -> bool:
    """The partition epoch is the version of the znode, and differs after each repeated write."""
    return (old.leader, old.leader_epoch, old.isr, old.leader_recovery_state) != (
        new.leader,
        new.leader_epoch,
        new.isr,
        new.leader_recovery_state,
    )


# ---- configs


def _configs(before: ClusterImage, after: ClusterImage) -> Iterator[Change | None]:
    if before.configs is after.configs:
        return
    keys = sorted({*before.configs, *after.configs})
    for scanned, key in enumerate(keys, 1):
        if scanned % SCANNED_MAX == 0:
            yield None
        kind, name = key
        old, new = before.configs.get(key), after.configs.get(key)
        if new is old or new == old or kind not in _RESOURCES:
            continue
        if kind == ResourceType.TOPIC and _comes_or_goes(before, after, name):
            continue  # written, or deleted, with the topic
        entity = f"{_RESOURCES[kind]}/{name or DEFAULT_ENTITY}"
        path = f"{CONFIG}/{entity}"
        put = Remove(path) if new is None else Put(path, encode_configs(dict(new)))
        yield Change(((put,),), _config_notice(entity))


def _config_notice(entity: str) -> Notice:
    return Notice(f"{CONFIG}/changes/config_change_", encode_config_change(entity))


def _comes_or_goes(before: ClusterImage, after: ClusterImage, topic: str) -> bool:
    return before.topics_by_name.get(topic) != after.topics_by_name.get(topic)


# ---- quotas and credentials


def _quotas(before: ClusterImage, after: ClusterImage) -> Iterator[Change | None]:
    if before.quotas is after.quotas and before.scram is after.scram:
        return
    entities = {
        entity
        for entity in {*before.quotas, *after.quotas}
        if before.quotas.get(entity) != after.quotas.get(entity)
    }
    entities |= {
        ((USER, name),)
        for kind, name in {*before.scram, *after.scram}
        if before.scram.get((kind, name)) != after.scram.get((kind, name))
    }
    paths = {path: entity for entity in entities if (path := quota_path(entity)) is not None}
    for scanned, path in enumerate(sorted(paths), 1):
        if scanned % SCANNED_MAX == 0:
            yield None
        data = encode_configs(_values_of(after, paths[path]))
        yield Change(((Put(f"{CONFIG}/{path}", data),),), _config_notice(path))


def _values_of(image: ClusterImage, entity: QuotaEntity) -> dict[str, str]:
    """Quotas, and for a user its credentials."""
    values = {
        key: str(int(value + 1e-6)) if is_integral(key) else java_double(value)
        for key, value in sorted(image.quotas.get(entity, {}).items())
    }
    ((kind, name), *others) = entity
    if kind == USER and name is not None and not others:
        for mechanism in BY_TYPE.values():
            found = image.scram.get((mechanism.type, name))
            if found is not None:
                values[mechanism.name] = encode_credential(found)
    return values


# ---- access control entries and delegation tokens


def _acls(before: ClusterImage, after: ClusterImage) -> Iterator[Change | None]:
    if before.acls is after.acls:
        return
    old: dict[AclResource, set[Acl]] = defaultdict(set)
    new: dict[AclResource, set[Acl]] = defaultdict(set)
    for entries, found in ((before.acls, old), (after.acls, new)):
        for scanned, acl in enumerate(entries.values(), 1):
            found[AclResource.of(acl)].add(acl)
            if scanned % SCANNED_MAX == 0:
                yield None
    for resource in sorted({*old, *new}):
        wanted = new.get(resource, set())
        if wanted != old.get(resource, set()):
            path = resource.path
            write = Put(path, encode_entries(wanted)) if wanted else Remove(path)
            yield Change(((write,),), Notice(*resource.notice))


def _tokens(before: ClusterImage, after: ClusterImage) -> Iterator[Change]:
    if before.delegation_tokens is after.delegation_tokens:
        return
    for token_id in sorted({*before.delegation_tokens, *after.delegation_tokens}):
        token = after.delegation_tokens.get(token_id)
        path = f"{TOKENS}/{token_id}"
        if token is None:
            yield Change(((Remove(path),),))
        elif token != before.delegation_tokens.get(token_id):
            yield Change(((Put(path, encode_delegation_token(token)),),))

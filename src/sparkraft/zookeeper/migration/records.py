"""A cluster's znodes as records of the metadata log, in the order of Kafka 3.9's migration.

    per topic: Topic, its Configs, its Partitions
    configs of brokers
    per user: SCRAM credentials, quotas; then quotas of client ids, of both, of addresses
    ProducerIds
    access control entries, delegation tokens

Rules (`ZkMigrationClient`, `ZkTopicMigrationClient`, `ZkConfigMigrationClient` of Kafka 3.9.2):
    * A topic in /admin/delete_topics is not copied: its brokers delete it as a stray.
    * The version of a state's znode becomes the partition epoch. A partition without a state gets
      all its replicas as ISR, and epochs 0.
    * Partitions have no log directories (PartitionRecord 0).
    * Names of users and client ids are decoded; `<default>` is null in quotas, empty in configs.
    * The next producer id is the one after the last allocated block (KAFKA-15552).

Kafka iterates in the order of hash maps; here names are sorted.
"""

from collections.abc import Iterator
from urllib.parse import unquote

from sparkraft.base.env import Entropy, random_uuid
from sparkraft.base.ids import Uuid
from sparkraft.controller.decision import VersionedRecord
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages import metadata_records as records
from sparkraft.security.acls import Acl, AclResourceType
from sparkraft.security.quotas import CLIENT_ID, IP, IP_KEYS, USER, USER_AND_CLIENT_KEYS
from sparkraft.security.scram import BY_NAME
from sparkraft.zookeeper.controller.steps import pieces
from sparkraft.zookeeper.migration.tree import ZnodeTree
from sparkraft.zookeeper.znodes.acl_resources import (
    ACL_ROOTS,
    AclResource,
    decode_entries,
    named,
)
from sparkraft.zookeeper.znodes.cluster import PRODUCER_IDS
from sparkraft.zookeeper.znodes.credentials import decode_credential
from sparkraft.zookeeper.znodes.entities import DEFAULT_ENTITY
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from sparkraft.zookeeper.znodes.security import TOKENS
from sparkraft.zookeeper.znodes.tokens import decode_delegation_token
from sparkraft.zookeeper.znodes.topics import CONFIG, TOPICS, Assignment, Topic

PENDING_DELETIONS = "/admin/delete_topics"

NO_STATE = -1
"""Leader epoch, in a comparison, of a partition whose state no controller has written yet."""

_QUOTA_TYPES = {"users": USER, "clients": CLIENT_ID, "ips": IP}

Batch = list[VersionedRecord]


def batches_of(tree: ZnodeTree, entropy: Entropy, *, as_stored: bool = False) -> Iterator[Batch]:
    """All records of a migration, in pieces of at most `PIECE_MAX` partitions, or of one entity.

    Args:
        tree: the znodes; `conditions` must have found nothing in it.
        entropy: ids of access control entries, which have none in ZooKeeper.
        as_stored: for a comparison with ZooKeeper: include topics that are about to be deleted,
            and give a partition without a state znode `NO_STATE` as its leader epoch.

    Raises:
        ZnodeError: a znode cannot be copied.
    """
    epoch_of_new = NO_STATE if as_stored else 0
    for name in tree.children(TOPICS) if as_stored else topics_to_copy(tree):
        yield from _topic(tree, name, epoch_of_new)
    for name in tree.children(f"{CONFIG}/brokers"):
        yield _configs(tree, "brokers", name, ResourceType.BROKER)
    yield from _quotas(tree)
    yield _producer_ids(tree)
    yield from _acls(tree, entropy)
    yield [_token(tree, name) for name in tree.children(TOKENS)]


def topics_to_copy(tree: ZnodeTree) -> list[str]:
    """Topics that are not about to be deleted."""
    pending = set(tree.children(PENDING_DELETIONS))
    return [name for name in tree.children(TOPICS) if name not in pending]


# ---- topics and configs


def _topic(tree: ZnodeTree, name: str, epoch_of_new: int) -> Iterator[Batch]:
    path = f"{TOPICS}/{name}"
    topic: Topic = tree.value(path)
    if topic.id is None:
        raise ZnodeError(path, "no topic id; its brokers have to run 2.8 or newer first")
    if sorted(topic.partitions) != list(range(len(topic.partitions))):
        raise ZnodeError(path, "its partitions are not numbered from 0 without gaps")
    made: Batch = [(records.TopicRecord(name=name, topic_id=topic.id), 0)]
    made += _configs(tree, "topics", name, ResourceType.TOPIC)
    for piece in pieces(sorted(topic.partitions.items())):
        made += [
            (_partition(tree, name, topic.id, index, assignment, epoch_of_new), 0)
            for index, assignment in piece
        ]
        yield made
        made = []
    yield made


def _partition(
    tree: ZnodeTree,
    name: str,
    topic_id: Uuid,
    index: int,
    assignment: Assignment,
    epoch_of_new: int,
) -> records.PartitionRecord:
    path = f"{TOPICS}/{name}/partitions/{index}/state"
    if not assignment.replicas:
        raise ZnodeError(f"{TOPICS}/{name}", f"partition {index} has no replicas")
    record = records.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(assignment.replicas),
        isr=list(assignment.replicas),
        removing_replicas=list(assignment.removing),
        adding_replicas=list(assignment.adding),
        leader=assignment.replicas[0],
        leader_epoch=epoch_of_new,
        partition_epoch=0,
    )
    znode, state = tree.get(path), tree.value(path)
    if znode is not None:
        record.isr, record.leader = list(state.isr), state.leader
        record.leader_epoch, record.partition_epoch = state.leader_epoch, znode.version
        record.leader_recovery_state = state.recovery_state
    return record


def _configs(tree: ZnodeTree, kind: str, name: str, resource: int) -> Batch:
    values: dict[str, str] = tree.value(f"{CONFIG}/{kind}/{name}") or {}
    shown = "" if name == DEFAULT_ENTITY else name
    return [
        (
            records.ConfigRecord(resource_type=resource, resource_name=shown, name=key, value=text),
            0,
        )
        for key, text in values.items()
    ]


# ---- users, client ids and addresses


def _quotas(tree: ZnodeTree) -> Iterator[Batch]:
    users = tree.children(f"{CONFIG}/users")
    for kind in ("users", "clients"):
        for name in tree.children(f"{CONFIG}/{kind}"):
            yield _entity(tree, f"{kind}/{name}")
    for user in users:
        for client in tree.children(f"{CONFIG}/users/{user}/clients"):
            yield _entity(tree, f"users/{user}/clients/{client}")
    for name in tree.children(f"{CONFIG}/ips"):
        yield _entity(tree, f"ips/{name}")


def _entity(tree: ZnodeTree, entity: str) -> Batch:
    """The credentials and quotas of one entity, such as `users/alice/clients/c1`."""
    path = f"{CONFIG}/{entity}"
    values: dict[str, str] = dict(tree.value(path) or {})
    parts = entity.split("/")
    made: Batch = []
    if parts[0] == "users" and len(parts) == 2:  # noqa: PLR2004 (users/NAME)
        for mechanism in sorted(BY_NAME):
            text = values.pop(mechanism, None)
            if text is not None:
                made.append((_credential(path, parts[1], mechanism, text), 0))
    keys = IP_KEYS if parts[0] == "ips" else USER_AND_CLIENT_KEYS
    described = list(zip(parts[::2], parts[1::2], strict=True))
    for key, text in values.items():
        if key not in keys:
            raise ZnodeError(path, f"{key} is not a client quota of this kind of entity")
        record = records.ClientQuotaRecord(
            entity=[_part(kind, name) for kind, name in described],
            key=key,
            value=_number(path, key, text),
        )
        made.append((record, 0))
    return made


def _part(kind: str, name: str) -> records.EntityData:
    shown = None if name == DEFAULT_ENTITY else name if kind == "ips" else unquote(name)
    return records.EntityData(entity_type=_QUOTA_TYPES[kind], entity_name=shown)


def _number(path: str, key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ZnodeError(path, f"{key}: expected a number, got {text[:60]!r}") from error


def _credential(
    path: str, user: str, mechanism: str, text: str
) -> records.UserScramCredentialRecord:
    if user == DEFAULT_ENTITY:
        raise ZnodeError(path, f"{mechanism}: the default of all users has no credentials")
    credential = decode_credential(path, mechanism, text)
    return records.UserScramCredentialRecord(
        name=unquote(user), mechanism=BY_NAME[mechanism].type, **credential._asdict()
    )


def _producer_ids(tree: ZnodeTree) -> Batch:
    block = tree.value(PRODUCER_IDS)
    if block is None:
        return []
    record = records.ProducerIdsRecord(
        broker_id=block.broker, broker_epoch=-1, next_producer_id=block.last + 1
    )
    return [(record, 0)]


# ---- security


def _acls(tree: ZnodeTree, entropy: Entropy) -> Iterator[Batch]:
    for pattern, root in ACL_ROOTS.items():
        for kind in tree.children(root):
            for name in tree.children(f"{root}/{kind}"):
                path = f"{root}/{kind}/{name}"
                resource = AclResource(named(path, AclResourceType, kind), pattern, name)
                znode = tree.get(path)
                assert znode is not None
                entries = decode_entries(resource, znode.data)
                yield [(_acl(random_uuid(entropy), entry), 0) for entry in entries]


def _acl(id_: Uuid, acl: Acl) -> records.AccessControlEntryRecord:
    return records.AccessControlEntryRecord(id=id_, **acl._asdict())


def _token(tree: ZnodeTree, name: str) -> VersionedRecord:
    path = f"{TOKENS}/{name}"
    znode = tree.get(path)
    assert znode is not None
    fields = decode_delegation_token(path, znode.data)._asdict()
    return records.DelegationTokenRecord(**fields | {"renewers": list(fields["renewers"])}), 0

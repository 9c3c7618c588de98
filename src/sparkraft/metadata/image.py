"""The cluster as of one offset of the metadata log: an immutable tree with shared structure.

All values are named tuples, the immutable type that is fastest to create in Python. A snapshot or a
decision may keep an old image while new records make new ones. See
docs/decisions/0006-one-immutable-image.md.

Invariants:
    * Only `apply.apply` makes an image from another.
    * `topics_by_id` and `topics_by_name` are each other's inverse.
    * Maps keyed by text or bytes are never iterated unsorted: their order depends on a hash seed.

Not here: decisions (`sparkraft.controller`), the log itself (`sparkraft.raft`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from immutables import Map

from sparkraft.base.ids import BrokerId, LeaderEpoch, Offset, Uuid
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.security.acls import Acl
from sparkraft.security.quotas import QuotaEntity

DIRECTORY_MIGRATING = Uuid((0).to_bytes(16, "big"))
"""Directory of a replica assigned before directories were recorded."""

DIRECTORY_UNASSIGNED = Uuid((1).to_bytes(16, "big"))
"""Directory of a replica whose broker has not chosen one yet."""

DIRECTORY_LOST = Uuid((2).to_bytes(16, "big"))
"""Directory of a replica whose directory went offline."""

RESERVED_DIRECTORIES = 100
"""Directory ids below this number are reserved."""


class ResourceType:
    """Types of config resources; the numbers of the protocol."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class MigrationState:
    """States of a migration from ZooKeeper, as ZkMigrationStateRecord has them (KIP-866)."""

    NONE = 0
    MIGRATION = 1
    """All metadata is copied, and changes are written to ZooKeeper, too."""
    PRE_MIGRATION = 2
    """Nothing may change before the metadata is copied."""
    POST_MIGRATION = 3
    """Changes are written to the metadata log only."""


class Endpoint(NamedTuple):
    """A listener of a node and its advertised address."""

    name: str
    host: str
    port: int
    security_protocol: int


class BrokerRegistration(NamedTuple):
    """A broker as registered (KIP-631)."""

    id: BrokerId
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    supported_features: Map[str, tuple[int, int]]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[Uuid, ...]
    cordoned_directories: tuple[Uuid, ...] | None
    is_migrating_zk_broker: bool

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The endpoint of the named listener; None if the broker has none."""
        for endpoint in self.endpoints:
            if endpoint.name == listener_name:
                return endpoint
        return None

    def has_online_directory(self, directory: bytes) -> bool:
        """Whether the directory is online, or not known yet (KIP-858)."""
        if directory == DIRECTORY_LOST:
            return False
        if directory in {DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED}:
            return True
        return not self.directories or directory in self.directories

    @property
    def active(self) -> bool:
        """Whether it is neither fenced nor shutting down, so its replicas may lead."""
        return not self.fenced and not self.in_controlled_shutdown


class ControllerRegistration(NamedTuple):
    """A controller as registered (KIP-919)."""

    id: BrokerId
    incarnation_id: Uuid
    zk_migration_ready: bool
    endpoints: tuple[Endpoint, ...]
    supported_features: Map[str, tuple[int, int]]


class Topic(NamedTuple):
    """A topic and its partitions, numbered from 0 without gaps."""

    name: str
    id: Uuid
    partitions: Map[int, PartitionState]

    def in_order(self) -> Iterator[tuple[int, PartitionState]]:
        """Partitions by ascending number."""
        partitions = self.partitions
        for index in sorted(partitions):
            yield index, partitions[index]


class ScramCredential(NamedTuple):
    """The salted and hashed SCRAM secret of a user."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class DelegationToken(NamedTuple):
    """A delegation token (KIP-48); times in milliseconds since 1970, principals as `Type:name`."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str

    def has_expired(self, wall_ms: int) -> bool:
        """Whether it is past its expiry, or cannot be renewed any more."""
        return self.max_timestamp < wall_ms or self.expiration_timestamp < wall_ms

    def is_of(self, principal: str) -> bool:
        """Whether `principal` is its owner, its requester or a renewer (`ownerOrRenewer`)."""
        return principal in (self.owner, self.requester) or principal in self.renewers


class ClusterImage(NamedTuple):
    """The contents of the metadata log up to `offset`, inclusive."""

    features: Map[str, int]
    brokers: Map[int, BrokerRegistration]
    controllers: Map[int, ControllerRegistration]
    topics_by_id: Map[Uuid, Topic]
    topics_by_name: Map[str, Uuid]
    configs: Map[tuple[int, str], Map[str, str]]
    next_producer_id: int
    acls: Map[Uuid, Acl]
    scram: Map[tuple[int, str], ScramCredential]
    quotas: Map[QuotaEntity, Map[str, float]]
    delegation_tokens: Map[str, DelegationToken]
    migration: int
    """A number of `MigrationState`."""
    offset: Offset
    epoch: LeaderEpoch

    def at(self, offset: int, epoch: int) -> "ClusterImage":
        """The same content at another offset and epoch."""
        return self._replace(offset=Offset(offset), epoch=LeaderEpoch(epoch))

    def same_content(self, other: "ClusterImage") -> bool:
        """Compare two images without their offsets and epochs."""
        return self[:-2] == other[:-2]

    @property
    def is_migrating(self) -> bool:
        """Whether a migration from ZooKeeper has not been finalized."""
        return self.migration in (MigrationState.MIGRATION, MigrationState.PRE_MIGRATION)

    @property
    def metadata_version(self) -> int:
        """Finalized metadata.version; 0 before the first one is written."""
        return self.features.get("metadata.version", 0)

    def topic(self, name: str) -> Topic | None:
        """The topic of that name."""
        topic_id = self.topics_by_name.get(name)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def partition(self, topic_id: Uuid, index: int) -> PartitionState | None:
        """A partition by topic id and number."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def topics_in_order(self) -> Iterator[Topic]:
        """Topics by name."""
        for name in sorted(self.topics_by_name):
            yield self.topics_by_id[self.topics_by_name[name]]

    def config(self, resource_type: int, name: str) -> Map[str, str]:
        """The configs set on a resource; empty if none are."""
        return self.configs.get((resource_type, name), _NO_CONFIG)


_NO_CONFIG: Map[str, str] = Map()

EMPTY_IMAGE = ClusterImage(
    features=Map(),
    brokers=Map(),
    controllers=Map(),
    topics_by_id=Map(),
    topics_by_name=Map(),
    configs=Map(),
    next_producer_id=-1,
    acls=Map(),
    scram=Map(),
    quotas=Map(),
    delegation_tokens=Map(),
    migration=MigrationState.NONE,
    offset=Offset(-1),
    epoch=LeaderEpoch(-1),
)
"""The cluster before its first record."""

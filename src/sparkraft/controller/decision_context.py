"""The context of a decision: an image, the controller's settings, sessions and random numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkraft.base.env import Entropy
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.controller.placement import UsableBroker
from sparkraft.controller.sessions import Sessions
from sparkraft.metadata import features
from sparkraft.metadata.apply import apply
from sparkraft.metadata.configs import ConfigValue, parse_value
from sparkraft.metadata.configs.topic import (
    TOPIC_CONFIGS,
    TOPIC_SYNONYMS,
    synonym_value,
)
from sparkraft.metadata.image import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    BrokerRegistration,
    ClusterImage,
    ResourceType,
    Topic,
)
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.messages.metadata_records import PartitionChangeRecord
from sparkraft.security.delegation_token import TokenIndex, TokenKey

OFFLINE_DIRECTORY = "its log directory is offline"
"""Why a replica on a live broker may not lead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Settings of one controller.

    Attributes:
        cluster_id: registrations with another cluster id are rejected.
        node_id: node id of this controller.
        voter_ids: voters of the quorum; each must support a feature level to be finalized.
        is_broker: whether this process is also the broker `node_id`.
        static_configs: configs set in this node's file, by key.
        session_timeout_ms: a broker that sends no heartbeat for longer is fenced.
        default_partitions: of a topic created with -1 partitions.
        default_replication_factor: of a topic created with replication factor -1.
        delete_topics: `delete.topic.enable`.
        elections_per_balance_max: maximum number of elections per periodic check.
        migration_enabled: `zookeeper.metadata.migration.enable`.
        inter_broker_listener: a migrating broker must have it, for the controller's requests.
        is_zookeeper: whether the cluster is in ZooKeeper mode, without a quorum.
        token_key: `delegation.token.secret.key`; None: delegation tokens are off.
        token_lifetime_ms_max: `delegation.token.max.lifetime.ms`.
        token_expiry_ms: `delegation.token.expiry.time.ms`.
    """

    cluster_id: str
    node_id: int
    voter_ids: tuple[int, ...] = ()
    is_broker: bool = False
    static_configs: Mapping[str, str] = field(default_factory=dict)
    session_timeout_ms: int = 9000
    default_partitions: int = 1
    default_replication_factor: int = 1
    delete_topics: bool = True
    elections_per_balance_max: int = 1000
    migration_enabled: bool = False
    inter_broker_listener: str = "PLAINTEXT"
    is_zookeeper: bool = False
    token_key: TokenKey | None = None
    token_lifetime_ms_max: int = 7 * 86_400_000
    token_expiry_ms: int = 86_400_000


class DecisionContext:
    """An image, and queries of decisions on it."""

    __slots__ = ("_settings", "config", "entropy", "image", "sessions", "tokens")

    def __init__(
        self,
        image: ClusterImage,
        config: ControllerConfig,
        entropy: Entropy,
        sessions: Sessions,
        tokens: TokenIndex | None = None,
    ) -> None:
        """Decide on `image`; `tokens`: finds delegation tokens, None if they are off."""
        self.image = image
        self.config = config
        self.entropy = entropy
        self.sessions = sessions
        self.tokens = tokens
        # A decision may look up the same config for thousands of partitions of a topic.
        self._settings: dict[tuple[str, str], ConfigValue] = {}

    def after(self, record: Any) -> "DecisionContext":
        """The context after one more record of the same decision."""
        later = DecisionContext(
            apply(self.image, record), self.config, self.entropy, self.sessions, self.tokens
        )
        if type(record) is PartitionChangeRecord:
            later._settings = self._settings  # The record changes no config.
        return later

    @property
    def metadata_level(self) -> int:
        """Finalized metadata.version."""
        return self.image.metadata_version

    @property
    def is_migrating(self) -> bool:
        """Whether brokers in ZooKeeper mode may belong to the cluster (KIP-866)."""
        return self.config.migration_enabled and self.image.is_migrating

    @property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are enabled (KIP-966)."""
        return features.elr_enabled(self.image.features)

    @property
    def directories_supported(self) -> bool:
        """Whether the metadata stores log directories of replicas (KIP-858)."""
        return self.metadata_level >= features.DIRECTORIES_LEVEL

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered, unfenced and not shutting down."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active

    def check_broker_epoch(self, broker_id: int, epoch: int) -> BrokerRegistration:
        """Return a broker's registration if `epoch` is its current broker epoch.

        Raises:
            KafkaError: STALE_BROKER_EPOCH.
        """
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            wrong = f"No broker registration found for broker id {broker_id}"
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, wrong)
        if broker.epoch != epoch:
            wrong = f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, wrong)
        return broker

    def usable_brokers(self) -> list[UsableBroker]:
        """Brokers that may get replicas: not shutting down, and some directory is not cordoned."""
        usable = []
        for broker_id in sorted(self.image.brokers):
            broker = self.image.brokers[broker_id]
            cordoned = broker.cordoned_directories or ()
            if broker.directories and all(d in cordoned for d in broker.directories):
                continue
            if not broker.in_controlled_shutdown:
                usable.append(UsableBroker(broker_id, broker.rack, broker.fenced))
        return usable

    def default_directory(self, broker_id: int) -> Uuid:
        """Log directory of a new replica: the broker's only one, or else UNASSIGNED."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return DIRECTORY_UNASSIGNED
        if not broker.directories:
            return DIRECTORY_MIGRATING
        if len(broker.directories) == 1:
            return broker.directories[0]
        return DIRECTORY_UNASSIGNED

    def why_not_leader(
        self,
        partition: PartitionState,
        *,
        excluded: Mapping[int, str] | None = None,
    ) -> Callable[[int], str | None]:
        """Return a function that gives the reason why a replica is not live, or None if it is.

        Args:
            partition: the replica's partition; its log directories are checked.
            excluded: replicas that this decision removes, each with the reason.
        """
        return why_not_leader(self.image, partition, excluded or {})

    def topic_setting(self, topic: str, name: str) -> ConfigValue:
        """The effective value of a topic config.

        Precedence: topic, this node, cluster default, this node's file, Kafka's default.
        """
        if (topic, name) not in self._settings:
            self._settings[topic, name] = self._find_setting(topic, name)
        return self._settings[topic, name]

    def _find_setting(self, topic: str, name: str) -> ConfigValue:
        own = self.image.config(ResourceType.TOPIC, topic).get(name)
        if own is not None:
            return parse_value(TOPIC_CONFIGS[name], own)
        node = self.image.config(ResourceType.BROKER, str(self.config.node_id))
        context = self.image.config(ResourceType.BROKER, "")
        for source in (node, context, self.config.static_configs):
            for synonym in TOPIC_SYNONYMS.get(name, ()):
                text = source.get(synonym.name)
                if text is not None:
                    return synonym_value(name, synonym, text)
        return TOPIC_CONFIGS[name].default

    def min_isr(self, topic: Topic) -> int:
        """Effective min.insync.replicas: at most the number of replicas."""
        wanted = self.topic_setting(topic.name, "min.insync.replicas")
        assert isinstance(wanted, int)
        first = topic.partitions.get(0)
        return wanted if first is None else min(wanted, len(first.replicas))

    def unclean_elections_allowed(self, topic: str) -> bool:
        """Whether `unclean.leader.election.enable` is set for the topic."""
        return self.topic_setting(topic, "unclean.leader.election.enable") is True


def why_not_leader(
    image: ClusterImage, partition: PartitionState, excluded: Mapping[int, str]
) -> Callable[[int], str | None]:
    """See `DecisionContext.why_not_leader`; works on images of the past, too."""

    def why_not(replica: int) -> str | None:
        if replica in excluded:
            return excluded[replica]
        broker = image.brokers.get(replica)
        if broker is None:
            return "not registered"
        if not broker.active:
            return "fenced" if broker.fenced else "shutting down"
        if replica in partition.replicas and not broker.has_online_directory(
            partition.directory(replica)
        ):
            return OFFLINE_DIRECTORY
        return None

    return why_not

"""What the deciding functions see: an image, the controller's own settings, and dice."""

from collections.abc import Callable, Iterator, Mapping
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

OFFLINE_DIRECTORY = "its log directory is offline"
"""What keeps a replica from leading whose broker is alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Settings of one controller.

    Attributes:
        cluster_id: of the cluster; registrations naming another are refused.
        node_id: of this controller.
        voter_ids: of the quorum; each must support a feature level before it is finalized.
        is_broker: whether this process is also the broker `node_id`.
        static_configs: what the node's file sets, by key.
        session_timeout_ms: a broker without heartbeat for longer is fenced.
        default_partitions: of a topic created with -1 partitions.
        default_replication_factor: of a topic created with replication factor -1.
        delete_topics: `delete.topic.enable`.
        elections_per_balance_max: elections of one periodic check.
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


class DecisionContext:
    """An image with the questions that decisions ask of it."""

    __slots__ = ("_settings", "config", "entropy", "image", "sessions")

    def __init__(
        self,
        image: ClusterImage,
        config: ControllerConfig,
        entropy: Entropy,
        sessions: Sessions,
    ) -> None:
        self.image = image
        self.config = config
        self.entropy = entropy
        self.sessions = sessions
        # A decision may ask the same of each of a topic's thousands of partitions.
        self._settings: dict[tuple[str, str], ConfigValue] = {}

    def after(self, record: Any) -> "DecisionContext":
        """The cluster as one more record of the same decision leaves it."""
        later = DecisionContext(apply(self.image, record), self.config, self.entropy, self.sessions)
        if type(record) is PartitionChangeRecord:
            later._settings = self._settings  # It touches no config.
        return later

    @property
    def metadata_level(self) -> int:
        """Finalized metadata.version."""
        return self.image.metadata_version

    @property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are kept."""
        return features.elr_enabled(self.image.features)

    @property
    def directories_supported(self) -> bool:
        """Whether replicas name their log directory (KIP-858)."""
        return self.metadata_level >= features.DIRECTORIES_LEVEL

    def is_active(self, broker_id: int) -> bool:
        """Registered, not fenced, not shutting down."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active

    def check_broker_epoch(self, broker_id: int, epoch: int) -> BrokerRegistration:
        """The registration of a broker that names its right epoch.

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
        """Brokers that placement may choose: those with a directory that is not cordoned."""
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
        """Where a new replica goes: the broker's only directory, or its own choice later."""
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
        """For each replica what keeps it from leading, apart from being out of sync.

        Args:
            partition: whose directories count.
            excluded: replicas that leave with this very decision, and why.
        """
        return why_not_leader(self.image, partition, excluded or {})

    def topic_setting(self, topic: str, name: str) -> ConfigValue:
        """A topic key's value in force: topic, this node, cluster, the file, the default."""
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
        """How many in-sync replicas acks=all needs: no more than there are replicas."""
        wanted = self.topic_setting(topic.name, "min.insync.replicas")
        assert isinstance(wanted, int)
        first = topic.partitions.get(0)
        return wanted if first is None else min(wanted, len(first.replicas))

    def unclean_elections_allowed(self, topic: str) -> bool:
        """`unclean.leader.election.enable` of a topic."""
        return self.topic_setting(topic, "unclean.leader.election.enable") is True

    def partitions(self) -> Iterator[tuple[Topic, int, PartitionState]]:
        """Every partition, by topic name and number."""
        for topic in self.image.topics_in_order():
            for index, partition in topic.in_order():
                yield topic, index, partition

    def has_leaderships(self, broker_id: int) -> bool:
        """Whether a broker leads anything."""
        return any(partition.leader == broker_id for _, _, partition in self.partitions())


def why_not_leader(
    image: ClusterImage, partition: PartitionState, excluded: Mapping[int, str]
) -> Callable[[int], str | None]:
    """See `DecisionContext.why_not_leader`; for an image of the past, too."""

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

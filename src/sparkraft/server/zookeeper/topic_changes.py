"""CreateTopics, DeleteTopics and CreatePartitions while this node is the ZooKeeper controller.

The decisions are those of KRaft mode (`controller.topics`), on this broker's image. Their records
become znodes, as Kafka 3.9 writes them (`ZkAdminManager`, `AdminZkClient`):

    TopicRecord, its ConfigRecords, PartitionRecords   /config/topics/T, then /brokers/topics/T
    RemoveTopicRecord                                  /admin/delete_topics/T
    PartitionRecords of a known topic                  /brokers/topics/T with more partitions

The watches of the controller start the rest. The response leaves when this broker's image shows the
leaders, or that the topic is gone; after the request's timeout the result is REQUEST_TIMED_OUT, and
the change continues.

Differences from Kafka 3.9: replicas are placed by the rules of KRaft mode, and manual assignments
to brokers that are not registered are refused.
"""

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from immutables import Map

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.placeholder_ids import is_same_topic, wire_id
from sparkraft.controller import topics
from sparkraft.controller.decision_context import ControllerConfig, DecisionContext
from sparkraft.controller.sessions import Sessions
from sparkraft.metadata.partition_state import NO_LEADER
from sparkraft.metadata.topic_names import unify_collision_chars
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages.metadata_records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from sparkraft.server.controller.submission import set_error
from sparkraft.server.zookeeper.config_writes import write_config
from sparkraft.zookeeper.errors import BadVersionError, NodeExistsError, NoNodeError
from sparkraft.zookeeper.requests import Create, Exists, GetData, SetData
from sparkraft.zookeeper.znodes.topics import (
    TOPICS,
    Assignment,
    Topic,
    decode_topic,
    encode_topic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.controller.call import Call
    from sparkraft.controller.decision import VersionedRecord
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.protocol.messages import k20_delete_topics as k20
    from sparkraft.protocol.messages import k37_create_partitions as k37
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.server.zookeeper.images import ZooKeeperImages
    from sparkraft.server.zookeeper.session import EnsembleSession
    from sparkraft.zookeeper.client import ZooKeeperClient

log = logging.getLogger(__name__)

DELETE_TOPICS = "/admin/delete_topics"


class NewTopic(NamedTuple):
    """A topic to be created."""

    name: str
    id: Uuid | None
    """None before inter.broker.protocol.version 2.8."""
    configs: dict[str, str]
    replicas: dict[int, tuple[int, ...]]


class TopicChanges:
    """Serves the requests; see the module docstring."""

    def __init__(
        self,
        config: "NodeConfig",
        env: "Env",
        session: "EnsembleSession",
        images: "ZooKeeperImages",
        *,
        cluster_id: str,
        has_topic_ids: bool,
    ) -> None:
        self._has_topic_ids = has_topic_ids
        self._env = env
        self._session = session
        self._images = images
        self._config = ControllerConfig(
            cluster_id=cluster_id,
            node_id=config.node_id,
            static_configs=config.properties,
            default_partitions=config.number("num.partitions"),
            default_replication_factor=config.number("default.replication.factor"),
            delete_topics=config.flag("delete.topic.enable"),
            is_zookeeper=True,
        )

    @property
    def context(self) -> DecisionContext:
        """For decisions on the present image."""
        sessions = Sessions(self._config.session_timeout_ms)
        return DecisionContext(self._images.image, self._config, self._env.entropy, sessions)

    # ---- CreateTopics

    async def create_topics(
        self, call: "Call[k19.CreateTopicsRequest]"
    ) -> k19.CreateTopicsResponse:
        """Create topics; a result for each."""
        turn = self._env.turn(self._env.work_max.partitions)
        decision = await turn.carry_out(topics.create_topics(self.context, call))
        failures: dict[str, KafkaError] = {}
        created: list[NewTopic] = []
        client = self._session.client
        for decided in _new_topics(decision.records):
            topic = decided if self._has_topic_ids else decided._replace(id=None)
            try:
                _check_collision(topic.name, created)
                await _create(client, topic)
            except KafkaError as error:
                failures[topic.name] = error
            else:
                created.append(topic)
        wait_ms = self._remaining_ms(call)
        await self._images.wait_for(lambda image: not _leaderless(image, created), wait_ms)
        for topic in _leaderless(self._images.image, created):
            failures[topic.name] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        if not self._has_topic_ids or call.request.validate_only:
            for each in decision.response.topics:
                each.topic_id = Uuid.ZERO
        return k19.CreateTopicsResponse(
            topics=[
                _refused(each.name, failures[each.name]) if each.name in failures else each
                for each in decision.response.topics
            ]
        )

    # ---- DeleteTopics

    async def delete_topics(
        self, call: "Call[k20.DeleteTopicsRequest]"
    ) -> "k20.DeleteTopicsResponse":
        """Delete topics; a result for each."""
        image = self._images.image
        decision = topics.delete_topics(self.context, call)
        response: k20.DeleteTopicsResponse = decision.response
        removed = [
            Uuid(record.topic_id)
            for record, _ in decision.records
            if isinstance(record, RemoveTopicRecord)
        ]
        names = [image.topics_by_id[topic_id].name for topic_id in removed]
        client = self._session.client
        for name in names:
            try:
                await client.submit_until_connected(Create(path=f"{DELETE_TOPICS}/{name}"))
            except NodeExistsError:
                continue  # queued already: wait for it, as Kafka does
        await self._images.wait_for(
            lambda image: not any(each in image.topics_by_id for each in removed),
            self._remaining_ms(call),
        )
        left = self._images.image.topics_by_id
        by_id = {each.topic_id for each in call.request.topics} - {Uuid.ZERO}
        for result in response.responses:
            if not result.error_code and Uuid(result.topic_id) in left:
                set_error(result, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            # As in Kafka 3.9, a result has the id that the request has.
            is_named = result.topic_id not in by_id
            result.topic_id = Uuid.ZERO if is_named else wire_id(Uuid(result.topic_id))
        return response

    # ---- CreatePartitions

    async def create_partitions(
        self, call: "Call[k37.CreatePartitionsRequest]"
    ) -> "k37.CreatePartitionsResponse":
        """Add partitions to topics; a result for each."""
        image = self._images.image
        turn = self._env.turn(self._env.work_max.partitions)
        decision = await turn.carry_out(topics.create_partitions(self.context, call))
        response: k37.CreatePartitionsResponse = decision.response
        results = {each.name: each for each in response.results}
        grown: list[NewTopic] = []
        client = self._session.client
        for topic_id, replicas in _replicas_in(decision.records).items():
            topic = NewTopic(image.topics_by_id[topic_id].name, topic_id, {}, replicas)
            try:
                await _add_partitions(client, topic)
            except KafkaError as error:
                set_error(results[topic.name], error)
            else:
                grown.append(topic)
        wait_ms = self._remaining_ms(call)
        await self._images.wait_for(lambda image: not _leaderless(image, grown), wait_ms)
        for topic in _leaderless(self._images.image, grown):
            set_error(results[topic.name], KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        return response

    def _remaining_ms(self, call: "Call[Any]") -> int:
        """The rest of the request's timeout; `call.now` is when it arrived."""
        timeout_ms: int = call.request.timeout_ms
        return timeout_ms - (self._env.clock.mono_ms() - call.now)


def _replicas_in(
    records: "Iterable[VersionedRecord]",
) -> dict[Uuid, dict[int, tuple[int, ...]]]:
    """Topic id → partition → replicas."""
    found: dict[Uuid, dict[int, tuple[int, ...]]] = {}
    for record, _ in records:
        if isinstance(record, PartitionRecord):
            of_topic = found.setdefault(Uuid(record.topic_id), {})
            of_topic[record.partition_id] = tuple(record.replicas)
    return found


def _new_topics(records: "tuple[VersionedRecord, ...]") -> list[NewTopic]:
    replicas = _replicas_in(records)
    configs: dict[str, dict[str, str]] = {}
    for record, _ in records:
        if isinstance(record, ConfigRecord) and record.value is not None:
            configs.setdefault(record.resource_name, {})[record.name] = record.value
    return [
        NewTopic(
            record.name,
            Uuid(record.topic_id),
            configs.get(record.name, {}),
            replicas[Uuid(record.topic_id)],
        )
        for record, _ in records
        if isinstance(record, TopicRecord)
    ]


def _refused(name: str, error: KafkaError) -> k19.CreatableTopicResult:
    return k19.CreatableTopicResult(
        name=name, error_code=error.code, error_message=error.detail or None
    )


def _check_collision(name: str, created: "Iterable[NewTopic]") -> None:
    """Compare a name with those that the same request has created, which KRaft mode does not.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION: `.` and `_` are the same in the names of metrics.
    """
    unified = unify_collision_chars(name)
    for other in created:
        if unify_collision_chars(other.name) == unified:
            wrong = f"Topic '{name}' collides with existing topics: {other.name}"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)


async def _create(client: "ZooKeeperClient", topic: NewTopic) -> None:
    """Write the znodes of a topic.

    Raises:
        KafkaError: TOPIC_ALREADY_EXISTS, also while the topic is being deleted.
    """
    path = f"{TOPICS}/{topic.name}"
    if await _exists(client, f"{DELETE_TOPICS}/{topic.name}"):
        wrong = f"Topic '{topic.name}' is marked for deletion."
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, wrong)
    if await _exists(client, path):
        raise _already_exists(topic.name)
    await write_config(client, f"topics/{topic.name}", topic.configs)
    assignments = {at: Assignment(replicas) for at, replicas in sorted(topic.replicas.items())}
    data = encode_topic(Topic(topic.id, assignments))
    try:
        await client.submit_until_connected(Create(path=path, data=data))
    except NodeExistsError:
        # Another broker was faster, or the reply to our first attempt was lost.
        found, _ = await client.submit_until_connected(GetData(path=path))
        if topic.id is None or decode_topic(path, found).id != topic.id:
            raise _already_exists(topic.name) from None
    log.debug("Created topic %s with %d partitions", topic.name, len(assignments))


def _already_exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


async def _exists(client: "ZooKeeperClient", path: str) -> bool:
    try:
        await client.submit_until_connected(Exists(path=path))
    except NoNodeError:
        return False
    return True


async def _add_partitions(client: "ZooKeeperClient", topic: NewTopic) -> None:
    """Write a topic's assignments with more partitions.

    Raises:
        KafkaError: the topic does not exist, or is being reassigned.
    """
    path = f"{TOPICS}/{topic.name}"
    while True:
        try:
            data, stat = await client.submit_until_connected(GetData(path=path))
        except NoNodeError:
            wrong = f"The topic '{topic.name}' does not exist."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wrong) from None
        present = decode_topic(path, data)
        if any(each.adding or each.removing for each in present.partitions.values()):
            wrong = f"A partition reassignment is in progress for the topic '{topic.name}'."
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, wrong)
        added = {at: Assignment(replicas) for at, replicas in topic.replicas.items()}
        changed = present._replace(partitions={**present.partitions, **added})
        if changed == present:
            return  # the reply to our first attempt was lost
        if added.keys() & present.partitions.keys():
            wrong = f"The partitions of topic '{topic.name}' have changed."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, wrong)
        write = SetData(path=path, data=encode_topic(changed), version=stat.version)
        try:
            await client.submit_until_connected(write)
        except BadVersionError:
            continue
        return


def _leaderless(image: "ClusterImage", wanted: "Iterable[NewTopic]") -> list[NewTopic]:
    """Those of the topics that have a partition without a leader in the image."""
    return [topic for topic in wanted if not _has_leaders(image, topic)]


def _has_leaders(image: "ClusterImage", topic: NewTopic) -> bool:
    found = image.topic(topic.name)
    if found is not None and topic.id is not None and not is_same_topic(found.id, topic.id):
        found = None
    partitions: Mapping[int, Any] = Map() if found is None else found.partitions
    return all(at in partitions and partitions[at].leader != NO_LEADER for at in topic.replicas)

"""Consumer groups without a network: a shard with a log in memory and KIP-848 clients.

`check` names the invariant it finds broken: K1 exclusive, K2 epochs ordered, K3 target covers,
K4 subscribed only, K7 balanced, K9 epoch raised for a cause only, K11 holders exact, K12 replay.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from immutables import Map

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset, Uuid
from sparkraft.base.steps import complete
from sparkraft.coordinator.group.config import Bounded, ConsumerConfig, GroupConfig
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.consumer_regex import MatchingTopics, matching
from sparkraft.coordinator.group.consumer_requests import check_heartbeat
from sparkraft.coordinator.group.decision import Peer
from sparkraft.coordinator.group.records import decode_record, encode_record
from sparkraft.coordinator.group.shard import GroupShard
from sparkraft.coordinator.runtime import Decision, Instant, MetadataDelta
from sparkraft.coordinator.steps import Deciding
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage, Topic
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.coordinator.world import WALL_START_MS, CountingEntropy

AT_ONCE = ConsumerConfig(assignment_interval_ms=Bounded(value=0, lowest=0, highest=15_000))
"""Every change is assigned by the next heartbeat."""


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"\0"))


def with_topic(image: ClusterImage, name: str, partitions: int) -> ClusterImage:
    """The image with a topic, or with more partitions of it."""
    states = {
        index: PartitionState((1,), (1,), (), (), 1, 0, 0, (Uuid.ZERO,), (), (), 0)
        for index in range(partitions)
    }
    topic = Topic(name, topic_id(name), Map(states))
    return image._replace(
        topics_by_id=image.topics_by_id.set(topic.id, topic),
        topics_by_name=image.topics_by_name.set(name, topic.id),
    )


def without_topic(image: ClusterImage, name: str) -> ClusterImage:
    return image._replace(
        topics_by_id=image.topics_by_id.delete(topic_id(name)),
        topics_by_name=image.topics_by_name.delete(name),
    )


@dataclass
class Client:
    """What a consumer knows of itself.

    Attributes:
        owned: partitions it reads, also those it has still to give up.
        wanted: its last assignment.
        sends_all: a response was lost, so the next heartbeat repeats everything.
    """

    member_id: str
    topics: tuple[str, ...] = ("t",)
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: dict[Uuid, set[int]] = field(default_factory=dict)
    wanted: dict[Uuid, set[int]] = field(default_factory=dict)
    sends_all: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    @property
    def is_member(self) -> bool:
        return self.epoch > 0

    def settle(self) -> None:
        """Give up and take over what the last assignment says."""
        self.owned = {topic: set(partitions) for topic, partitions in self.wanted.items()}

    def reset(self) -> None:
        self.epoch, self.owned, self.wanted, self.sends_all = 0, {}, {}, False


class ConsumerWorld:
    """See the module docstring."""

    def __init__(self, config: ConsumerConfig = AT_ONCE, **topics: int) -> None:
        self.config = GroupConfig(consumer=config)
        self.entropy = CountingEntropy()
        self.now_ms = 1_000
        self.wall_offset_ms = 0
        """Sets the wall clock without the monotonic one."""
        self.log: list[tuple[bytes, bytes | None]] = []
        self.image = EMPTY_IMAGE
        for name, partitions in topics.items():
            self.image = with_topic(self.image, name, partitions)
        self.shard = GroupShard(self.config, self.entropy)
        self.shard.loaded(self.image, self.now)
        self.fail_next: ErrorCode | None = None
        self.hold = False
        """Keep appends uncommitted until `commit_held`."""
        self._uncommitted: list[Decision[Any, Any]] = []
        self.hidden: set[str] = set()
        """Topics that no client may describe."""
        self._reply_to = 0
        self._parked: dict[int, Any] = {}
        self.effects: list[Any] = []
        """Not executed yet."""

    @property
    def now(self) -> Instant:
        wall_ms = WALL_START_MS + self.now_ms + self.wall_offset_ms
        return Instant(Millis(self.now_ms), Millis(wall_ms))

    @property
    def group(self) -> ConsumerGroup:
        group = self.shard.group("g")
        assert isinstance(group, ConsumerGroup)
        return group

    # What the runtime does

    def do(self, deciding: Deciding[Decision[Any, Any]]) -> Any:
        decision = complete(deciding) if isinstance(deciding, Generator) else deciding
        if decision.records and self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            if decision.append_callback is not None:
                self.shard.on_append_completed(decision.append_callback, error, self.now)
            raise KafkaError(error)
        base = len(self.log)
        self.log += [encode_record(record) for record in decision.records]
        for at, record in enumerate(decision.records if decision.replay else ()):
            self.shard.replay(Offset(base + at), record)
        if self.hold:
            self._uncommitted.append(decision)
        else:
            self._commit(decision)
        self.effects += decision.effects
        return decision.response

    def _commit(self, decision: Decision[Any, Any]) -> None:
        if decision.append_callback is not None:
            self.do(self.shard.on_append_completed(decision.append_callback, None, self.now))

    def commit_held(self) -> None:
        """Commit what `hold` has kept."""
        held, self._uncommitted, self.hold = self._uncommitted, [], False
        for decision in held:
            self._commit(decision)
        self.send_replies()

    def ask(self, decide: Callable[[int], Deciding[Decision[Any, Any]]], on_reply: Any) -> None:
        """Send a request that may be parked; `on_reply` gets its response."""
        self._reply_to += 1
        self._parked[self._reply_to] = on_reply
        self.do(decide(self._reply_to))
        self.send_replies()

    def send_replies(self) -> None:
        while replies := self.shard.take_replies():
            for reply_to, response in replies:
                self._parked.pop(reply_to)(response)

    def resolve(self) -> None:
        """Execute the resolutions of regular expressions."""
        effects, self.effects = self.effects, []
        for effect in effects:
            names = sorted(self.image.topics_by_name)
            topics = {
                pattern: frozenset(filter(effect.may_describe, matching(pattern, names)))
                for pattern in effect.patterns
            }
            found = MatchingTopics(7, topics)
            self.do(self.shard.on_effect_completed(effect, found, self.now))

    def set_image(self, image: ClusterImage) -> None:
        before, self.image = self.image, image
        self.do(self.shard.on_image(MetadataDelta(before, image, None), self.now))

    def pass_time(self, ms: int) -> None:
        end = self.now_ms + ms
        while (wake_at := self.shard.wake_at) is not None and wake_at <= end:
            self.now_ms = max(self.now_ms, int(wake_at))
            for decision in self.shard.on_timers(self.now):
                self.do(decision)
            self.send_replies()
        self.now_ms = end

    def reload(self) -> None:
        """Another broker takes over."""
        self.shard.unload(self.now)
        self.shard = self.replayed()
        self.shard.loaded(self.image, self.now)

    def replayed(self) -> GroupShard:
        shard = GroupShard(self.config, self.entropy)
        for offset, (key, value) in enumerate(self.log):
            record = decode_record(key, value)
            assert record is not None
            shard.replay(Offset(offset), record)
        return shard

    # What clients do

    def send(
        self, request: ConsumerGroupHeartbeatRequest, version: int = 1
    ) -> ConsumerGroupHeartbeatResponse:
        """The response; raises KafkaError."""
        check_heartbeat(request, version, self.config.consumer.assignors)
        peer = Peer(client_id="client", client_host="/10.0.0.1", version=version)
        response = self.do(
            self.shard.handle_consumer_heartbeat(
                request, peer, lambda topic: topic not in self.hidden, self.now
            )
        )
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def beat(self, client: Client, *, full: bool = False) -> ErrorCode:
        """Send a heartbeat as librdkafka does; a fenced member starts again at epoch 0."""
        joins = client.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=client.member_id,
            member_epoch=client.epoch,
            instance_id=client.instance_id,
            topic_partitions=[
                TopicPartitions(topic_id=topic, partitions=sorted(partitions))
                for topic, partitions in sorted(client.owned.items())
            ],
        )
        if joins or full or client.sends_all:
            request.rebalance_timeout_ms = 20_000
            request.subscribed_topic_names = list(client.topics)
            request.subscribed_topic_regex = client.regex
            request.server_assignor = client.assignor
        try:
            response = self.send(request)
        except KafkaError as error:
            client.last_error = error.code
            if error.code in {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}:
                client.reset()
            return error.code
        client.last_error = ErrorCode.NONE
        client.sends_all = False
        client.epoch = response.member_epoch
        if response.assignment is not None:
            client.wanted = {
                Uuid(one.topic_id): set(one.partitions)
                for one in response.assignment.topic_partitions
            }
        return ErrorCode.NONE

    def leave(self, client: Client, epoch: int = -1) -> ErrorCode:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=client.member_id,
            instance_id=client.instance_id,
            member_epoch=epoch,
        )
        try:
            self.send(request)
        except KafkaError as error:
            return error.code
        finally:
            client.reset()
        return ErrorCode.NONE

    def converge(self, *clients: Client, rounds: int = 8) -> None:
        """Send heartbeats of all clients; each applies its assignment at once."""
        for _ in range(rounds):
            for client in clients:
                self.beat(client)
                client.settle()

    def commit(
        self,
        client: Client,
        partition: int,
        *,
        epoch: int | None = None,
        version: int = 10,
        metadata: str = "",
    ) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=client.epoch if epoch is None else epoch,
            member_id=client.member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    topic_id=topic_id("t"),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=7,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )
        peer = Peer(client_id="client", client_host="/10.0.0.1", version=version)
        try:
            response = self.do(self.shard.handle_offset_commit(request, peer, self.now))
        except KafkaError as error:
            return error.code
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def commit_in_transaction(
        self,
        client: Client,
        partition: int,
        *,
        epoch: int | None = None,
        metadata: str = "",
    ) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=1,
            producer_epoch=0,
            generation_id=client.epoch if epoch is None else epoch,
            member_id=client.member_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=7,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )
        try:
            response = self.do(
                self.shard.handle_txn_offset_commit(request, {"t": topic_id("t")}, self.now)
            )
        except KafkaError as error:
            return error.code
        return ErrorCode(response.topics[0].partitions[0].error_code)

    # Invariants

    def check(self, *clients: Client) -> None:
        """Raise AssertionError, which names the invariant."""
        if "g" not in self.shard.group_ids():
            return
        group = self.group
        held: dict[tuple[Uuid, int], str] = {}
        for member in group.members():
            assert group.group_epoch >= group.target_epoch >= member.member_epoch, "K2"
            for partitions in (member.assigned, member.pending_revocation):
                for topic, epochs in partitions.items():
                    for partition in epochs:
                        owner = held.setdefault((topic, partition), member.member_id)
                        assert owner == member.member_id, "K1"
                        assert group.holder(topic, partition) == owner, "K11"
        assert group.member_bytes == sum(member.bytes for member in group.members())
        seen: dict[tuple[Uuid, int], str] = {}
        for client in clients:
            if client.member_id in group:
                for topic, owned in client.owned.items():
                    for partition in owned:
                        owner = seen.setdefault((topic, partition), client.member_id)
                        assert owner == client.member_id, "K1 by the clients' eyes"
        self._check_stable(group)
        again = self.replayed()
        assert "g" in again.group_ids(), "K12"
        self._check_same(group, again.group("g"))

    def _check_stable(self, group: ConsumerGroup) -> None:
        if group.state.value != "Stable" or group.needs_refresh:
            return
        wanted: set[tuple[Uuid, int]] = set()
        for name in complete(group.subscribed_topics()):
            topic = self.image.topic(name)
            if topic is not None:
                wanted |= {(topic.id, index) for index in topic.partitions}
        owned: list[tuple[Uuid, int]] = []
        for member in group.members():
            known = map(self.image.topic, group.topics_of(member))
            topics = {topic.id for topic in known if topic is not None}
            for topic, epochs in member.assigned.items():
                assert topic in topics, "K4"
                owned += [(topic, partition) for partition in epochs]
        assert len(set(owned)) == len(owned), "K1"
        assert set(owned) == wanted, "K3"

    @staticmethod
    def _check_same(live: ConsumerGroup, loaded: Any) -> None:
        assert isinstance(loaded, ConsumerGroup), "K12"
        assert list(live.members()) == list(loaded.members()), "K12"
        assert live.targets == loaded.targets, "K12"
        assert live.regexes == loaded.regexes, "K12"
        assert (live.group_epoch, live.target_epoch, live.metadata_hash, live.target_at_ms) == (
            loaded.group_epoch,
            loaded.target_epoch,
            loaded.metadata_hash,
            loaded.target_at_ms,
        ), "K12"

"""A broker around `GroupDriver`: a log in memory, a disk that syncs when told, and one topic."""

import asyncio
from types import SimpleNamespace
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.records.batch import parse_header, patch_in_place
from sparkraft.server.api.registry import RequestContext, load_api
from sparkraft.server.config import NodeConfig
from sparkraft.server.coordinator.group_driver import GROUP_METADATA_TOPIC, GroupDriver
from sparkraft.server.env import SystemClock
from tests.coordinator.world import CountingEntropy
from tests.support.sessions import client_session

PARTITIONS = 1
"""Of `__consumer_offsets` here: every group belongs to the one shard."""

TOPIC_ID = Uuid(bytes(range(16)))


class FakeLog:
    """Batches in memory, read back as the real log reads them."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0

    def append(self, batch: bytes) -> int:
        base = self.log_end_offset
        patched = bytearray(batch)
        patch_in_place(patched, base_offset=base, leader_epoch=0)
        self.batches.append(bytes(patched))
        self.log_end_offset = parse_header(patched).next_offset
        return base

    def read(self, offset: int, *, max_bytes: int, up_to: int) -> Any:
        for batch in self.batches:
            header = parse_header(batch)
            if header.last_offset >= offset:
                return SimpleNamespace(pieces=[batch], size=len(batch))
        return SimpleNamespace(pieces=[], size=0)


class FakePartition:
    """The leader of the partition; `sync_by_hand` makes every append wait for `sync`."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.leader_epoch = 0
        self.sync_by_hand = False
        self.waiting: asyncio.Future[None] | None = None

    def durable(self, _: Any, *, acks: int) -> Any:
        assert acks == -1
        return self.committed(self.log.log_end_offset)

    def committed(self, offset: int) -> Any:
        assert offset == self.log.log_end_offset
        if not self.sync_by_hand:
            return None
        if self.waiting is None:
            self.waiting = asyncio.get_running_loop().create_future()
        return self.waiting

    def sync(self, error: KafkaError | None = None) -> None:
        waiting, self.waiting = self.waiting, None
        assert waiting is not None
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)


class FakeReplicas:
    """What the group driver needs of the replica manager."""

    def __init__(self) -> None:
        self.leadership_listeners: list[Any] = []
        self.partition = FakePartition()
        self.refuse: ErrorCode | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Any, name: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    def get_log(self, topic: str, index: int) -> FakeLog:
        assert (topic, index) == (GROUP_METADATA_TOPIC, 0)
        return self.partition.log

    def leader(self, _topic: str, _index: int) -> FakePartition:
        if self.refuse is not None:
            raise KafkaError(self.refuse)
        return self.partition

    def append_to(self, partition: FakePartition, batch: bytes, **_: Any) -> Any:
        return SimpleNamespace(base_offset=partition.log.append(batch))

    def lead(self, epoch: int | None) -> None:
        if epoch is not None:
            self.partition.leader_epoch = epoch
        for listener in self.leadership_listeners:
            listener(GROUP_METADATA_TOPIC, 0, epoch)


class FakeBroker:
    """A broker with the topics `t` (one partition) and `__consumer_offsets`."""

    def __init__(self, **properties: str) -> None:
        self.config = NodeConfig(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "1@127.0.0.1:9093",
                "log.dirs": "unused",
                "offsets.topic.num.partitions": str(PARTITIONS),
                "group.initial.rebalance.delay.ms": "0",
                **{key.replace("_", "."): value for key, value in properties.items()},
            }
        )
        self.env = SimpleNamespace(clock=SystemClock(), entropy=CountingEntropy())
        self.replica_manager = FakeReplicas()
        self.image: Any = FakeImage()
        self.groups = GroupDriver(self)  # type: ignore[arg-type] # (a fake of what it uses)

    def ask(self, key: ApiKey, request: Any, version: int | None = None) -> Any:
        """The handler's answer, or an awaitable of it; a KafkaError as the refusal."""
        api = load_api(key, controller_listener=False)
        assert api is not None
        used = API_INFO[key].max_version if version is None else version
        context = RequestContext(
            key, used, 1, "client", session=client_session(), connection=None, received_ms=0,
        )  # fmt: skip
        try:
            return api.handle(self, context, request)
        except KafkaError as error:
            return api.refuse(API_INFO[key].response_class(), request, used, error)


class FakeImage:
    """Topic `t` with partition 0; the offsets topic is known by its configured size only."""

    def __init__(self) -> None:
        self.topics_by_id: dict[Any, Any] = {
            TOPIC_ID: SimpleNamespace(name="t", id=TOPIC_ID, partitions={0: None})
        }
        self.topics_by_name = {"t": TOPIC_ID}

    def topic(self, name: str) -> Any:
        return self.topics_by_id.get(self.topics_by_name.get(name))


def image_without_topics() -> Any:
    """After everything was deleted."""
    return EMPTY_IMAGE

"""A broker around `GroupCoordinatorService`: a `ShardHost` in memory, and one topic."""

import asyncio
from types import SimpleNamespace
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.records.batch import parse_header, patch_in_place
from sparkraft.server.api.registry import RequestContext, load_api
from sparkraft.server.config import NodeConfig
from sparkraft.server.coordinator.group_service import GroupCoordinatorService
from sparkraft.server.coordinator.host import LogRange
from sparkraft.server.env import SystemClock
from tests.coordinator.world import CountingEntropy
from tests.support.sessions import client_session

PARTITIONS = 1
"""Of `__consumer_offsets` here: every group belongs to the one shard."""

TOPIC_ID = Uuid(bytes(range(16)))


class FakeHost:
    """A partition in memory; `sync_by_hand` makes every append wait for `sync`."""

    def __init__(self, metadata: Any) -> None:
        self.clock = SystemClock()
        self.metadata = metadata
        self.leader_epoch = 0
        self.batches: list[bytes] = []
        self.log_end_offset = 0
        self.refuse: ErrorCode | None = None
        self.sync_by_hand = False
        self.waiting: asyncio.Future[None] | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def in_epoch(self, topic: str, index: int, epoch: int) -> "HostInEpoch":
        assert (topic, index) == (GROUP_METADATA_TOPIC, 0)
        return HostInEpoch(self, epoch)

    def append(self, batch: bytes) -> int:
        base = self.log_end_offset
        patched = bytearray(batch)
        patch_in_place(patched, base_offset=base, leader_epoch=0)
        self.batches.append(bytes(patched))
        self.log_end_offset = parse_header(patched).next_offset
        return base

    def until_synced(self) -> Any:
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


class HostInEpoch:
    """The `ShardHost` that the runtime of one leader epoch gets."""

    def __init__(self, fake: FakeHost, epoch: int) -> None:
        self.clock = fake.clock
        self.metadata = fake.metadata
        self._fake = fake
        self._epoch = epoch

    def append(self, batch: bytes) -> Any:
        if self._fake.refuse is not None:
            raise KafkaError(self._fake.refuse)
        if self._fake.leader_epoch != self._epoch:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return SimpleNamespace(base_offset=self._fake.append(batch))

    def committed(self, _: Any) -> Any:
        return self._fake.until_synced()

    def committed_up_to(self, offset: int) -> Any:
        assert offset == self._fake.log_end_offset
        return self._fake.until_synced()

    def log_range(self) -> LogRange:
        return LogRange(0, self._fake.log_end_offset)

    def read(self, offset: int, *, end: int, max_bytes: int) -> bytes:
        del end, max_bytes
        return next(one for one in self._fake.batches if parse_header(one).last_offset >= offset)

    def spawn(self, work: Any, name: str) -> None:
        self._fake.tasks.append(asyncio.get_running_loop().create_task(work, name=name))


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
        self.image: Any = FakeImage()
        self.host = FakeHost(self)
        self.groups = GroupCoordinatorService(
            self.config, CountingEntropy(), metadata=self, host_of=self.host.in_epoch
        )

    def lead(self, epoch: int | None) -> None:
        if epoch is not None:
            self.host.leader_epoch = epoch
        self.groups.on_leadership(GROUP_METADATA_TOPIC, 0, epoch)

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

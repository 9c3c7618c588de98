"""A broker around `GroupCoordinatorService`: a `ShardHost` in memory, and one topic."""

import asyncio
from collections.abc import Awaitable
from types import GeneratorType, SimpleNamespace
from typing import Any

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode, encode
from sparkraft.server.api.registry import RequestContext, load_api
from sparkraft.server.config import NodeConfig
from sparkraft.server.coordinator.group_service import GroupCoordinatorService
from sparkraft.server.env import SystemClock
from sparkraft.server.network.loop_budget import LoopBudget
from sparkraft.server.network.slices import SlicedWork
from tests.coordinator.world import CountingEntropy
from tests.server.coordinator.fake_host import FakeHost
from tests.support.sessions import client_session

PARTITIONS = 1
"""Of `__consumer_offsets` here: every group belongs to the one shard."""

ENOUGH_MOVES = 3
"""Requests to move a leader, after which a test continues."""

TOPIC_ID = Uuid(bytes(range(16)))


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
        self.node_id = 1
        self.image: Any = FakeImage()
        self.host = FakeHost(self)
        self.groups = GroupCoordinatorService(
            self.config,
            CountingEntropy(),
            metadata=self,
            host_of=self.host.in_epoch,
            move_leader=self.move_leader,
        )
        self.moves: list[tuple[str, int, frozenset[str]]] = []
        self.has_moved = asyncio.Event()

    async def move_leader(self, topic: str, index: int, group_types: frozenset[str]) -> None:
        self.moves.append((topic, index, group_types))
        if len(self.moves) == ENOUGH_MOVES:
            self.has_moved.set()

    def lead(self, epoch: int | None) -> None:
        if epoch is not None:
            self.host.leader_epoch = epoch
        self.groups.on_leadership(GROUP_METADATA_TOPIC, 0, epoch)

    def steps(self, key: ApiKey, request: Any) -> Any:
        """The work of a handler in the newest version, which must come in steps."""
        api = load_api(key, controller_listener=False)
        assert api is not None
        answer = api.handle(self, _context(key, API_INFO[key].max_version), request)
        assert isinstance(answer, GeneratorType)
        return answer

    def ask(self, key: ApiKey, request: Any, version: int | None = None) -> Any:
        """The response of the handler, or an awaitable of it; errors become responses too."""
        api = load_api(key, controller_listener=False)
        assert api is not None
        used = API_INFO[key].max_version if version is None else version
        try:
            answer = api.handle(self, _context(key, used), request)
            if isinstance(answer, GeneratorType):
                answer = SlicedWork(answer, LoopBudget(SystemClock())).start()
            if isinstance(answer, Awaitable):
                return asyncio.ensure_future(_decoded_later(answer, key, used))
            return _decoded(answer, key, used)
        except KafkaError as error:
            refusal = api.refuse_now(API_INFO[key].response_class(), request, used, error)
            return _decoded([encode(refusal, used)], key, used)


def _context(key: ApiKey, version: int) -> RequestContext:
    return RequestContext(
        key, version, 1, "client", session=client_session(), connection=None, received_ms=0,
    )  # fmt: skip


def _decoded(answer: Any, key: ApiKey, version: int) -> Any:
    """A response as a message, also if it is encoded already."""
    if not isinstance(answer, list):
        return answer
    return decode(API_INFO[key].response_class(), version, b"".join(answer))


async def _decoded_later(answer: Awaitable[Any], key: ApiKey, version: int) -> Any:
    return _decoded(await answer, key, version)


class FakeImage:
    """Topic `t` with partition 0; the offsets topic is known by its configured size only."""

    def __init__(self) -> None:
        self.topics_by_id: dict[Any, Any] = {
            TOPIC_ID: SimpleNamespace(name="t", id=TOPIC_ID, partitions={0: None})
        }
        self.topics_by_name = {"t": TOPIC_ID}
        self.brokers: dict[int, Any] = {}

    def topic(self, name: str) -> Any:
        return self.topics_by_id.get(self.topics_by_name.get(name))


def image_without_topics() -> Any:
    """After everything was deleted."""
    return EMPTY_IMAGE

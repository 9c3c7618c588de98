"""Changes of configs with this broker's own resource among very many are checked in slices."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.metadata.image import EMPTY_IMAGE, ResourceType
from sparkraft.protocol.messages import k33_alter_configs as k33
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.server.broker.config_changes import forward_checked
from tests.server.harness import make_env

RESOURCES = 6 * LOOP_WORK_MAX.partitions

NODE_ID = 1

READS_MAX = 4
"""How often the type of a resource is read for one unit of work."""


class Turns:
    """Counts what is done in each iteration of the loop."""

    def __init__(self) -> None:
        self.iteration = 0
        self.done: Counter[int] = Counter()

    def note(self) -> None:
        self.done[self.iteration] += 1

    async def count(self) -> None:
        while True:
            self.iteration += 1
            await asyncio.sleep(0)


class Resource:
    """A resource or its result, which notes when it is looked at."""

    def __init__(self, turns: Turns, kind: int, name: str, configs: Any = ()) -> None:
        self._turns = turns
        self._kind = kind
        self.resource_name = name
        self.configs = configs
        self.error_code = 0

    @property
    def resource_type(self) -> int:
        self._turns.note()
        return self._kind


class Broker:
    """A broker in front of a controller that takes everything."""

    node_id = NODE_ID
    image = EMPTY_IMAGE

    def __init__(self, turns: Turns) -> None:
        self.env = make_env()
        self.turns = turns
        self.reloads = 0
        self.asked: list[Any] = []
        self.final: dict[str, str] = {}
        self.forwarding = self.dynamic_configs = self

    def objection(self, name: str, final: dict[str, str]) -> None:
        del name
        self.final = dict(final)

    def reload_stores(self) -> None:
        self.reloads += 1

    async def ask(self, context: Any, request: Any) -> Any:
        del context
        self.asked = request.resources
        results = [
            Resource(self.turns, each._kind, each.resource_name) for each in request.resources
        ]
        await asyncio.sleep(0)
        return SimpleNamespace(throttle_time_ms=0, responses=results)

    async def encode(self, context: Any, response: Any) -> list[Any]:
        del context
        return [response]


def answered(broker: Broker, request: Any) -> Any:
    forward = forward_checked(SimpleNamespace, SimpleNamespace)

    async def work() -> Any:
        counting = asyncio.create_task(broker.turns.count())
        (response,) = await forward(broker, None, request)  # type: ignore[arg-type]
        counting.cancel()
        return response

    return asyncio.run(work())


class Request(SimpleNamespace):
    """A request of either kind."""


def test_resources_and_results_are_looked_at_in_slices() -> None:
    turns = Turns()
    resources = [Resource(turns, ResourceType.TOPIC, f"t{n}") for n in range(RESOURCES)]
    resources.append(Resource(turns, ResourceType.BROKER, str(NODE_ID)))
    resources.append(Resource(turns, ResourceType.BROKER, str(NODE_ID + 1)))
    broker = Broker(turns)
    response = answered(broker, Request(resources=resources, validate_only=False))
    assert len(broker.asked) == RESOURCES + 1
    assert broker.reloads == 1
    assert [result.error_code for result in response.responses] == [
        *[ErrorCode.NONE] * (RESOURCES + 1),
        ErrorCode.INVALID_REQUEST,
    ]
    names = [result.resource_name for result in response.responses]
    assert names == [resource.resource_name for resource in resources]
    assert max(turns.done.values()) <= READS_MAX * LOOP_WORK_MAX.partitions


@pytest.mark.parametrize("is_incremental", [True, False])
def test_the_configs_of_one_resource_are_checked_in_slices(is_incremental: bool) -> None:
    turns = Turns()

    class Config:
        """A config, which notes when its value is read."""

        def __init__(self, number: int) -> None:
            self.name = f"key-{number}"
            if is_incremental:
                self.config_operation = 0

        @property
        def value(self) -> str:
            turns.note()
            return "1"

    configs = [Config(n) for n in range(RESOURCES)]
    own = Resource(turns, ResourceType.BROKER, str(NODE_ID), configs)
    broker = Broker(turns)
    answered(broker, Request(resources=[own], validate_only=True))
    assert len(broker.final) == RESOURCES
    assert not broker.reloads
    assert max(turns.done.values()) <= READS_MAX * LOOP_WORK_MAX.partitions


@pytest.mark.parametrize("kind", [k33.AlterConfigsRequest, k44.IncrementalAlterConfigsRequest])
def test_what_is_the_controllers_alone_is_forwarded_as_it_came(kind: Any) -> None:
    async def work() -> None:
        broker = Broker(Turns())
        forwarded = []

        async def forward(context: Any, request: Any) -> list[Any]:
            del context
            forwarded.append(request)
            return []

        broker.forward = forward  # type: ignore[attr-defined]
        request = kind(resources=[])
        assert await forward_checked(object, object)(broker, None, request) == []  # type: ignore[arg-type]
        assert forwarded == [request]

    asyncio.run(work())

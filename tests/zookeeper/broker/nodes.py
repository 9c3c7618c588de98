"""Nodes of ours in one event loop, on a simulated ensemble: one of them is the controller."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.values import NewTopic
from sparkraft.server.config import NodeConfig
from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
from sparkraft.server.zookeeper_node import ZooKeeperNode
from sparkraft.simulation.world.zookeeper import Ensemble
from sparkraft.zookeeper.client import ZooKeeperClient
from sparkraft.zookeeper.connect_string import parse_connect_string
from sparkraft.zookeeper.requests import Request
from tests.server.harness import make_env, until
from tests.support.ports import lasting_ports


class Nodes:
    """Brokers that may become the controller, by id.

    Attributes:
        ensemble: its znodes can be read and changed directly.
    """

    def __init__(self, folder: Path, ensemble: Ensemble, ensemble_port: int) -> None:
        self.ensemble = ensemble
        self._folder = folder
        self._ensemble_port = ensemble_port
        self._ports: dict[int, int] = {}
        self._running: dict[int, ZooKeeperNode] = {}

    @property
    def ensemble_port(self) -> int:
        return self._ensemble_port

    def __getitem__(self, broker: int) -> ZooKeeperNode:
        return self._running[broker]

    @property
    def connect(self) -> str:
        """The value of `zookeeper.connect`."""
        return f"127.0.0.1:{self._ensemble_port}"

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self._ports[each]}" for each in sorted(self._running))

    async def start(self, *brokers: int, **overrides: str) -> None:
        """Start brokers one after another; the first one becomes the controller.

        Underscores in overrides stand for dots.
        """
        for broker in brokers:
            if broker not in self._ports:
                (self._ports[broker],) = lasting_ports(1)
            properties = {
                "broker.id": str(broker),
                "zookeeper.connect": f"127.0.0.1:{self._ensemble_port}",
                "zookeeper.session.timeout.ms": "6000",
                "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[broker]}",
                "log.dirs": str(self._folder / str(broker)),
                "sparkraft.controllership.enable": "true",
                "auto.leader.rebalance.enable": "false",
                "controlled.shutdown.retry.backoff.ms": "100",
                **{key.replace("_", "."): value for key, value in overrides.items()},
            }
            node = ZooKeeperNode(NodeConfig(properties), make_env())
            self._running[broker] = node
            await node.start()
            await until(lambda: self.controller() > 0 or self.has_kraft_controller())

    def address(self, broker: int) -> str:
        return f"127.0.0.1:{self._ports[broker]}"

    def set_port(self, broker: int, port: int) -> None:
        """Record the port for clients of a broker with listeners of its own."""
        self._ports[broker] = port

    async def stop(self, broker: int) -> None:
        await self._running.pop(broker).stop()

    def controller(self) -> int:
        """The only broker that is the controller; 0 unless there is exactly one."""
        active = [b for b, node in self._running.items() if node.is_controller]
        return active[0] if len(active) == 1 else 0

    def has_kraft_controller(self) -> bool:
        """Whether /controller is that of a KRaft controller."""
        if "controller" not in self.children("/"):
            return False
        found = json.loads(self.ensemble.znodes.get("/controller").data)
        return int(found.get("kraftControllerEpoch", -1)) >= 0

    def states(self, topic: str, seen_by: int) -> dict[int, tuple[int, list[int]]]:
        """Partition → leader and sorted ISR in a broker's image."""
        node = self._running[seen_by]
        assert node.broker is not None
        found = node.broker.image.topic(topic)
        partitions = {} if found is None else found.partitions
        return {at: (each.leader, sorted(each.isr)) for at, each in sorted(partitions.items())}

    def children(self, path: str) -> list[str]:
        """The names below a znode."""
        return sorted(self.ensemble.znodes.get(path).children)

    async def create(self, admin: Admin, name: str, replicas: dict[int, list[int]]) -> None:
        """Create a topic; return when each of its replicas is in the ISR."""
        made = await admin.create_topics([NewTopic(name=name, assignment=replicas)])
        assert not isinstance(made[name], KafkaError), made
        expected = {at: (each[0], sorted(each)) for at, each in replicas.items()}
        await until(lambda: all(self.states(name, each) == expected for each in self._running))

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Admin]:
        async with Cluster(self.bootstrap) as cluster:
            yield Admin(cluster)

    async def submit(self, request: Request) -> Any:
        """Send one request in a session of its own, as an operator does."""
        client = ZooKeeperClient(
            parse_connect_string(f"127.0.0.1:{self._ensemble_port}"),
            connect=SystemNetwork().connect,
            clock=SystemClock(),
            entropy=SystemEntropy(),
        )
        await client.start()
        try:
            return await client.submit(request)
        finally:
            await client.close()

    async def close(self) -> None:
        for broker in sorted(self._running, reverse=True):
            await self.stop(broker)


@asynccontextmanager
async def nodes_in(folder: Path) -> AsyncIterator[Nodes]:
    """No node yet, on an ensemble of one server."""
    (port,) = lasting_ports(1)
    ensemble = Ensemble(SystemClock(), random.Random(1))
    server = await ensemble.listen(SystemNetwork(), "127.0.0.1", port)
    expiring = asyncio.create_task(ensemble.run())
    nodes = Nodes(folder, ensemble, port)
    try:
        yield nodes
    finally:
        await nodes.close()
        expiring.cancel()
        server.close()

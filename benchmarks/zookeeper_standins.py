"""Brokers in ZooKeeper that only register and acknowledge the controller's requests.

They keep each frame with its time of arrival. What a frame contains is decoded after a measurement,
so that the bench costs the controller little processor time.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.messages import k04_leader_and_isr as k04
from sparkraft.protocol.messages import k05_stop_replica as k05
from sparkraft.protocol.messages import k06_update_metadata as k06
from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
from sparkraft.zookeeper.client import ZooKeeperClient
from sparkraft.zookeeper.connect_string import parse_connect_string
from sparkraft.zookeeper.requests import Create, Multi, SetData
from sparkraft.zookeeper.znodes.brokers import Endpoint, Registration, encode_registration
from tests.support.ports import lasting_ports

SESSION_MS = 6_000
_MESSAGES: dict[int, tuple[Any, Any]] = {
    ApiKey.LEADER_AND_ISR: (k04.LeaderAndIsrRequest, k04.LeaderAndIsrResponse),
    ApiKey.STOP_REPLICA: (k05.StopReplicaRequest, k05.StopReplicaResponse),
    ApiKey.UPDATE_METADATA: (k06.UpdateMetadataRequest, k06.UpdateMetadataResponse),
}
_ANSWERS: dict[tuple[int, int], bytes] = {}


class Arrived(NamedTuple):
    """A frame of a control request."""

    seconds: float
    """time.monotonic()"""
    frame: bytes

    def request(self) -> Any:
        """Decode it."""
        key, version = (int.from_bytes(self.frame[at : at + 2], "big") for at in (0, 2))
        client = int.from_bytes(self.frame[8:10], "big")
        asked, _ = _MESSAGES[key]
        return decode(asked, version, self.frame[10 + client + 1 :])


@dataclass(slots=True)
class StandIn:
    """One broker; `start` registers it, `stop` ends its session."""

    id: int
    connect: str
    port: int = 0
    epoch: int = -1
    arrived: list[Arrived] = field(default_factory=list)
    _client: ZooKeeperClient | None = None
    _server: asyncio.Server | None = None
    links: "list[_Link]" = field(default_factory=list)

    async def start(self) -> None:
        """Listen and register."""
        if not self.port:
            (self.port,) = lasting_ports(1)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Link(self), "127.0.0.1", self.port)
        self._client = client = new_client(self.connect)
        await client.start()
        registration = Registration(
            version=5,
            endpoints=(Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", self.port),),
            timestamp="1",
            rack=None,
        )
        path, data = f"/brokers/ids/{self.id}", encode_registration(registration)
        create = (Create(path=path, ephemeral=True), SetData(path=path, data=data, version=0))
        results = await client.submit_until_connected(Multi(create))
        self.epoch = int(results[1].czxid)

    async def stop(self) -> None:
        """End the session: the broker is gone at once."""
        if self._client is not None:
            await self._client.close()
        if self._server is not None:
            self._server.close()
        for link in self.links:
            link.close()
        self.links.clear()

    def covered(self, wanted: int, since: float, *, not_led_by: int = -1) -> float | None:
        """Return when UpdateMetadata had given a leader to `wanted` partitions; None if never.

        Args:
            wanted: how many partitions.
            since: requests before are ignored.
            not_led_by: a leader that does not count.
        """
        led: set[tuple[str, int]] = set()
        for each in self.arrived:
            is_metadata = each.frame[:2] == int(ApiKey.UPDATE_METADATA).to_bytes(2, "big")
            if each.seconds < since or not is_metadata:
                continue
            for topic in each.request().topic_states:
                led.update(
                    (topic.topic_name, part.partition_index)
                    for part in topic.partition_states
                    if part.leader >= 0 and part.leader != not_led_by
                )
            if len(led) >= wanted:
                return each.seconds
        return None


def new_client(connect: str) -> ZooKeeperClient:
    """A session that is not open yet."""
    return ZooKeeperClient(
        parse_connect_string(connect),
        connect=SystemNetwork().connect,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        session_timeout_ms=SESSION_MS,
        in_flight_max=200,
    )


class _Link(asyncio.Protocol):
    """A connection of the controller."""

    def __init__(self, broker: StandIn) -> None:
        self._broker = broker
        self._buffer = bytearray()
        self._transport: Any = None
        broker.links.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def close(self) -> None:
        """Close it."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[4:end])
            del self._buffer[:end]
            self._broker.arrived.append(Arrived(time.monotonic(), frame))
            body = frame[4:8] + _answer(*(int.from_bytes(frame[a : a + 2], "big") for a in (0, 2)))
            self._transport.write(len(body).to_bytes(4, "big") + body)


def _answer(key: int, version: int) -> bytes:
    """A response without errors, after the correlation id."""
    if (key, version) not in _ANSWERS:
        _, made = _MESSAGES[key]
        _ANSWERS[key, version] = b"\0" + encode(made(), version)
    return _ANSWERS[key, version]

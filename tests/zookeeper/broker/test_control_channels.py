"""Requests of the controller in the queues of brokers, and their encoding."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from sparkraft.protocol.codec import encode
from sparkraft.protocol.decode_source import SLICE_ELEMENTS
from sparkraft.server.env import SystemClock
from sparkraft.server.zookeeper.control_channels import ControlChannels
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.control_messages import Sender, convert_at_once
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from sparkraft.zookeeper.controller.requests import (
    ControlRequest,
    LeaderAndIsrRequest,
    RequestBatch,
    UpdateMetadataRequest,
)
from sparkraft.zookeeper.controller.values import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    Leadership,
    ReplicaAssignment,
)

SENDER = Sender(1, parse_protocol_version("3.9"), "PLAINTEXT")
BROKERS = (1, 2, 3)
TOPICS, PARTITIONS = 2, 1_200


class Channels:
    """Channels that send nothing, and the work of encoding."""

    def __init__(self) -> None:
        self.worked: list[int] = []
        self.channels = ControlChannels(
            SENDER,
            SystemClock(),
            connect=None,
            login=None,
            timeout_ms=1_000,
            brokers=dict,
            put=lambda _: None,
            on_worked=self._on_worked,
            spawn=self._spawn,
        )

    async def _on_worked(self, units: int) -> None:
        self.worked.append(units)
        await asyncio.sleep(0)

    def _spawn(self, running: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        running.close()
        return asyncio.create_task(asyncio.sleep(0), name=name)

    async def encode_all(self) -> list[tuple[ControlRequest, Any]]:
        """Encode what is in the queues, of all brokers at once."""
        queued = [each for broker in self.channels.by_broker.values() for each in broker.queue]
        messages = await asyncio.gather(*map(self.channels.message_of, queued))
        return list(zip([each.request for each in queued], messages, strict=True))


def batch() -> RequestBatch:
    context = ControllerContext(epoch=7)
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")
    context.brokers = {each: Broker(each, 100 + each, (endpoint,)) for each in BROKERS}
    made = RequestBatch(context)
    for partition in range(PARTITIONS):
        at = (f"t{partition % TOPICS}", partition)
        context.assign(at, ReplicaAssignment(BROKERS))
        leadership = context.leaderships[at] = Leadership(LeaderAndIsr(2, BROKERS, 3, 4), 7)
        made.add_leader_and_isr([1, 2], at, leadership, is_new=False)
        made.add_stop_replica(3, at, delete=False)
    return made


def test_requests_have_the_bytes_of_their_message_and_are_encoded_in_pieces() -> None:
    async def run() -> None:
        channels = Channels()
        channels.channels.send(batch().drain())
        encoded = await channels.encode_all()
        assert len(encoded) == 6
        for request, (message, version) in encoded:
            plain = convert_at_once(request, SENDER)
            assert encode(message, version) == encode(plain.message, version)
            assert message.broker_epoch == 100 + request.broker
        assert max(channels.worked) <= SLICE_ELEMENTS + TOPICS

    asyncio.run(run())


def test_the_metadata_of_a_batch_is_encoded_once_for_all_brokers() -> None:
    async def run() -> None:
        channels = Channels()
        requests = batch().drain()
        metadata = tuple(each for each in requests if isinstance(each, UpdateMetadataRequest))
        assert len(metadata) == len(BROKERS)
        channels.channels.send(metadata)
        encoded = [message for _, (message, _) in await channels.encode_all()]
        assert len({id(each.topic_states) for each in encoded}) == 1
        assert [each.broker_epoch for each in encoded] == [101, 102, 103]
        once = sum(channels.worked)
        channels.channels.send(metadata[:1])
        await channels.encode_all()
        assert sum(channels.worked) == 2 * once

    asyncio.run(run())


def test_another_batch_is_not_mistaken_for_the_same_metadata() -> None:
    async def run() -> None:
        channels = Channels()
        first, second = batch(), batch()
        sent = [
            each
            for made in (first, second)
            for each in made.drain()
            if not isinstance(each, LeaderAndIsrRequest)
        ]
        channels.channels.send(tuple(sent))
        encoded = [
            message.topic_states
            for request, (message, _) in await channels.encode_all()
            if isinstance(request, UpdateMetadataRequest)
        ]
        assert len({id(each) for each in encoded}) == 2

    asyncio.run(run())

"""A record of a type that nobody knows comes from the leader: the node stops and names it.

To skip it would be to serve, and to write into snapshots, what is not so. How a node that finds one
in its own log refuses to start: `tests/system/test_metadata_damage.py`.
"""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import DecodeError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message, string
from sparkraft.protocol.messages.metadata_records import TopicRecord
from sparkraft.server.broker.lifecycle import BrokerLifecycle
from sparkraft.server.config import NodeConfig
from sparkraft.server.node import Node
from tests.server.harness import format_dir, make_env
from tests.server.raft.test_driver import CLUSTER, Member, run, until
from tests.support.ports import lasting_ports


class RecordOfTheFuture(Message, key=99, versions="0", flexible="0+"):
    """What a later version of Kafka may write."""

    said: str = string()


UNKNOWN = RecordOfTheFuture(said="something")
BEFORE, BEHIND = (TopicRecord(name=n, topic_id=Uuid(n.encode() * 16)) for n in "ab")


async def leads(root: Path, port: int, *records: Any) -> tuple[Member, int]:
    """A controller's raft alone, which takes anything for a record; the offset behind these."""
    leader = Member(1, [port], root)
    await leader.start()
    offset = await leader.driver.append([(record, 0) for record in records], epoch=1)
    await until(lambda: leader.driver.high_watermark > offset)
    return leader, offset + 1


def broker(path: Path, controller_port: int) -> Node:
    """One that follows that controller."""
    path.mkdir()
    format_dir(path, node_id=2, cluster_id=CLUSTER)
    (port,) = lasting_ports(1)
    properties = {
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(path),
    }
    return Node(NodeConfig(properties), make_env())


@pytest.fixture(autouse=True)
def _registers_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker waits for its registration, which is none of a bare raft's business."""

    async def waits(_: BrokerLifecycle) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(BrokerLifecycle, "_register", waits)


async def until_it_fails(node: Node, starting: asyncio.Task[None]) -> None:
    await until(lambda: node.failure is not None or starting.done())
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting


def assert_it_stopped(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(node.failure, DecodeError)
    assert "unknown metadata record type 99" in str(node.failure)
    (said,) = (line for line in caplog.messages if line.startswith("This node stops: "))
    assert "unknown metadata record type 99" in said


def test_one_that_is_fetched_stops_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = lasting_ports(1)

    async def work() -> None:
        leader, known = await leads(tmp_path, port, BEFORE)
        node = broker(tmp_path / "broker", port)
        starting = asyncio.create_task(node.start())
        await until(lambda: node._publisher is not None and node._publisher.offset == known - 1)
        assert node.failure is None
        await leader.driver.append([(UNKNOWN, 0)], epoch=1)
        await leader.driver.append([(BEHIND, 0)], epoch=1)
        await until_it_fails(node, starting)
        assert_it_stopped(node, caplog)
        assert node._publisher is not None
        assert node._publisher.offset == known - 1
        assert set(node._publisher.image.topics_by_name) <= {"a"}
        await node.stop()
        await leader.stop()
        assert not leader.failures

    with caplog.at_level(logging.CRITICAL, "sparkraft.server.node"):
        run(work)


def test_one_within_a_snapshot_that_is_fetched_stops_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = lasting_ports(1)

    async def work() -> None:
        leader, end = await leads(tmp_path, port, BEFORE, UNKNOWN, BEHIND)
        records = [(BEFORE, 0), (UNKNOWN, 0), (BEHIND, 0)]
        assert await leader.driver.create_snapshot(end, 1, records)
        node = broker(tmp_path / "broker", port)
        await until_it_fails(node, asyncio.create_task(node.start()))
        assert_it_stopped(node, caplog)
        assert list((tmp_path / "broker" / "__cluster_metadata-0").glob("*.checkpoint"))
        assert node._publisher is not None
        assert not node._publisher.image.topics_by_name
        await node.stop()
        await leader.stop()
        assert not leader.failures

    with caplog.at_level(logging.CRITICAL, "sparkraft.server.node"):
        run(work)

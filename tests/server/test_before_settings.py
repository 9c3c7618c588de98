"""Before a broker knows its topics' settings, its own must not decide what goes."""

import asyncio

import pytest

from sparkraft.server.broker.background import Background
from sparkraft.server.broker.metadata_publisher import MetadataPublisher
from tests.server.harness import (
    append,
    batch,
    connect,
    create_topic,
    fetch,
    node_in,
    run,
    values_of,
)

ROUNDS = 5
"""So many rounds of retention come by before the broker hears of its topics."""
QUICK = {
    "log_retention_check_interval_ms": "20",
    "log_cleaner_backoff_ms": "5",
    "log_cleaner_min_cleanable_ratio": "0.01",
}


@pytest.fixture
def late_metadata(monkeypatch):
    """A restarted broker follows no image before `ROUNDS` rounds are over."""
    rounds = 0
    over = asyncio.Event()
    retain, catch_up = Background._retain, MetadataPublisher.catch_up

    async def counted(self):
        nonlocal rounds
        rounds += 1
        await retain(self)
        if rounds >= ROUNDS:
            over.set()

    async def late(self, offset):
        nonlocal rounds
        rounds = 0
        over.clear()
        await over.wait()
        await catch_up(self, offset)

    monkeypatch.setattr(Background, "_retain", counted)
    monkeypatch.setattr(MetadataPublisher, "catch_up", late)


@pytest.mark.parametrize(
    ("own", "topics"),
    [
        ({"log_retention_ms": "1000"}, {"retention_ms": "-1"}),
        ({"log_cleanup_policy": "compact"}, {"cleanup_policy": "delete", "retention_ms": "-1"}),
    ],
    ids=["retention", "compaction"],
)
def test_a_restarted_broker_removes_nothing_before_it_has_its_topics_settings(
    tmp_path, late_metadata, own, topics
):
    async def test():
        async with node_in(tmp_path, **QUICK, **own) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t", **topics)
            log = node.broker.replica_manager.get_log("t", 0)
            for value in (b"one", b"two", b"three"):
                await append(connection, topic_id, batch(value, key=b"k"))
                log.roll()
            await connection.close()
        async with node_in(tmp_path, **QUICK, **own) as node:
            connection = await connect(node)
            found = []
            for offset in range(3):  # a segment at a time
                answer = await connection.send(fetch(topic_id, offset))
                found += values_of(answer.responses[0].partitions[0])
            assert found == [b"one", b"two", b"three"]
            await connection.close()

    run(test())

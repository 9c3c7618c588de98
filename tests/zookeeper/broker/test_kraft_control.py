"""Requests of a KRaft controller to a broker in ZooKeeper mode that is being migrated (KIP-866).

Kafka 3.9: `ReplicaManager.becomeLeaderOrFollower`, `ZkMetadataCache.updateMetadata`,
`ZkBrokerEpochManager`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.server.broker.broker_epoch import BrokerEpoch
from sparkraft.server.zookeeper.controllers import KnownController, MigratingTarget
from sparkraft.server.zookeeper.epochs import MigratingBrokerEpoch
from tests.zookeeper.broker.parts import (
    BROKER_EPOCH,
    FULL,
    HERE,
    OTHER,
    OTHER_ID,
    QUORUM_EPOCH,
    TOPIC_ID,
    Parts,
    lead,
    update,
)

T0, U0 = ("t", 0), ("u", 0)
INCREMENTAL = 1


def run(folder: Path, scenario: Callable[[Parts], Awaitable[None]], *, migrates: bool) -> None:
    async def main() -> None:
        await scenario(Parts(folder, migrates=migrates))

    asyncio.run(main())


def test_its_requests_have_the_broker_epoch_of_the_quorum(tmp_path):
    async def scenario(parts: Parts) -> None:
        with pytest.raises(KafkaError) as refused:
            await parts.control.update(update(scope=INCREMENTAL, broker_epoch=QUORUM_EPOCH - 1))
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert not parts.control.has_kraft_controller
        # Lower than the broker epoch in ZooKeeper.
        await parts.control.update(update(scope=INCREMENTAL, broker_epoch=QUORUM_EPOCH))
        assert parts.control.has_kraft_controller
        await parts.control.update(update(broker_epoch=BROKER_EPOCH))
        assert not parts.control.has_kraft_controller, "a broker rules again"

    run(tmp_path, scenario, migrates=True)


def test_a_broker_that_does_not_migrate_refuses_them(tmp_path):
    async def scenario(parts: Parts) -> None:
        with pytest.raises(KafkaError) as refused:
            await parts.control.lead_and_follow(lead(scope=FULL, broker_epoch=99))
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert parts.replicas.hosted("t", 0) is None

    run(tmp_path, scenario, migrates=False)


def test_it_may_repeat_a_leader_epoch_with_another_isr(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(lead(leader_epoch=2, partition_epoch=4))
        again = lead(leader_epoch=2, partition_epoch=5, replicas=(HERE, 7), scope=INCREMENTAL)
        assert await parts.control.lead_and_follow(again) == {T0: ErrorCode.NONE}
        leader = parts.replicas.leader("t", 0).leading
        assert leader is not None
        assert sorted(leader.in_sync.isr) == [HERE, 7]
        # One that was overtaken changes nothing.
        late = lead(leader_epoch=2, partition_epoch=4, scope=INCREMENTAL)
        assert await parts.control.lead_and_follow(late) == {T0: ErrorCode.NONE}
        assert sorted(leader.in_sync.isr) == [HERE, 7]
        old = lead(leader_epoch=1, partition_epoch=6, scope=INCREMENTAL)
        assert await parts.control.lead_and_follow(old) == {T0: ErrorCode.STALE_CONTROLLER_EPOCH}

    run(tmp_path, scenario, migrates=True)


def test_logs_that_a_full_request_does_not_have_are_set_aside(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(lead())
        await parts.control.lead_and_follow(lead(topic="u", topic_id=OTHER_ID))
        full = lead(scope=FULL, broker_epoch=QUORUM_EPOCH)
        assert await parts.control.lead_and_follow(full) == {T0: ErrorCode.NONE}
        assert parts.replicas.leader("t", 0).leader_epoch == 0
        assert parts.replicas.hosted("u", 0) is None
        strays = [each.name for each in tmp_path.glob("*/*-stray")]
        assert len(strays) == 1
        assert strays[0].startswith("u-0.")

    run(tmp_path, scenario, migrates=True)


def test_a_topic_that_was_created_again_gets_a_new_log(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(lead())
        full = lead(scope=FULL, topic_id=OTHER_ID, broker_epoch=QUORUM_EPOCH)
        assert await parts.control.lead_and_follow(full) == {T0: ErrorCode.NONE}
        known = parts.logs.get("t", 0)
        assert known is not None
        assert known.topic_id == OTHER_ID
        assert len(list(tmp_path.glob("*/t-0.*-stray"))) == 1

    run(tmp_path, scenario, migrates=True)


def test_an_incremental_request_sets_nothing_aside(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.lead_and_follow(lead())
        other = lead(scope=INCREMENTAL, topic="u", topic_id=OTHER_ID, broker_epoch=QUORUM_EPOCH)
        assert await parts.control.lead_and_follow(other) == {U0: ErrorCode.NONE}
        assert parts.replicas.hosted("t", 0) is not None
        assert not list(tmp_path.glob("*/*-stray"))

    run(tmp_path, scenario, migrates=True)


def test_topics_that_a_full_update_does_not_have_do_not_exist(tmp_path):
    async def scenario(parts: Parts) -> None:
        await parts.control.update(update(HERE))
        await parts.control.update(update(OTHER, topic="u", topic_id=OTHER_ID))
        some = update(HERE, scope=INCREMENTAL, broker_epoch=QUORUM_EPOCH)
        await parts.control.update(some)
        assert set(parts.images.image.topics_by_name) == {"t", "u"}
        await parts.control.update(update(HERE, scope=FULL, broker_epoch=QUORUM_EPOCH))
        assert dict(parts.images.image.topics_by_name) == {"t": TOPIC_ID}
        assert parts.configs.log[-1] == "forget u"

    run(tmp_path, scenario, migrates=True)


class Target:
    """One kind of controller."""

    def __init__(self, name: str, *, takes_envelopes: bool) -> None:
        self.name, self.takes_envelopes = name, takes_envelopes
        self.leader_and_epoch = self.leader_node = self.connect = self.login = name

    def describe(self) -> str:
        return self.name


def test_requests_and_epochs_follow_the_kind_of_controller():
    known = KnownController()
    epochs = MigratingBrokerEpoch(known)
    epochs.zookeeper.on_registered(BROKER_EPOCH)
    broker = Target("broker", takes_envelopes=False)
    quorum = Target("quorum", takes_envelopes=True)
    target = MigratingTarget(known, broker, quorum)  # type: ignore[arg-type]
    heard: list[int] = []
    known.add_listener(heard.append)
    known.on_update(4, is_kraft=False)
    assert (target.describe(), target.takes_envelopes) == ("broker", False)
    assert epochs.value == BROKER_EPOCH
    known.on_update(3000, is_kraft=True)
    assert (target.describe(), target.takes_envelopes) == ("quorum", True)
    assert {target.leader_and_epoch, target.leader_node, target.connect, target.login} == {"quorum"}
    assert not epochs.is_known, "the quorum has not registered it yet"
    epochs.quorum.on_registered(QUORUM_EPOCH)
    assert epochs.value == QUORUM_EPOCH
    known.on_update(4, is_kraft=False)
    assert epochs.value == BROKER_EPOCH
    assert heard == [4, 3000, 4]
    assert isinstance(epochs, BrokerEpoch)

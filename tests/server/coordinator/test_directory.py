"""Which broker coordinates a key."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.java_hash import partition_of
from sparkraft.coordinator.internal_topics import INTERNAL_TOPICS, KeyType
from sparkraft.server.coordinator.directory import CoordinatorDirectory, Location


class External:
    """Coordinators of other brokers, as they are found."""

    def __init__(self, able: list[int]) -> None:
        self.found: list[int] = []
        self.has_unknown = True
        self.requested: list[str] = []
        self._able = able

    def able(self, topic: str) -> list[int]:
        assert topic in INTERNAL_TOPICS.values()
        return self.found

    async def learn(self) -> None:
        self.found = self._able
        self.has_unknown = False

    async def request_topic(self, key_type: KeyType, key: str) -> None:
        self.requested.append(key)


class Cluster:
    def __init__(self, able: list[int], leaders: dict[str, int]) -> None:
        self.external = External(able)
        self.created: list[str] = []
        self.image = SimpleNamespace(topic=self._topic)
        self._leaders = leaders
        service = SimpleNamespace(partition_for=lambda key: partition_of(key, 2))
        services: Any = {KeyType.GROUP: service, KeyType.TRANSACTION: service}
        external: Any = self.external
        self.directory = CoordinatorDirectory(
            self,
            node_id=1,
            services=services,
            external=external,
            create_topic=self.created.extend,
        )

    def _topic(self, name: str) -> Any:
        if name not in self._leaders:
            return None
        partition = SimpleNamespace(leader=self._leaders[name])
        return SimpleNamespace(partitions={0: partition, 1: partition})

    def locate(self, key_type: int) -> Location | None:
        return self.directory.locate(key_type, "g")


GROUPS, TRANSACTIONS, SHARES = (INTERNAL_TOPICS[one] for one in KeyType)


def test_groups_are_coordinated_by_the_leader_of_their_partition() -> None:
    cluster = Cluster([], {GROUPS: 3})
    assert not cluster.directory.needs_discovery(KeyType.GROUP)
    assert cluster.directory.is_served(KeyType.GROUP)
    assert cluster.locate(KeyType.GROUP) == Location(3)
    assert cluster.created == []


def test_the_first_lookup_creates_the_topic_of_our_own_coordinators() -> None:
    cluster = Cluster([], {})
    assert cluster.locate(KeyType.GROUP) == Location(-1)
    assert cluster.created == [GROUPS]


@pytest.mark.parametrize("leader", [1, 11, -1])
def test_transactions_are_coordinated_by_leaders_that_are_able_to(leader: int) -> None:
    cluster = Cluster([11], {TRANSACTIONS: leader})
    assert cluster.directory.is_served(KeyType.TRANSACTION)
    assert cluster.directory.needs_discovery(KeyType.TRANSACTION)
    asyncio.run(cluster.directory.discover(KeyType.TRANSACTION, ["g"]))
    assert not cluster.directory.needs_discovery(KeyType.TRANSACTION)
    assert cluster.locate(KeyType.TRANSACTION) == Location(leader)
    assert (cluster.created, cluster.external.requested) == ([], [])


def test_a_broker_of_an_earlier_version_does_not_coordinate_transactions() -> None:
    cluster = Cluster([11], {TRANSACTIONS: 12})
    asyncio.run(cluster.directory.discover(KeyType.TRANSACTION, ["g"]))
    found = cluster.locate(KeyType.TRANSACTION)
    assert found is not None
    assert (found.broker_id, bool(found.problem)) == (-1, True)


def test_the_first_lookup_creates_the_topic_of_transactions() -> None:
    cluster = Cluster([], {})
    asyncio.run(cluster.directory.discover(KeyType.TRANSACTION, ["g"]))
    assert cluster.locate(KeyType.TRANSACTION) == Location(-1)
    assert cluster.created == [TRANSACTIONS]


@pytest.mark.parametrize("key_type", [KeyType.SHARE, 7])
def test_keys_that_no_broker_serves_have_no_location(key_type: int) -> None:
    cluster = Cluster([], {SHARES: 1})
    assert cluster.directory.needs_discovery(key_type) == (key_type != 7)
    assert not cluster.directory.is_served(key_type)
    assert cluster.locate(key_type) is None


@pytest.mark.parametrize(("leader", "broker_id"), [(11, 11), (1, -1), (-1, -1)])
def test_external_keys_are_located_at_an_able_leader_only(leader: int, broker_id: int) -> None:
    cluster = Cluster([11, 12], {SHARES: leader})
    asyncio.run(cluster.directory.discover(KeyType.SHARE, ["g"]))
    found = cluster.locate(KeyType.SHARE)
    assert found is not None
    assert found.broker_id == broker_id
    assert bool(found.problem) == (broker_id == -1)
    assert cluster.directory.leader_of(KeyType.SHARE, "g") == leader
    assert cluster.external.requested == []


def test_an_able_broker_is_asked_to_create_an_external_topic() -> None:
    cluster = Cluster([11], {})
    asyncio.run(cluster.directory.discover(KeyType.SHARE, []))
    assert cluster.external.requested == []
    asyncio.run(cluster.directory.discover(KeyType.SHARE, ["g"]))
    assert cluster.external.requested == ["g"]
    assert cluster.locate(KeyType.SHARE) == Location(-1)
    assert cluster.created == []

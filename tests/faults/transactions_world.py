"""Transactions of real processes under faults: no part of one is lost, doubled or torn.

The rounds and faults are those of `records_world`, the clients and checks those of
`tests.support.transaction_load`.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from sparkraft.simulation.workload.history import History
from tests.faults.quorum_world import Creations
from tests.faults.quorum_world import Fault as QuorumFault
from tests.faults.records_world import (
    IN_SYNC_SECONDS_MAX,
    REPLICAS,
    SETTINGS,
    Churn,
    Fault,
    RecordsWorld,
)
from tests.support import transaction_load
from tests.support.broken_networks import ProxiedCluster
from tests.support.clusters import Member
from tests.support.record_clients import Meter
from tests.support.transaction_load import TransactionLoad

CALM_VALUES = 60
"""Committed in each calm before a fault."""

RECORDS_PER_VALUE = 10
"""Faults wait for a number of records; without transactions they are written ten times as fast."""

VALUES_MIN = 200
"""Committed values without which a run proves nothing; a slow machine takes longer for them."""

OF_TRANSACTIONS = SETTINGS | transaction_load.SETTINGS


@dataclass
class TransactionsWorld(RecordsWorld):
    """A `RecordsWorld` in which all records belong to transactions."""

    load: TransactionLoad | None = None
    verdict: str = ""
    """The account of the run, once it is over."""

    def strike(self, name: str, fault: Fault) -> None:
        self.meter.watch(CALM_VALUES, f"are committed before {name}", IN_SYNC_SECONDS_MAX)
        with ExitStack() as stack:
            if self.churn is not None:
                # A partition that moves has two replicas. Without one of them no transaction that
                # writes to it can end, which is most of them.
                stack.enter_context(self.churn.at_rest())
            self.round(cast("QuorumFault", fault))
        self.must_be_in_sync()
        assert self.load is not None
        self.load.continues()
        self.struck[name] += 1

    def records_go_on(self, count: int = 200) -> None:
        """While a fault lasts: `count` is that of `RecordsWorld`."""
        self.values_go_on(count // RECORDS_PER_VALUE)

    def values_go_on(self, count: int = 200) -> None:
        """Return once so many values more are committed."""
        assert self.load is not None
        try:
            super().records_go_on(count)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.load.endings()}") from None

    def assert_it_counts(self, faults: list[str]) -> None:
        assert self.load is not None
        assert self.meter.total() >= VALUES_MIN, f"void: {self.meter.total()} values"
        assert not [name for name in faults if not self.struck[name]], "void: a fault never struck"
        if self.churn is not None:
            assert self.churn.done["replicas moved"], "void: no replica was moved"
        self.load.assert_it_counts()

    def account(self, history: History | None = None) -> str:
        return (
            f"{len(self.ids)} nodes: {dict(self.struck)}, recovered in "
            f"{max(self.recovery_seconds, default=0):.1f} s at most, "
            f"{self.meter.per_second:.0f} committed values/s outside faults; {self.verdict}"
        )


@contextmanager
def transactions_world(
    directory: Path,
    nodes: int = 3,
    *,
    moves: bool = False,
    cluster_class: type[ProxiedCluster] = ProxiedCluster,
    seed: int = 1,
) -> Iterator[TransactionsWorld]:
    """A cluster with clients at work; everything is checked at the end.

    Args:
        directory: of the nodes.
        nodes: their number.
        moves: whether preferred leaders are elected all along, and replicas move between faults.
        cluster_class: how nodes are started.
        seed: of faults and clients.
    """
    members = [Member(n) for n in range(1, nodes + 1)]
    with ExitStack() as stack:
        cluster = stack.enter_context(cluster_class(directory, members, overrides=OF_TRANSACTIONS))
        creations = stack.enter_context(Creations(cluster))
        world = TransactionsWorld(cluster, creations, random.Random(seed))
        world.must_recover()
        for topic in transaction_load.TOPICS:
            cluster.create_topic(topic, partitions=transaction_load.PARTITIONS, replicas=REPLICAS)
        world.load = TransactionLoad(cluster, world.dice)
        world.meter = Meter(world.load.writers)  # type: ignore[arg-type]
        with world.load, ExitStack() as moving:
            if moves:
                world.churn = moving.enter_context(Churn(cluster, world.dice))
            yield world
            world.values_go_on()
            moving.close()
            world.must_be_in_sync()
        world.verdict = world.load.verdict()

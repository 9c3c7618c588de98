"""The checks of migrations whose planted bugs take long to show: M6 and M9."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.metadata.image import EMPTY_IMAGE, MigrationState
from sparkraft.simulation.checks.migration_checks import (
    CONTROLLER,
    EPOCH,
    MIGRATION,
    MigrationChecks,
)
from sparkraft.simulation.checks.znode_image import state_path
from sparkraft.simulation.scenarios.migration_endings import Ending
from sparkraft.simulation.world.nodes import Layout
from sparkraft.simulation.world.violation import Violation
from sparkraft.simulation.world.zookeeper_servers import OPERATOR
from sparkraft.zookeeper.requests import Check, Create
from tests.simulation.zookeeper_worlds import Tree, World, require

STATE = state_path("t", 0)
TOPIC_ID = Uuid(b"\5" * 16)


class Migrated(Tree):
    """ZooKeeper under a KRaft controller, n1, and the checker of its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.checks = MigrationChecks(World(), require, self.znodes)  # type: ignore[arg-type]
        claimed = (self.write(CONTROLLER, {}), self.write(EPOCH, b"1"), self.write(MIGRATION, {}))
        self.checks.on_written("n1", claimed)

    def write_state(self, leader_epoch: int, writer: str = "n1") -> None:
        write = self.write(STATE, {"leader": 1, "leader_epoch": leader_epoch, "isr": [1]})
        guards = (Check(path=EPOCH, version=0), Check(path=MIGRATION, version=0))
        self.checks.on_written(writer, (*guards, write))


@pytest.fixture
def migrated() -> Migrated:
    return Migrated()


# ---- M6


def test_the_leader_epoch_in_zookeeper_stays_or_rises(migrated: Migrated) -> None:
    for epoch in (3, 3, 4):
        migrated.write_state(epoch)


def test_the_leader_epoch_in_zookeeper_must_not_decrease(migrated: Migrated) -> None:
    migrated.write_state(3)
    with pytest.raises(Violation, match="M6"):
        migrated.write_state(2)


def test_a_topic_that_is_created_again_begins_at_leader_epoch_0(migrated: Migrated) -> None:
    migrated.write_state(3)
    migrated.delete(STATE)
    migrated.write_state(0)


def leads(checks: MigrationChecks, broker: int, leader_epoch: int) -> None:
    state = SimpleNamespace(topic="t", topic_id=TOPIC_ID, partition=0, leader_epoch=leader_epoch)
    one: Any = SimpleNamespace(id=broker, name=f"b{broker}", logs={})
    checks.on_leads(one, state)


def test_each_leader_epoch_has_a_leader(migrated: Migrated) -> None:
    for broker, epoch in ((101, 0), (101, 0), (102, 1), (101, 2)):
        leads(migrated.checks, broker, epoch)


def test_a_leader_epoch_must_not_have_two_leaders(migrated: Migrated) -> None:
    leads(migrated.checks, 101, 4)
    with pytest.raises(Violation, match="M6"):
        leads(migrated.checks, 102, 4)


# ---- M9


def test_controllers_must_not_write_after_a_migration_is_finalized(migrated: Migrated) -> None:
    migrated.write_state(0)
    migrated.checks.is_finalized = True
    with pytest.raises(Violation, match="M9"):
        migrated.write_state(1)
    with pytest.raises(Violation, match="M9"):
        migrated.write_state(1, writer="n2")


def test_operators_write_after_a_migration_is_finalized(migrated: Migrated) -> None:
    migrated.checks.is_finalized = True
    migrated.checks.on_written(OPERATOR, (migrated.write("/anything", {}),))
    # A controller that is started with the migration again waits for brokers.
    migrated.checks.on_written("n1", (Create(path=MIGRATION, data=b""),))


class Quorum:
    """A run whose controllers are without the migration; its time passes at once."""

    def __init__(self, migration: MigrationState | None, *, fenced: bool = False) -> None:
        """Prepare.

        Args:
            migration: the state in the metadata log; None: the quorum has no leader.
            fenced: whether the log has broker 101 as fenced.
        """
        brokers: Any = {101: SimpleNamespace(fenced=fenced)}
        state = migration or MigrationState.NONE
        image = EMPTY_IMAGE._replace(migration=state, brokers=brokers)
        publisher = SimpleNamespace(image=image)
        leader: Any = SimpleNamespace(
            name="n1", live_node=SimpleNamespace(_publisher=publisher),
            kill=lambda: None, start=lambda: None,
        )  # fmt: skip
        self.world: Any = SimpleNamespace(
            seed=1,
            layout=Layout(),
            draining=False,
            machines=[],
            leader=lambda: None if migration is None else leader,
            run_for=lambda _seconds, until=None: None,
            checks=SimpleNamespace(require=require),
        )
        self.ensemble: Any = None
        self.brokers: list[Any] = []
        self.checks = MigrationChecks(World(), require, Tree().znodes)  # type: ignore[arg-type]
        self.clients: Any = None

    def expire(self, name: str) -> None: ...

    def differences(self) -> list[str]:
        return []


def test_the_end_of_a_migration_is_in_the_metadata_log() -> None:
    quorum = Quorum(MigrationState.POST_MIGRATION)
    Ending(quorum)._finalize()
    assert quorum.checks.is_finalized, "later writes are violations"


@pytest.mark.parametrize(
    ("migration", "text"),
    [
        (MigrationState.MIGRATION, "the migration state is"),
        (None, "the quorum has no leader"),
    ],
)
def test_a_migration_that_does_not_end_fails(migration: MigrationState | None, text: str) -> None:
    with pytest.raises(Violation, match=f"M9: .*{text}"):
        Ending(Quorum(migration))._finalize()


@pytest.mark.parametrize(
    ("fenced", "cached", "text"),
    [
        (True, {}, r"\['b101'\] are fenced"),
        (False, {("old", 0): (101, 3)}, r"b101 has \['old'\] in its cache, the log has not"),
    ],
)
def test_brokers_must_follow_the_log_after_each_restart_of_a_controller(
    *, fenced: bool, cached: dict[tuple[str, int], tuple[int, int]], text: str
) -> None:
    quorum = Quorum(MigrationState.POST_MIGRATION, fenced=fenced)
    known: Any = {"id": 101, "name": "b101", "roles": {}, "cache": cached, "logs": {}}
    broker = SimpleNamespace(**known, kill=lambda: None, start=lambda **_: None)
    quorum.brokers.append(broker)
    with pytest.raises(Violation, match=f"M9: after the restart of n1: .*{text}"):
        Ending(quorum)._finalize()

"""The progress of a migration and its next step, as znodes show them."""

from enum import Enum
from typing import NamedTuple

from sparkraft.zookeeper.migration.tree import ZnodeTree
from sparkraft.zookeeper.znodes.brokers import BROKER_IDS
from sparkraft.zookeeper.znodes.cluster import CONTROLLER, MIGRATION


class Stage(Enum):
    """A stage of a migration; the value is its name."""

    ZOOKEEPER = "zookeeper"
    """No KRaft controller has been started with this ensemble."""
    WAITING = "waiting"
    """Controllers run; they wait for brokers, or have not copied everything yet."""
    DUAL_WRITE = "dual write"
    """A KRaft controller rules, and brokers in ZooKeeper mode are left."""
    KRAFT_BROKERS = "kraft brokers"
    """A KRaft controller rules, and no broker in ZooKeeper mode is left."""
    ROLLED_BACK = "rolled back"
    """A broker rules again, but `/migration` of the former attempt is left."""


class Progress(NamedTuple):
    """A stage and what belongs to it."""

    stage: Stage
    controller: str
    brokers: list[int]
    """In ZooKeeper mode, or started as such."""
    metadata_offset: int
    """The offset of the metadata log up to which ZooKeeper is equal; -1: nothing was copied."""

    @property
    def next_step(self) -> str:
        """The next step of the operator."""
        if self.stage is Stage.DUAL_WRITE:
            brokers = ", ".join(map(str, self.brokers))
            return f"restart brokers {brokers} in KRaft mode, one after another"
        return _ADVICE[self.stage]


_ADVICE = {
    Stage.ZOOKEEPER: (
        "`sparkraft zookeeper-migration check`; then start controllers with "
        "zookeeper.metadata.migration.enable=true"
    ),
    Stage.WAITING: (
        "restart each broker with zookeeper.metadata.migration.enable=true and "
        "controller.quorum.bootstrap.servers or controller.quorum.voters"
    ),
    Stage.KRAFT_BROKERS: (
        "to finalize, restart the controllers without zookeeper.metadata.migration.enable and "
        "zookeeper.connect; a roll-back is not possible after that"
    ),
    Stage.ROLLED_BACK: "delete /migration before another attempt",
}


def progress_of(tree: ZnodeTree) -> Progress:
    """Find out how far a migration is.

    Raises:
        ZnodeError: `/controller` or `/migration` is malformed.
    """
    controller, migration = tree.value(CONTROLLER), tree.value(MIGRATION)
    brokers = sorted(int(name) for name in tree.children(BROKER_IDS) if name.isdecimal())
    is_kraft = controller is not None and controller.kraft_epoch >= 0
    offset = -1 if migration is None else migration.metadata_offset
    if migration is None:
        stage = Stage.ZOOKEEPER
    elif offset < 0:
        stage = Stage.WAITING
    elif not is_kraft:
        stage = Stage.ROLLED_BACK
    else:
        stage = Stage.DUAL_WRITE if brokers else Stage.KRAFT_BROKERS
    kind = "KRaft controller" if is_kraft else "broker"
    shown = "none" if controller is None else f"{kind} {controller.broker}"
    return Progress(stage, shown, brokers, offset)

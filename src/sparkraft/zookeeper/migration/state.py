"""States of a controller that migrates a cluster, and why a state lasts (KIP-866).

Kafka 3.9's MigrationDriverState, without the states that last for one step only:

    INACTIVE ─► WAIT_FOR_CONTROLLERS ─► WAIT_FOR_BROKERS ─► BECOME_CONTROLLER ─► COPY ─►
    SYNCHRONIZE ─► DUAL_WRITE

A controller that becomes active after the copy goes from WAIT_FOR_CONTROLLERS to BECOME_CONTROLLER,
and from there to SYNCHRONIZE. Each state ends in INACTIVE if the leadership of the quorum is lost,
and in BECOME_CONTROLLER if another controller writes to ZooKeeper.
"""

from collections.abc import Collection
from enum import Enum

from sparkraft.metadata.features import CONTROLLER_REGISTRATION_LEVEL
from sparkraft.metadata.image import ClusterImage, MigrationState


class DriverState(Enum):
    """A state; the value is Kafka's name of it."""

    INACTIVE = "INACTIVE"
    """Another controller is the active one, or there is nothing to migrate."""
    WAIT_FOR_CONTROLLERS = "WAIT_FOR_CONTROLLER_QUORUM"
    """All voters must be ready for a migration."""
    WAIT_FOR_BROKERS = "WAIT_FOR_BROKERS"
    """All brokers must have registered, and all conditions must be met."""
    BECOME_CONTROLLER = "BECOME_CONTROLLER"
    """Take /controller."""
    COPY = "ZK_MIGRATION"
    """Copy all metadata into the metadata log, in one transaction."""
    SYNCHRONIZE = "SYNC_KRAFT_TO_ZK"
    """Make ZooKeeper equal to the metadata log, and send brokers everything."""
    DUAL_WRITE = "DUAL_WRITE"
    """Write each change to ZooKeeper, then send it to brokers in ZooKeeper mode."""


_STATE_NAMES = {
    MigrationState.NONE: "NONE",
    MigrationState.MIGRATION: "MIGRATION",
    MigrationState.PRE_MIGRATION: "PRE_MIGRATION",
    MigrationState.POST_MIGRATION: "POST_MIGRATION",
}


def name_of(state: int) -> str:
    """Kafka's name of a migration state."""
    return _STATE_NAMES.get(state, str(state))


def unready_controllers(image: ClusterImage, voters: Collection[int]) -> str | None:
    """Which voters cannot take part in a migration yet; None if all can.

    Below 3.7-IV0 controllers do not register, and all count as ready, as in Kafka 3.9
    (`QuorumFeatures.reasonAllControllersZkMigrationNotReady`).
    """
    if image.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        return None
    unready = [
        str(voter)
        for voter in sorted(voters)
        if voter not in image.controllers or not image.controllers[voter].zk_migration_ready
    ]
    if not unready:
        return None
    return f"controllers {', '.join(unready)} have not registered as ready for a migration"


def unready_brokers(
    image: ClusterImage, brokers: Collection[int], voters: Collection[int]
) -> str | None:
    """Why brokers of ZooKeeper cannot be migrated yet; None if all have registered with KRaft.

    Args:
        image: the controller's.
        brokers: registered in ZooKeeper.
        voters: of the quorum; Kafka does not notice that a broker has the id of one.
    """
    shared = sorted({*brokers}.intersection(voters))
    if shared:
        return f"node ids {', '.join(map(str, shared))} are those of brokers and of controllers"
    migrating = {each.id for each in image.brokers.values() if each.is_migrating_zk_broker}
    absent = [str(broker) for broker in sorted(brokers) if broker not in migrating]
    if absent:
        return f"brokers {', '.join(absent)} have not registered with this controller"
    return None if migrating else "no broker has registered with this controller"

"""Which broker coordinates a group or a transactional id."""

from collections.abc import Callable

from sparkraft.client.admin import Admin
from sparkraft.client.cluster import GROUP_COORDINATOR, TRANSACTION_COORDINATOR
from tests.support.clusters import Cluster

TRIES_MAX = 200


def coordinator_of(cluster: Cluster, key: str, *, kind: int) -> int:
    """The broker that coordinates `key`, once there is one."""

    async def work(admin: Admin) -> int:
        client = admin.cluster
        return await client.retrying(lambda: client.coordinator(key, kind=kind))

    return cluster.ask(work, timeout_ms=90_000)


def group_coordinator(cluster: Cluster, group: str) -> int:
    """The broker that coordinates the group."""
    return coordinator_of(cluster, group, kind=GROUP_COORDINATOR)


def transaction_coordinator(cluster: Cluster, transactional_id: str) -> int:
    """The broker that coordinates the transactional id."""
    return coordinator_of(cluster, transactional_id, kind=TRANSACTION_COORDINATOR)


def name_coordinated_by(
    cluster: Cluster, broker: int, prefix: str, of: Callable[[Cluster, str], int]
) -> str:
    """A name whose coordinator, by one of the functions above, is `broker`."""
    names = (f"{prefix}-{number}" for number in range(TRIES_MAX))
    return next(name for name in names if of(cluster, name) == broker)

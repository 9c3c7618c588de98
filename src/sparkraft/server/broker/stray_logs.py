"""Sets aside logs of earlier runs whose replicas are not assigned to this broker any more.

Their folders are renamed to `-stray` and never deleted by this node. Copies on their way to another
directory are deleted: the log itself is intact, or set aside.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.base.loop_work import LoopBound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.storage.log import PartitionLog
    from sparkraft.storage.log_dir import Steps
    from sparkraft.storage.log_manager import LogManager

    IsAssigned = Callable[[PartitionLog], bool]

log = logging.getLogger(__name__)

AT_ONCE: LoopBound = 1_000
"""Logs looked up between two chances to interrupt; each takes about 1 µs."""


class Replicas(Protocol):
    """The `ReplicaManager`, as far as it is used here."""

    image: "ClusterImage"
    log_manager: "LogManager"

    def is_assigned(self, topic_id: "Uuid", index: int) -> bool: ...
    def in_folders(self, topic: str, index: int, steps: "Steps[Any]") -> "Awaitable[bool]": ...


async def set_strays_aside(replicas: Replicas, is_assigned: "IsAssigned") -> None:
    """Rename logs, and delete copies, that are not assigned to this broker; once caught up.

    Assigned logs that could not be hosted, because a disk just failed, are left alone.

    Args:
        replicas: of this broker.
        is_assigned: whether a log or a copy is of a replica assigned to this broker; it is called
            again just before the log is renamed.
    """
    manager = replicas.log_manager
    works: list[Awaitable[bool]] = []
    for number, known in enumerate(list(manager.logs()), 1):
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
        if not is_assigned(known):
            log.warning("Setting %s aside: this broker is not a replica of its partition", known)
            steps = _set_aside(manager, known, is_assigned)
            works.append(replicas.in_folders(known.topic, known.partition, steps))
    for copy in manager.futures.all():
        if not _is_assigned_copy(copy, is_assigned):
            steps = _drop(manager, copy, is_assigned)
            works.append(replicas.in_folders(copy.topic, copy.partition, steps))
    for work in works:
        await work


def assigned_in_image(replicas: Replicas) -> "IsAssigned":
    """The logs that the newest image assigns to this broker."""

    def is_assigned(known: "PartitionLog") -> bool:
        topic_id = replicas.image.topics_by_name.get(known.topic)
        if topic_id is None or known.topic_id not in {None, topic_id}:
            return False
        return replicas.is_assigned(topic_id, known.partition)

    return is_assigned


def _set_aside(
    manager: "LogManager", known: "PartitionLog", is_assigned: "IsAssigned"
) -> "Steps[None]":
    if manager.get(known.topic, known.partition) is known and not is_assigned(known):
        yield from manager.mark_stray(known.topic, known.partition)


def _drop(manager: "LogManager", copy: "PartitionLog", is_assigned: "IsAssigned") -> "Steps[None]":
    futures = manager.futures
    known = futures.get(copy.topic, copy.partition)
    if known is copy and not _is_assigned_copy(copy, is_assigned):
        yield from futures.drop(copy.topic, copy.partition)


def _is_assigned_copy(copy: "PartitionLog", is_assigned: "IsAssigned") -> bool:
    """Whether the copy of a running move is of a replica that is still assigned here."""
    return copy.topic_id is not None and is_assigned(copy)

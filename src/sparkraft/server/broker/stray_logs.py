"""Sets aside logs of earlier runs whose replicas are not assigned to this broker any more.

Their folders are renamed to `-stray` and never deleted by this node. Copies on their way to another
directory are deleted: the log itself is intact, or set aside.
"""

import logging
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.storage.log import PartitionLog
    from sparkraft.storage.log_dir import Steps
    from sparkraft.storage.log_manager import LogManager

log = logging.getLogger(__name__)


class Replicas(Protocol):
    """The `ReplicaManager`, as far as it is used here."""

    image: "ClusterImage"
    log_manager: "LogManager"

    def is_assigned(self, topic_id: "Uuid", index: int) -> bool: ...
    def in_folders(self, topic: str, index: int, steps: "Steps[Any]") -> "Awaitable[bool]": ...


async def set_strays_aside(replicas: Replicas) -> None:
    """Rename logs, and delete copies, that are not assigned to this broker; once caught up.

    Assigned logs that could not be hosted, because a disk just failed, are left alone.
    """
    manager = replicas.log_manager
    works: list[Awaitable[bool]] = []
    for known in manager.logs():
        if not _is_assigned(replicas, known):
            log.warning("Setting %s aside: this broker is not a replica of its partition", known)
            steps = _set_aside(replicas, known)
            works.append(replicas.in_folders(known.topic, known.partition, steps))
    for copy in manager.futures.all():
        if not _is_assigned_copy(replicas, copy):
            steps = _drop(replicas, copy)
            works.append(replicas.in_folders(copy.topic, copy.partition, steps))
    for work in works:
        await work


def _set_aside(replicas: Replicas, known: "PartitionLog") -> "Steps[None]":
    manager = replicas.log_manager
    if manager.get(known.topic, known.partition) is known and not _is_assigned(replicas, known):
        yield from manager.mark_stray(known.topic, known.partition)


def _drop(replicas: Replicas, copy: "PartitionLog") -> "Steps[None]":
    futures = replicas.log_manager.futures
    known = futures.get(copy.topic, copy.partition)
    if known is copy and not _is_assigned_copy(replicas, copy):
        yield from futures.drop(copy.topic, copy.partition)


def _is_assigned(replicas: Replicas, known: "PartitionLog") -> bool:
    """Whether the log is of a replica assigned to this broker."""
    topic_id = replicas.image.topics_by_name.get(known.topic)
    if topic_id is None or known.topic_id not in {None, topic_id}:
        return False
    return replicas.is_assigned(topic_id, known.partition)


def _is_assigned_copy(replicas: Replicas, copy: "PartitionLog") -> bool:
    """Whether the copy of a running move is of a replica that is still assigned here."""
    return copy.topic_id is not None and replicas.is_assigned(copy.topic_id, copy.partition)

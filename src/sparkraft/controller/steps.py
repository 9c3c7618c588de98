"""Decisions whose work grows with the cluster, cut into pieces so that the node can serve others.

    def decide(...) -> Steps[Decision]:
        for topic, index, partition in (yield from find_partitions(image, wanted)):
            changes.change(...)
            yield CHANGE_UNITS
        return Decision(...)

A decision yields the units of work done since the last time; a unit is about 4 µs. It reads one
image throughout, so the driver makes no other decision in between: Kafka's controller also finishes
an event before the next one.
"""

from collections.abc import Callable, Generator
from typing import Final, TypeAlias, TypeVar

from sparkraft.base.loop_work import LoopBound
from sparkraft.base.ordering import in_order
from sparkraft.metadata.image import ClusterImage, Topic
from sparkraft.metadata.partition_state import PartitionState

T = TypeVar("T")

Steps: TypeAlias = Generator[int, None, T]
"""Work in pieces; yields units, returns its result."""

LocatedPartition: TypeAlias = tuple[Topic, int, PartitionState]
"""A topic, and the number and state of one of its partitions."""

CHANGE_UNITS: Final = 12
"""Units of a partition's change: 40 to 50 µs."""

PIECE_PARTITIONS: LoopBound = 256
"""Partitions that a scan examines between two yields: a tenth of a millisecond."""

_SCAN_UNITS = PIECE_PARTITIONS // 16


def find_partitions(
    image: ClusterImage, wanted: Callable[[Topic, PartitionState], bool], *, most: int | None = None
) -> Steps[list[LocatedPartition]]:
    """Find the partitions that `wanted` accepts, by topic name and partition number.

    Args:
        image: to scan.
        wanted: takes a topic and the state of one of its partitions.
        most: the scan ends with this many.
    """
    found: list[LocatedPartition] = []
    left = PIECE_PARTITIONS
    for name in (yield from in_order(image.topics_by_name)):
        topic = image.topics_by_id[image.topics_by_name[name]]
        for index, partition in topic.in_order():
            if wanted(topic, partition):
                found.append((topic, index, partition))
                if len(found) == most:
                    return found
            left -= 1
            if not left:
                yield _SCAN_UNITS
                left = PIECE_PARTITIONS
    return found

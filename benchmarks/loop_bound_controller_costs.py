"""Costs of the controller's decisions at the bounds of `loop_bounds`: scans, batches of records."""

from collections.abc import Callable

from benchmarks.loop_bound_costs import Costs, metadata_records, spent
from sparkraft.controller import steps
from sparkraft.controller.decision import RECORDS_PER_BATCH
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.protocol.framing import decode_metadata_record, encode_metadata_record
from sparkraft.protocol.messages.metadata_records import PartitionChangeRecord
from sparkraft.records.record import BatchBuilder, decode_records


def image_of(count: int) -> ClusterImage:
    """A topic with so many partitions, led by broker 1."""
    image = EMPTY_IMAGE
    for record in metadata_records(count + 1):
        image = apply(image, record)
    return image


def changes_of(image: ClusterImage) -> list[PartitionChangeRecord]:
    """Every partition loses its leader."""
    (topic,) = image.topics_in_order()
    return [
        PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=2, isr=[2, 3])
        for index, _ in topic.in_order()
    ]


def scan() -> Costs:
    count = steps.PIECE_PARTITIONS
    image = image_of(count)

    def work() -> None:
        steps.complete(steps.find_partitions(image, lambda _, partition: 1 in partition.isr))

    return {f"find {count} of {count} partitions": spent(work)}


def batch_of_a_decision() -> Costs:
    """What the controller does with it, and then the other nodes."""
    before = image_of(RECORDS_PER_BATCH)
    records = changes_of(before)

    def batch() -> bytes:
        builder = BatchBuilder(base_offset=1, leader_epoch=1)
        for record in records:
            builder.append(0, None, encode_metadata_record(record, 0))
        return builder.build()

    def append() -> None:
        image = before
        batch()
        for record in records:
            image = apply(image, record)

    written = batch()

    def publish() -> None:
        image = before
        for record in decode_records(memoryview(written)):
            image = apply(image, decode_metadata_record(record.value or b"")[0])

    changes = f"{RECORDS_PER_BATCH} changes of partitions"
    return {
        f"encode and replay {changes}": spent(append),
        f"decode and replay {changes}": spent(publish),
    }


COSTS: dict[str, Callable[[], Costs]] = {
    "controller.steps.PIECE_PARTITIONS": scan,
    "controller.decision.RECORDS_PER_BATCH": batch_of_a_decision,
}

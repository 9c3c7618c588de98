"""Costs of the controller's decisions and of brokers' reports, at the bounds of `loop_bounds`."""

# ruff: noqa: SLF001 (pieces of work are mostly private)

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from benchmarks.loop_bound_costs import Costs, metadata_records, spent
from sparkraft.base.ids import Uuid
from sparkraft.base.steps import complete
from sparkraft.controller import steps
from sparkraft.controller.controller import Controller
from sparkraft.controller.decision import RECORDS_MAX, RECORDS_PER_BATCH
from sparkraft.controller.decision_context import ControllerConfig
from sparkraft.metadata import replay
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.protocol.codec import encode
from sparkraft.protocol.framing import decode_metadata_record, encode_metadata_record
from sparkraft.protocol.messages.metadata_records import PartitionChangeRecord
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.server.broker import directory_assignments
from sparkraft.server.broker.directory_assignments import DirectoryAssignments
from sparkraft.server.broker.metadata_publisher import MetadataPublisher
from sparkraft.server.env import SystemEntropy


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
        complete(steps.find_partitions(image, lambda _, partition: 1 in partition.isr))

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


def assign_directories() -> Costs:
    """One replica of each topic, in two log directories."""
    config: Any = SimpleNamespace(node_id=1, number=lambda _key: 1_000)
    nothing: Any = None
    epoch: Any = SimpleNamespace(value=1)
    assignments = DirectoryAssignments(config, nothing, nothing, nothing, epoch)
    count = directory_assignments.ASSIGNMENTS_MAX
    batch: dict[tuple[bytes, int], Uuid] = {
        (number.to_bytes(16, "big"), 0): Uuid(bytes(15) + bytes([1 + number % 2]))
        for number in range(count)
    }
    what = f"make a request with {count:,} assigned directories"
    return {what: spent(lambda: encode(assignments._request(batch), 0))}


def replay_piece() -> Costs:
    count = replay.RECORDS_PER_PIECE
    image = image_of(count)
    records = changes_of(image)
    what = f"replay {count} of the records of a large batch"
    return {what: spent(lambda: next(replay.Replay(image).prepare(records)))}


def append_large() -> Costs:
    """The last piece: all others were encoded and replayed before."""
    image = image_of(RECORDS_MAX)
    records = changes_of(image)
    encoded = BatchBuilder()
    for record in records:
        encoded.append(0, None, encode_metadata_record(record, 0))
    controller = Controller(ControllerConfig(cluster_id="c", node_id=1), SystemEntropy())
    publisher = MetadataPublisher(controller)

    def append() -> None:
        assert encoded.build()
        controller._note(records, 0)

    def note() -> None:
        publisher._changed.clear()
        for record in records:
            publisher._note(record)

    count = f"{RECORDS_MAX:,} records"
    return {f"append a batch of {count}": spent(append), f"find topics in {count}": spent(note)}


COSTS: dict[str, Callable[[], Costs]] = {
    "controller.steps.PIECE_PARTITIONS": scan,
    "controller.decision.RECORDS_PER_BATCH": batch_of_a_decision,
    "controller.decision.RECORDS_MAX": append_large,
    "metadata.replay.RECORDS_PER_PIECE": replay_piece,
    "server.broker.directory_assignments.ASSIGNMENTS_MAX": assign_directories,
}

"""A long metadata log, written to the directory of a stopped node.

Creates topics, then changes partitions over and over: leaders, and replicas that leave the ISR and
return. The records have the sizes and the batches those that a controller writes in a cluster whose
brokers restart.
"""

from collections.abc import Iterator
from pathlib import Path

from sparkraft.base.ids import Uuid
from sparkraft.protocol.declare import Message
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages import metadata_records as records
from sparkraft.records.batch import BatchHeader, iter_batches
from sparkraft.records.record import BatchBuilder

TOPICS, PARTITIONS = 200, 50
"""10,000 partitions, of three replicas each."""

BATCH_RECORDS = 4


def replicas_of(partition: int) -> list[int]:
    """The replicas of a partition, on brokers 1 to 3."""
    return [1 + (partition + place) % 3 for place in range(3)]


def changes(ids: list[Uuid]) -> Iterator[tuple[Message, int]]:
    """Records with their versions, without end."""
    directories = [Uuid(bytes([0] * 15 + [n])) for n in (1, 2, 3)]
    for number, topic_id in enumerate(ids):
        yield records.TopicRecord(name=f"topic-{number:04}", topic_id=topic_id), 0
        for partition in range(PARTITIONS):
            replicas = replicas_of(partition)
            yield (
                records.PartitionRecord(
                    partition_id=partition,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[directories[n - 1] for n in replicas],
                ),
                1,
            )
    number = 0
    while True:
        partition = number * 13 % PARTITIONS
        replicas = replicas_of(partition)
        change = records.PartitionChangeRecord(
            partition_id=partition, topic_id=ids[number * 7 % TOPICS]
        )
        change.isr = replicas[:2] if number % 3 == 0 else replicas
        if number % 3 == 2:
            change.leader = replicas[number % 2]
        yield change, 2
        number += 1


def append_changes(log_dir: Path, count: int) -> None:
    """Append `count` records to the metadata log of a node that is stopped."""
    path = next((log_dir / "__cluster_metadata-0").glob("*.log"))
    raw, size, last = path.read_bytes(), 0, None
    for header, view in iter_batches(raw):
        last, size = header, size + len(view)
    assert last is not None, "the node has never been started"
    with path.open("r+b") as file:
        file.truncate(size)
        file.seek(size)
        for batch in _batches(last, count):
            file.write(batch)


def _batches(last: BatchHeader, count: int) -> Iterator[bytes]:
    offset, at_ms = last.next_offset, last.max_timestamp
    made = changes([Uuid((n + 1).to_bytes(16, "big")) for n in range(TOPICS)])
    for first in range(0, count, BATCH_RECORDS):
        builder = BatchBuilder(base_offset=offset + first, leader_epoch=last.partition_leader_epoch)
        for _ in range(min(BATCH_RECORDS, count - first)):
            record, version = next(made)
            builder.append(at_ms + first, None, encode_metadata_record(record, version))
        yield builder.build()

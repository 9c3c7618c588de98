"""`./bench loop bounds`: CPU time of one piece of work on the event loop at each of its bounds."""

import tempfile
import time
from collections.abc import Callable

from benchmarks.report import Row, Table
from sparkraft.base.ids import Uuid
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.protocol.codec import encode
from sparkraft.protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparkraft.records.record import BatchBuilder, decode_records
from sparkraft.records.validate import Rules, check_produced
from sparkraft.server.env import SystemClock, SystemEntropy
from sparkraft.storage.config import LogConfig
from sparkraft.storage.disk import OsDisk
from sparkraft.storage.log_manager import LogManager

PIECE_MS_MAX = 10.0
_TIMES = 7


def spent(work: Callable[[], object]) -> float:
    """CPU ms of one call: the best of a few."""
    found = []
    for _ in range(_TIMES):
        begun = time.process_time()
        work()
        found.append((time.process_time() - begun) * 1000)
    return min(found)


def records_batch(count: int, size: int) -> bytes:
    """`count` records of `size` bytes."""
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(0, None, bytes(size))
    return builder.build()


def metadata_of(partitions: int) -> MetadataResponse:
    """An answer about one topic of so many partitions."""
    listed = [
        MetadataResponsePartition(
            partition_index=index, leader_id=1, leader_epoch=3, replica_nodes=[1], isr_nodes=[1]
        )
        for index in range(partitions)
    ]
    topic = MetadataResponseTopic(name="t", topic_id=Uuid(bytes(16)), partitions=listed)
    return MetadataResponse(topics=[topic])


def create_folders(count: int) -> float:
    """CPU ms for creating `count` logs, each with its folder."""
    with tempfile.TemporaryDirectory() as folder:
        manager = LogManager(
            OsDisk(), [folder], LogConfig(), clock=SystemClock(), entropy=SystemEntropy()
        )
        manager.lock()
        manager.load()
        topic_id = Uuid(bytes(15) + b"\1")
        begun = time.process_time()
        for index in range(count):
            manager.get_or_create("t", index, topic_id)
        taken = (time.process_time() - begun) * 1000
        manager.close(clean=False)
        return taken


def bounds() -> int:
    """Print the cost at each bound; 1 if one is above 10 ms."""
    table = Table("One piece of work at each bound of LOOP_WORK_MAX")
    work = LOOP_WORK_MAX
    large = records_batch(1, work.bytes)
    many = records_batch(work.records, 100)
    rules = Rules(max_message_bytes=1 << 30, plain=True, walk_records=True)
    answer = metadata_of(work.partitions)
    for what, taken in (
        (f"{work.bytes:,} bytes: check a batch", spent(lambda: check_produced(large, rules, 0))),
        (f"{work.records:,} records: check them", spent(lambda: check_produced(many, rules, 0))),
        (f"{work.records:,} records: decode them", spent(lambda: list(decode_records(many)))),
        (
            f"{work.partitions:,} partitions: encode Metadata",
            spent(lambda: encode(answer, 12)),
        ),
        (f"{work.folders:,} folders: create logs", create_folders(work.folders)),
    ):
        table.add(Row(what, f"{taken:.2f} ms", "10 ms", taken / PIECE_MS_MAX, at_most=1))
    table.print()
    return 0 if table.met else 1

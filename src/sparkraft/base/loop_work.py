"""How much work one piece on the event loop may do.

All clients, heartbeats and votes of a node share one loop, so nothing on it may take more than
10 ms. Work that grows with its input is cut into pieces of at most these many units, or runs in a
thread through calls that release the interpreter (`server.loop_turns`).
"""

from typing import Final, NamedTuple, TypeAlias

LoopBound: TypeAlias = int
"""Type of the constants that bound one piece of work on the event loop, or one stretch of a thread
that keeps the interpreter. `./bench loop bounds` measures the cost at each of them; a test compares
its list with the source."""


class WorkMax(NamedTuple):
    """Units of work in one piece on the event loop."""

    bytes: int
    """Bytes copied, checksummed, encoded or decoded as a whole."""
    records: int
    """Records decoded, checked or rewritten one by one."""
    partitions: int
    """Partitions described, applied or scanned in memory."""
    folders: int
    """Log folders created, renamed or opened."""
    codec_bytes: int
    """Bytes of a batch that are compressed or decompressed on the loop: less than the cost of a
    change of threads. zstd can inflate 30,000-fold, so an eighth of it."""


LOOP_WORK_MAX: Final = WorkMax(
    bytes=4 << 20, records=5_000, partitions=1_000, folders=16, codec_bytes=2048
)
"""Less than 10 ms each: up to 2 µs a record (decoded in Python), 1 ns a byte, 4 µs a partition,
250 µs a folder. `./bench loop bounds` measures them."""

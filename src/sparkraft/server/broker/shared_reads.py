"""Records read for one consumer, kept for a moment for the others that want the same.

Consumers that wait at the end of a partition all want the bytes from the same offset to the same
high watermark. The first one reads them; the others get the same buffers.

    key: log, its truncations, fetch offset, visible end, whether mapped parts will do

Only reads that `max_bytes` did not cut off are kept: they are the same for every larger limit.
All are dropped every `KEPT_MS_MAX`, and the oldest beyond `BYTES_MAX`.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

from sparkraft.storage.log_view import ReadResult

if TYPE_CHECKING:
    from sparkraft.server.broker.timing_wheel import TimingWheel
    from sparkraft.storage.disk import FilePart
    from sparkraft.storage.log import PartitionLog

    Key = tuple[PartitionLog, int, int, int, bool]

COLD = ReadResult([], 0)
"""Returned by a read that would wait for a device."""

KEPT_MS_MAX = 500
"""Consumers that keep up fetch again within this time."""

BYTES_MAX = 16 << 20
"""Kept at once, mapped or not: the last 16 KiB of a thousand partitions."""


class SharedReads:
    """The recent reads of a broker's consumers.

    Attributes:
        reads: how many went to the logs.
        bytes: kept now.
    """

    def __init__(self, wheel: "TimingWheel") -> None:
        self.reads = 0
        self.bytes = 0
        self._wheel = wheel
        self._kept: OrderedDict[Key, ReadResult] = OrderedDict()

    def read(  # noqa: PLR0913 (as `ReadableLog.read`, and what to do if it would wait)
        self,
        log: "PartitionLog",
        offset: int,
        *,
        max_bytes: int,
        up_to: int,
        min_one_batch: bool,
        to_send: bool,
        cold: "list[FilePart] | None" = None,
    ) -> "ReadResult":
        """As `ReadableLog.read`; the buffers may be shared.

        If the read would wait for a device, nothing is read: the part of a file to warm first is
        added to `cold`, and `COLD` is returned. With None, the read may wait.

        Raises:
            KafkaError, StorageFault: as `ReadableLog.read`.
        """
        key = log, log.truncations, offset, up_to, to_send
        kept = self._kept.get(key)
        if (
            kept is not None
            and kept.size <= max_bytes
            and offset >= log.log_start_offset
            and log.fault is None
        ):
            return kept
        if cold is not None and (max_bytes > 0 or min_one_batch):
            part = log.cold_part(offset, max_bytes=max_bytes, up_to=up_to, to_send=to_send)
            if part is not None:
                cold.append(part)
                return COLD
        self.reads += 1
        found = log.read(
            offset,
            max_bytes=max_bytes,
            up_to=up_to,
            min_one_batch=min_one_batch,
            to_send=to_send,
        )
        if 0 < found.size < max_bytes:
            self._keep(key, found)
        return found

    def _keep(self, key: "Key", found: "ReadResult") -> None:
        kept = self._kept
        if not kept:
            self._wheel.add(KEPT_MS_MAX, self._clear)
        replaced = kept.pop(key, None)
        if replaced is not None:
            self.bytes -= replaced.size
        kept[key] = found
        self.bytes += found.size
        while self.bytes > BYTES_MAX:
            self.bytes -= kept.popitem(last=False)[1].size

    def _clear(self) -> None:
        self._kept.clear()
        self.bytes = 0

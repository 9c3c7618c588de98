"""Makes the image of a metadata snapshot in pieces, so that the event loop keeps running.

    batch of the file → records → image … footer → listeners prepare → image

Invariant: no listener uses the image before the footer of the file was read and all have prepared.
A load that is abandoned has no effect.

Not here: which listeners get the image, and what waits for it (`commit_publisher`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sparkraft.base.loop_work import LoopBound
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.records.record import decode_records

if TYPE_CHECKING:
    from sparkraft.storage.snapshot_files import SnapshotData, SnapshotId

RECORDS_PER_ITERATION: LoopBound = 200
"""Records decoded and applied in one event-loop iteration: 2 ms, twice that on a slow core."""

BYTES_PER_ITERATION: LoopBound = 1 << 16
"""Bytes of records after which no other record is decoded in the same iteration: partitions with
very many replicas have long records. One record is never split."""


Prepare = Callable[[ClusterImage], Iterator[None]]
"""The work of a listener, in pieces, before it gets the image (`SnapshotPreparer`)."""


class SnapshotLoad:
    """One snapshot's image in the making."""

    def __init__(
        self,
        snapshot: "SnapshotId",
        data: "SnapshotData",
        records_max: int,
        prepare: Sequence[Prepare] = (),
    ) -> None:
        """Read nothing yet.

        Args:
            snapshot: its id.
            data: its file.
            records_max: records in one piece.
            prepare: called in turn once the image is complete.
        """
        self.id = snapshot
        self._pieces = _pieces(snapshot, data, records_max, prepare)

    def advance(self) -> ClusterImage | None:
        """Do one piece of work; the image if this was the last one.

        Raises:
            DecodeError: the file is damaged, or has a record that this version does not know.
            InvariantBroken: a record does not fit the image.
        """
        return next(self._pieces)


def _pieces(
    snapshot: "SnapshotId", data: "SnapshotData", records_max: int, prepare: Sequence[Prepare]
) -> Iterator[ClusterImage | None]:
    image = EMPTY_IMAGE
    for batch in data.data_batches():
        yield None  # up to 8 MiB were read and checked
        records = size = 0
        for record in decode_records(batch):
            value = record.value or b""
            image = apply(image, decode_metadata_record(value)[0])
            records, size = records + 1, size + len(value)
            if records >= records_max or size >= BYTES_PER_ITERATION:
                yield None
                records = size = 0
    image = image.at(snapshot.offset - 1, snapshot.epoch)
    for each in prepare:
        yield from each(image)
        yield None
    yield image

"""Changes to built batches, as a leader makes them."""

from sparkraft.records.batch import HEAD_PATCH, LOG_OVERHEAD


def patch_in_place(batch: bytearray | memoryview, *, base_offset: int, leader_epoch: int) -> None:
    """Set the base offset and leader epoch of a writable batch; its CRC covers neither."""
    length = int.from_bytes(batch[8:LOG_OVERHEAD], "big", signed=True)
    HEAD_PATCH.pack_into(batch, 0, base_offset, length, leader_epoch)

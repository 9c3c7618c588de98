"""Which partition a record goes to, as Kafka's Java producer decides.

With a key: murmur2 of the key, modulo the number of partitions. Without: sticky, one partition for
a batch's worth of bytes, then another (KIP-480, KIP-794), so that batches fill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.base.env import Entropy

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, 32 bits, with the seed of Kafka's clients; unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition of every record with that key, while the topic keeps its size."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyChoice:
    """The partition for records without a key; stays until `batch_bytes` went there."""

    def __init__(self, entropy: Entropy, batch_bytes: int) -> None:
        """Choose by `entropy`."""
        self._entropy = entropy
        self._batch_bytes = batch_bytes
        self._current: dict[str, tuple[int, int]] = {}

    def choose(self, topic: str, available: Sequence[int], size: int) -> int:
        """A partition of `available` for a record of `size` bytes."""
        partition, spent = self._current.get(topic, (-1, 0))
        if partition not in available or spent >= self._batch_bytes:
            others = [p for p in available if p != partition] or list(available)
            partition, spent = others[self._entropy.below(len(others))], 0
        self._current[topic] = partition, spent + size
        return partition

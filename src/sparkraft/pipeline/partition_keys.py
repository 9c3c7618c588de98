"""Partitions of many keys at once: Kafka's murmur2 over an Arrow column.

The result equals `sparkraft.client.partitioner.murmur2`, and Java's
`org.apache.kafka.common.utils.Utils.murmur2` read as an unsigned number, for every key.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkraft.client.partitioner import murmur2

Hashes = npt.NDArray[np.uint32]

_SEED: Final = 0x9747B28C
_MIX: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)

_LONG_KEY_BYTES: Final = 256
"""Longer keys are rare and hashed one by one: each word of the longest costs a step for all."""


def partitions_of(keys: pa.Array[Any], partition_count: int) -> npt.NDArray[np.int64]:
    """The partition of each key, as all Kafka clients choose it; any for a null key."""
    positive = hashes_of(keys) & _POSITIVE
    return (positive % np.uint32(partition_count)).astype(np.int64)


def hashes_of(keys: pa.Array[Any]) -> Hashes:
    """The unsigned murmur2 of each key of a binary column; any number for a null key."""
    rows = len(keys)
    buffers: list[Any] = keys.buffers()
    edges = np.frombuffer(buffers[1], np.int32)[keys.offset : keys.offset + rows + 1]
    data = np.frombuffer(b"" if buffers[2] is None else buffers[2], np.uint8)
    at = edges[:-1].astype(np.int64)
    sizes = np.diff(edges).astype(np.int64)
    is_long = sizes > _LONG_KEY_BYTES
    hashed = _hashes(data, at, np.where(is_long, 0, sizes))
    for row in np.flatnonzero(is_long):
        hashed[row] = murmur2(data[at[row] : at[row] + sizes[row]].tobytes())
    return hashed


def _hashes(data: npt.NDArray[np.uint8], at: Any, sizes: Any) -> Hashes:
    mixed: Hashes = sizes.astype(np.uint32) ^ np.uint32(_SEED)
    words = sizes >> 2
    # A little-endian word at every byte: a word of a key may begin anywhere.
    every = max(len(data) - 3, 0)
    view: Any = np.ndarray(every, "<u4", data, strides=(1,)) if every else np.empty(0, "<u4")
    for number in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > number)
        word = view[at[rows] + 4 * number] * _MIX
        word ^= word >> np.uint32(24)
        mixed[rows] = mixed[rows] * _MIX ^ word * _MIX
    _mix_tails(data, at + 4 * words, sizes & 3, mixed)
    mixed ^= mixed >> np.uint32(13)
    mixed *= _MIX
    mixed ^= mixed >> np.uint32(15)
    return mixed


def _mix_tails(data: npt.NDArray[np.uint8], at: Any, sizes: Any, mixed: Hashes) -> None:
    """Add the one to three bytes after each key's last whole word, in place."""
    for byte in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > byte)
        mixed[rows] ^= data[at[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    mixed[sizes > 0] *= _MIX


def null_rows(keys: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """Whether each key is null."""
    found: npt.NDArray[np.bool_] = pc.is_null(keys).to_numpy(zero_copy_only=False)
    return found

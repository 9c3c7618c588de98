"""Decompression with pyarrow, for Spark's workers that lack lz4, zstandard or cramjam.

Not here: compression. Arrow links the blocks of lz4, which Java's reader refuses.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from sparkraft.base.errors import DecodeError

_CHUNK: Final = 1 << 20
_VARINT_BITS_MAX: Final = 32


def decompress_stream(
    name: Literal["lz4", "zstd"], data: bytes | memoryview, max_bytes: int
) -> bytes:
    """Decompress a frame of `lz4` or `zstd`; at most one chunk more than `max_bytes`."""
    import pyarrow as pa

    parts: list[bytes] = []
    total = 0
    source: Any = pa.BufferReader(pa.py_buffer(data))
    with pa.CompressedInputStream(source, name) as stream:
        while total <= max_bytes and (part := stream.read(_CHUNK)):
            parts.append(part)
            total += len(part)
    return b"".join(parts)


def decompress_snappy(block: memoryview, max_bytes: int) -> bytes:
    """Decompress a raw snappy block, which begins with its decompressed size.

    Raises:
        DecodeError: that size is above `max_bytes`, or no number.
    """
    import pyarrow as pa

    size = _claimed_size(block)
    if size > max_bytes:
        raise DecodeError(f"the batch inflates to more than {max_bytes} bytes")
    plain: bytes = pa.Codec("snappy").decompress(
        pa.py_buffer(block), decompressed_size=size, asbytes=True
    )
    return plain


def _claimed_size(block: memoryview) -> int:
    size = 0
    for shift, byte in zip(range(0, _VARINT_BITS_MAX, 7), block, strict=False):
        size |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 (the continuation bit)
            return size
    raise DecodeError("a snappy block without a size")

"""The four codecs, each bounded before it runs (a batch may claim to inflate without end).

Codec libraries are loaded at first use: a node that sees no lz4 never imports it. Spark's workers
may lack them and then decompress with pyarrow (`codecs_arrow`), or use zlib for gzip.

Snappy travels as Java writes it (xerial framing)::

    82 'SNAPPY' 00 | version i32 = 1 | compatible i32 = 1 | { length i32 | raw snappy block }*

and is read without the frame too, as librdkafka and others send it.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from sparkraft.base.errors import DecodeError
from sparkraft.records import codecs_arrow


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes; the names in lower case are `compression.type`'s."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class InflatedError(DecodeError):
    """The data would be longer than allowed."""


class BrokenDataError(DecodeError):
    """Compressed bytes that their codec cannot read; Kafka answers UNKNOWN_SERVER_ERROR."""


DECOMPRESSED_BYTES_MAX = 256 << 20
"""Most bytes that one batch may inflate to; Kafka has no bound, so it lies far above its use."""

_CHUNK = 1 << 20
_ZSTD_WINDOW_MAX = 1 << 27  # zstd's own default limit, what level 22 writes
_ZSTD_DEFAULT_LEVEL = 3
_LZ4_DEFAULT_LEVEL = 9  # Kafka's name for lz4's fast mode
_LZ4_RATIO_MAX = 255
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024
_GZIP_WBITS = 31
_ZLIB_NG_LEVELS = {1: 2}
"""zlib-ng's level 1 leaves up to a third more bytes than zlib's. Its level 2 leaves fewer, and is
still as fast as zlib's level 1."""


def compress(
    codec: Codec | int, data: bytes | bytearray | memoryview, level: int | None = None
) -> bytes:
    """`data` in `codec`; `level` is Kafka's `compression.<codec>.level`, None for its default."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _gzip_compress(data, level)
        case Codec.SNAPPY:
            return _snappy_compress(data)
        case Codec.LZ4:
            return _lz4_compress(data, level)
        case Codec.ZSTD:
            import zstandard

            packed = zstandard.ZstdCompressor(level=_ZSTD_DEFAULT_LEVEL if level is None else level)
            return packed.compress(data)
        case _:
            raise DecodeError(f"codec {codec} does not exist")


def decompress(
    codec: Codec | int, data: bytes | memoryview, max_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytes | memoryview:
    """The plain bytes; `DecodeError` for broken data and for more than `max_bytes` of it."""
    if codec == Codec.NONE:
        return data
    unpack = _UNPACKERS.get(codec)
    if unpack is None:
        raise DecodeError(f"codec {codec} does not exist")
    try:
        plain = unpack(data, max_bytes)
    except DecodeError:
        raise
    except Exception as error:  # each library has its own, some derive from Exception alone
        raise BrokenDataError(f"the {Codec(codec).name.lower()} data is broken: {error}") from error
    if len(plain) > max_bytes:
        raise _too_much(max_bytes)
    return plain


def _too_much(max_bytes: int) -> InflatedError:
    return InflatedError(f"the batch inflates to more than {max_bytes} bytes")


def _gzip_compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    if level is None:
        level = zlib.Z_DEFAULT_COMPRESSION
    try:
        from zlib_ng import zlib_ng
    except ModuleNotFoundError:
        return zlib.compress(data, level, _GZIP_WBITS)
    return zlib_ng.compress(data, _ZLIB_NG_LEVELS.get(level, level), _GZIP_WBITS)


def _gzip_unpacker() -> Any:
    try:
        from zlib_ng import zlib_ng
    except ModuleNotFoundError:
        return zlib.decompressobj(_GZIP_WBITS)
    return zlib_ng.decompressobj(_GZIP_WBITS)


def _gzip_decompress(data: bytes | memoryview, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    rest = bytes(data)
    while rest:  # a stream may hold several members; each takes at least 18 bytes
        unpacker = _gzip_unpacker()
        part: bytes = unpacker.decompress(rest, max_bytes + 1 - total)
        total += len(part)
        if total > max_bytes:
            raise _too_much(max_bytes)
        if not unpacker.eof:
            raise DecodeError("the gzip data ends too soon")
        parts.append(part)
        rest = unpacker.unused_data
    if not parts:
        raise DecodeError("the gzip data is empty")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_compress(data: bytes | bytearray | memoryview) -> bytes:
    import cramjam

    out = bytearray(_XERIAL_HEADER)
    view = memoryview(data)
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK]))
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)


def _snappy_decompress(data: bytes | memoryview, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, max_bytes)
    parts = []
    total = 0
    at = len(_XERIAL_HEADER)
    while at < len(view):
        size = int.from_bytes(view[at : at + 4], "big", signed=True)
        at += 4
        if size <= 0 or size > len(view) - at:
            raise DecodeError(f"a snappy block of {size} bytes with {len(view) - at} left")
        parts.append(_snappy_block(view[at : at + size], max_bytes - total))
        total += len(parts[-1])
        at += size
    return b"".join(parts)


def _snappy_block(block: memoryview, max_bytes: int) -> bytes:
    try:
        import cramjam
    except ModuleNotFoundError:
        return codecs_arrow.decompress_snappy(block, max_bytes)
    if cramjam.snappy.decompress_raw_len(block) > max_bytes:
        raise _too_much(max_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4_compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    import lz4.frame

    # Java's reader takes blocks one by one: they must be independent, 64 KiB, without checksums.
    packed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level in (None, _LZ4_DEFAULT_LEVEL) else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


def _lz4_decompress(data: bytes | memoryview, max_bytes: int) -> bytes:
    try:
        import lz4.frame
    except ModuleNotFoundError:
        return codecs_arrow.decompress_stream("lz4", data, max_bytes)
    unpacker: Any = lz4.frame.LZ4FrameDecompressor()
    bound = min(max_bytes + 1, len(data) * _LZ4_RATIO_MAX + _CHUNK)
    plain: bytes = unpacker.decompress(data, max_length=bound)
    if not unpacker.eof:
        if len(plain) > max_bytes:
            raise _too_much(max_bytes)
        raise BrokenDataError("the lz4 data ends too soon")
    return plain


def _zstd_decompress(data: bytes | memoryview, max_bytes: int) -> bytes:
    try:
        import zstandard
    except ModuleNotFoundError:
        return codecs_arrow.decompress_stream("zstd", data, max_bytes)
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX)
    parts = []
    total = 0
    with unpacker.stream_reader(data, read_across_frames=True) as reader:
        # Sizes claimed in the frame are not believed: memory is taken as bytes appear.
        chunk = min(_CHUNK, max(8 * len(data), 4096))
        while part := reader.read(chunk):
            parts.append(part)
            total += len(part)
            if total > max_bytes:
                raise _too_much(max_bytes)
    return parts[0] if len(parts) == 1 else b"".join(parts)


_UNPACKERS: Final[dict[int, Callable[[bytes | memoryview, int], bytes]]] = {
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}

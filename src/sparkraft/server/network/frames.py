"""The frames in what a connection receives, within the memory that requests may use.

    size i32 | request header | request …

* Bytes of an unfinished frame are kept as they arrive: a length prefix allocates nothing. All such
  frames share queued.max.request.bytes (`request_memory`); a connection that gets none is not read.
* Frames of one chunk are views of it. `put_aside` copies the start of an unfinished one.

Not here: when a frame is handled (`connection`).
"""

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.server.network.request_memory import RequestMemory

SMALL_CHUNK_BYTES = 4096
"""Smaller chunks are joined, so that a client that dribbles costs no object per byte."""

LENGTH_BYTES = 4

HEAD_BYTES = 64
"""The start of a frame that shows whether another node sent it."""

_SIZE = struct.Struct(">i")
_NOTHING = memoryview(b"")


class BadLengthError(Exception):
    """A length prefix that no request may have.

    Attributes:
        size: the length; negative or above the limit.
        start: the first bytes, prefix included.
    """

    def __init__(self, size: int, start: bytes) -> None:
        super().__init__(size)
        self.size = size
        self.start = start


class FrameReader:
    """The unhandled bytes of one connection. It waits for memory itself (`MemoryWaiter`).

    Attributes:
        bytes_max: the longest frame that is read.
        at: the position of the next frame in the current buffer.
        end: the size of that buffer.
        awaits_memory: the connection must not be read until there is memory.
    """

    __slots__ = (
        "_buffer",
        "_chunk_bytes",
        "_chunks",
        "_closed",
        "_holds_of",
        "_memory",
        "_needed",
        "_next_needed",
        "_on_give_way",
        "_on_memory",
        "_on_wait",
        "at",
        "awaits_memory",
        "bytes_max",
        "end",
    )

    def __init__(
        self,
        memory: "RequestMemory",
        bytes_max: int,
        *,
        on_wait: "Callable[[], None]",
        on_memory: "Callable[[], None]",
        on_give_way: "Callable[[], None]",
    ) -> None:
        """Start empty.

        Args:
            memory: shared with other connections.
            bytes_max: the longest frame, at first.
            on_wait: called when there is no memory for the frame that arrives.
            on_memory: called when there is again.
            on_give_way: called when others need the memory of a frame that does not arrive.
        """
        self._memory = memory
        self.bytes_max = bytes_max
        self._on_wait = on_wait
        self._on_memory = on_memory
        self._on_give_way = on_give_way
        self._chunks: list[bytes | bytearray] = []
        self._chunk_bytes = 0
        self._needed = 0
        """Bytes of the frame in `_chunks`, 4 until its length is known."""
        self._next_needed = 0
        """The same for the frame that `next` found incomplete in `_buffer`."""
        self._holds_of: RequestMemory | None = None
        """The memory that the frame in `_chunks` has taken from; given back once it is handled."""
        self._buffer = _NOTHING
        self._closed = False
        self.at = 0
        self.end = 0
        self.awaits_memory = False

    def limit(self, bytes_max: int) -> None:
        """Change the longest frame; those that wait in the buffer are checked against it, too."""
        self.bytes_max = bytes_max

    def feed(self, data: bytes) -> bool:
        """Take what was received; whether there may be a whole frame.

        Raises:
            BadLengthError: of the frame that starts in earlier chunks.
        """
        if self._chunks:
            self._gather(data)
            if self._chunk_bytes < self._needed:
                return False
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._chunk_bytes = 0
        if self.end:  # frames that wait for earlier responses or for a slow reader come first
            data = bytes(self._buffer[self.at :]) + data
        self._buffer = memoryview(data)
        self.at = 0
        self.end = len(data)
        return True

    def next(self) -> memoryview | None:
        """The next whole frame, without its length prefix; None if it has not all arrived.

        Raises:
            BadLengthError: the frame may not be that long.
        """
        at = self.at
        if self.end - at < LENGTH_BYTES:
            self._next_needed = LENGTH_BYTES
            return None
        (size,) = _SIZE.unpack_from(self._buffer, at)
        if not 0 <= size <= self.bytes_max:
            raise BadLengthError(size, bytes(self._buffer[at : at + 64]))
        frame_end = at + LENGTH_BYTES + size
        if frame_end > self.end:
            self._next_needed = frame_end - at
            return None
        self.at = frame_end
        return self._buffer[at + LENGTH_BYTES : frame_end]

    def put_back(self, frame: memoryview) -> None:
        """Have `next` return `frame`, the last one it returned, again."""
        self.at -= len(frame) + LENGTH_BYTES

    def put_aside(self) -> None:
        """Every whole frame is handled: keep the start of the next one, free the rest."""
        rest = bytes(self._buffer[self.at :]) if self.at < self.end else b""
        self._buffer = _NOTHING
        self.at = self.end = 0
        if not self._chunks:  # otherwise it is held for a frame that is still arriving
            self._give_back()
        if rest:
            self._chunks.append(rest)
            self._chunk_bytes = len(rest)
            self._needed = self._next_needed
            if self._needed > LENGTH_BYTES:
                self._take_memory()

    def close(self) -> None:
        """Forget everything and give the memory back."""
        self._closed = True
        self._chunks.clear()
        self._buffer = _NOTHING
        self.at = self.end = 0
        self._give_back()

    @property
    def received(self) -> int | None:
        """Bytes of the frame that took memory; None once all have arrived."""
        return self._chunk_bytes if self._chunks else None

    def give_way(self) -> None:
        """Others need the memory of the frame that does not arrive."""
        self._on_give_way()

    def on_memory(self, count: int) -> bool:
        """There are `count` bytes for the frame that waits; whether they are still wanted."""
        if self._closed:
            return False
        self.awaits_memory = False
        self._on_memory()
        return True

    def _gather(self, data: bytes) -> None:
        last = self._chunks[-1]
        if len(data) >= SMALL_CHUNK_BYTES:
            self._chunks.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._chunks.append(bytearray(data))
        self._chunk_bytes += len(data)
        if self._needed <= LENGTH_BYTES <= self._chunk_bytes:
            self._read_length(b"".join(self._chunks))

    def _read_length(self, start: bytes) -> None:
        (size,) = _SIZE.unpack_from(start)
        if not 0 <= size <= self.bytes_max:
            raise BadLengthError(size, start[:64])
        self._needed = LENGTH_BYTES + size
        self._take_memory()

    def _take_memory(self) -> None:
        """Take memory for the rest of the frame in `_chunks`, or wait until there is some."""
        if self._needed <= self._chunk_bytes:
            return
        memory = self._holds_of = self._memory.part_for(bytes(self._chunks[0][:HEAD_BYTES]))
        if not memory.take(self, self._needed):
            self.awaits_memory = True
            self._on_wait()

    def _give_back(self) -> None:
        memory, self._holds_of = self._holds_of, None
        if memory is not None:
            memory.give_back(self)

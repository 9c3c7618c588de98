"""An array of a response, encoded while its elements are found.

Handlers that work in slices fill it, so that neither the objects of a large response exist at once
nor all of it is encoded in one piece.
"""

from collections.abc import Generator, Iterable
from itertools import islice
from typing import Any

from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.codec import Encoded, encode_element_parts
from sparkraft.protocol.declare import Message

CHUNK: LoopBound = 250
"""Elements encoded at once: 0.3 ms."""


class EncodedArray:
    """Elements of one class in a message of class `cls`; their records are not copied."""

    __slots__ = ("_buffers", "_chunk", "_cls", "_version", "count")

    def __init__(self, cls: type[Message], version: int) -> None:
        self.count = 0
        self._cls = cls
        self._version = version
        self._chunk: list[Message] = []
        self._buffers: list[bytes | memoryview] = []

    def add(self, element: Message) -> None:
        """Add an element, which must not be changed any more."""
        self.count += 1
        self._chunk.append(element)
        if len(self._chunk) >= CHUNK:
            self._encode()

    def encoded(self) -> Any:
        """The array, for the message's field; an `Encoded`."""
        self._encode()
        return Encoded(self.count, self._buffers)

    def _encode(self) -> None:
        chunk, self._chunk = self._chunk, []
        if chunk:
            self._buffers += encode_element_parts(self._cls, self._version, chunk)


def encoded_in_pieces(
    cls: type[Message], version: int, elements: Iterable[Message]
) -> Generator[int, None, Any]:
    """The array of `elements`, an `Encoded`; they may be made while it is encoded."""
    found = EncodedArray(cls, version)
    rest = iter(elements)
    while chunk := list(islice(rest, CHUNK)):
        for element in chunk:
            found.add(element)
        yield len(chunk)
    return found.encoded()

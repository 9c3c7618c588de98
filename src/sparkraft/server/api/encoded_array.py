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

NESTED_CHUNK: LoopBound = 50
"""Elements with lists of their own that are made and encoded at once."""


class EncodedArray:
    """Elements of one class in a message of class `cls`; their records are not copied."""

    __slots__ = ("_at_once", "_buffers", "_chunk", "_cls", "_version", "count")

    def __init__(self, cls: type[Message], version: int, at_once: int = CHUNK) -> None:
        self.count = 0
        self._at_once = at_once
        self._cls = cls
        self._version = version
        self._chunk: list[Message] = []
        self._buffers: list[bytes | memoryview] = []

    def add(self, element: Message) -> None:
        """Add an element, which must not be changed any more."""
        self.count += 1
        self._chunk.append(element)
        if len(self._chunk) >= self._at_once:
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
    cls: type[Message], version: int, elements: Iterable[Message], count: int = CHUNK
) -> Generator[int, None, Any]:
    """The array of `elements`, an `Encoded`; `count` of them are encoded at once.

    They may be made while it is encoded. With fewer than `CHUNK` at once, each counts as several.
    """
    found = EncodedArray(cls, version, count)
    rest = iter(elements)
    while chunk := list(islice(rest, count)):
        for element in chunk:
            found.add(element)
        yield len(chunk) * CHUNK // count
    return found.encoded()


def encoded_and_released(
    cls: type[Message], version: int, elements: list[Any]
) -> Generator[int, None, Any]:
    """The same of a list that is not used afterwards: its elements are freed while it is encoded.

    Freeing a million of them at once takes as long as ten pieces of work.
    """
    found = EncodedArray(cls, version)
    for at in range(0, len(elements), CHUNK):
        chunk = elements[at : at + CHUNK]
        elements[at : at + CHUNK] = [None] * len(chunk)
        for element in chunk:
            found.add(element)
        yield len(chunk)
    return found.encoded()

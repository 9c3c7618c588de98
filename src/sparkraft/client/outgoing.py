"""Records of one partition on their way to its leader: batches, and the lane they wait in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

SentRecord = tuple[int, bytes | None, bytes | None, Any]
"""Timestamp in ms, key, value, headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The position of a written record; `offset` is -1 with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Batch:
    """Records of one partition; sealed once `data` is set."""

    __slots__ = (
        "base_sequence",
        "created",
        "data",
        "futures",
        "records",
        "size",
        "timestamps",
    )

    def __init__(self, created: float) -> None:
        self.created = created
        self.records: list[SentRecord] = []
        self.futures: list[asyncio.Future[Sent]] = []
        self.timestamps: list[int] = []
        self.size = 0
        self.data: bytes | None = None
        self.base_sequence = -1


class Lane:
    """The unsent batches of a partition; the last one takes more records."""

    __slots__ = ("batches", "next_sequence", "retry_at", "sending")

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.sending = False
        self.next_sequence = 0
        self.retry_at = 0.0

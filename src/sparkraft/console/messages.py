"""Records of a topic for a page: read by assigned partitions, never as a member of a group.

A scan is a sequence of documents, which the page receives as lines while it runs:
{"record": …}, {"progress": …}, and one {"end": …} with the positions to continue from. It stops at
the wanted number of records, at the end, and at `SCAN_SECONDS_MAX` or `SCAN_RECORDS_MAX`.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import deque
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.errors import sentence_of
from sparkraft.client.values import EARLIEST, LATEST
from sparkraft.console.filters import FilterError, compile_filter
from sparkraft.console.json_text import json_text
from sparkraft.console.message_command import command_of, note_of
from sparkraft.console.moment_text import parse_time
from sparkraft.console.parameters import Parameters
from sparkraft.console.record_text import FORMS, SHOWN_BYTES_MAX, WHOLE_BYTES_MAX, Forms

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.reading import ConsumedRecord
    from sparkraft.console.record_text import RecordText

Json = dict[str, Any]

SCAN_SECONDS_MAX = 10.0
SCAN_RECORDS_MAX = 100_000
"""A scan that stops here offers to continue."""

RECORDS_MAX = 1_000
"""Records that a page holds."""

EXPORT_RECORDS_MAX = 100_000

EXPORT_PIECE_BYTES = 64 << 10

SCANS_MAX = 8
"""Scans and tails that are prepared or run at once."""

TAIL_RECORDS_PER_SECOND = 200
"""Sent to a page that follows a topic; more are counted."""

WINDOW_RECORDS_MAX = 20_000
WINDOW_BYTES_MAX = 16 << 20
"""Records that are held in memory to merge partitions by time."""

PROGRESS_SECONDS = 0.3

ASKING_SECONDS_MAX = 4.0
"""A scan requests no more schemas of a registry that has taken this long: records may name any."""

_RECORDS_AT_ONCE = 100
_TURN_SECONDS = 0.01
"""Work on records, after which other pages have a turn."""

_POLL_MS = 500
_TAIL_POLL_MS = 200
_FETCH_WAIT_MS = 100
"""A window ends at the log's end only after the fetches in flight."""

_WINDOW_GROWTH = 4
_INT64_MAX = (1 << 63) - 1
_PARTITION_BYTES = 256 << 10
_FETCH_BYTES = 4 << 20

FORWARD = ("earliest", "from-offset", "from-time")
BACKWARD = ("latest", "to-offset", "to-time")
TAIL = "tail"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQuery:
    """Parameters of a scan."""

    topic: str
    partitions: frozenset[int] = frozenset()
    """Empty: all."""
    mode: str = "latest"
    at: int = 0
    """An offset or a time in ms, for the modes that have one."""
    count: int = 100
    filter: str = ""
    forms: Forms = field(default_factory=Forms)
    read_committed: bool = True
    size: int = SHOWN_BYTES_MAX
    """Bytes of a key, a value or a header that are shown."""
    resume: Mapping[int, int] = field(default_factory=dict)
    """Partition → position of an earlier scan that continues."""


def parse_query(values: Mapping[str, str], *, count_max: int = RECORDS_MAX) -> MessageQuery:
    """Return the query of a request.

    Raises:
        ValueError: a parameter is missing or wrong.
    """
    read = Parameters(values)
    mode = read.text("mode", "latest")
    forms = Forms(read.text("keyForm", "auto"), read.text("form", "auto"))
    if mode not in (*FORWARD, *BACKWARD, TAIL) or not {forms.key, forms.value} <= set(FORMS):
        raise ValueError(f"unknown mode {mode!r} or form {forms.key!r}, {forms.value!r}")
    count = read.number("count", 100, low=1, high=count_max)
    is_whole = values.get("whole") == "1"
    if is_whole and count != 1:
        raise ValueError("only a single record is shown as a whole")
    pairs = (each.split(":") for each in values.get("resume", "").split(",") if each)
    return MessageQuery(
        topic=read.text("topic"),
        partitions=read.numbers("partitions"),
        mode=mode,
        at=_place_of(mode, read),
        count=count,
        filter=read.text("filter", ""),
        forms=forms,
        read_committed=values.get("isolation") != "read_uncommitted",
        size=WHOLE_BYTES_MAX if is_whole else SHOWN_BYTES_MAX,
        resume={int(partition): int(offset) for partition, offset in pairs},
    )


def _place_of(mode: str, read: Parameters) -> int:
    """Return the offset or the time in ms at which a scan of that mode begins."""
    if not mode.endswith("time") or not read.text("at", "").strip():
        return read.number("at", 0, low=0, high=_INT64_MAX, shown="the offset")
    at_ms = parse_time(read.text("at"))
    if at_ms > _INT64_MAX:
        raise ValueError(f"{at_ms} ms is not a time")
    return at_ms


class ExportError(Exception):
    """An export cannot be completed."""


class TooManyScansError(Exception):
    """`SCANS_MAX` scans are prepared or run."""


class MessageReader:
    """Reads for all pages."""

    def __init__(self, cluster: Cluster, text: RecordText, *, bootstrap: str) -> None:
        """Read from `cluster`, which commands name as `bootstrap`."""
        self._cluster = cluster
        self._bootstrap = bootstrap
        self.text = text
        self._running: set[Scan] = set()

    async def prepare(self, query: MessageQuery) -> Scan:
        """Return a scan to `run`; until the end of that or `release` it is one of `SCANS_MAX`.

        Raises:
            TooManyScansError: `SCANS_MAX` scans are prepared or run.
            KafkaError: the topic does not exist, or its leaders do not respond.
            ValueError: the filter is not one.
        """
        if len(self._running) >= SCANS_MAX:
            raise TooManyScansError
        scan = Scan(self._cluster, query, self.text, bootstrap=self._bootstrap)
        self._running.add(scan)  # Before the first await: other requests are counted meanwhile.
        try:
            await scan.find_bounds()
        except BaseException:
            self.release(scan)
            raise
        return scan

    def release(self, scan: Scan) -> None:
        """Make room for another scan, also if this one never ran."""
        self._running.discard(scan)

    async def run(self, scan: Scan) -> AsyncIterator[ConsumedRecord | Json]:
        """The records that match, and documents of progress between them."""
        try:
            async with aclosing(scan.run()) as items:
                async for item in items:
                    yield item
        except KafkaError as error:
            yield {"problem": sentence_of(error)}
        finally:
            self.release(scan)


class _Batch:
    """Matching records of a window."""

    def __init__(self, *, bytes_max: int) -> None:
        self.records: dict[TopicPartition, list[ConsumedRecord]] = {}
        self.is_cut = False
        """Whether the time was up before the window was read."""
        self._bytes = 0
        self._bytes_max = bytes_max

    @property
    def is_too_large(self) -> bool:
        """Whether to read the window in smaller ones."""
        return self._bytes > self._bytes_max

    def add(self, tp: TopicPartition, record: ConsumedRecord) -> None:
        self.records.setdefault(tp, []).append(record)
        self._bytes += len(record.key or b"") + len(record.value or b"")


class Scan:
    """One scan. It reads windows of offsets, from `_position` towards the end or the beginning.

    A window's records are merged by time, but each partition's stay in the order of their offsets,
    so that `_position` can stand between any two of them.
    """

    def __init__(
        self, cluster: Cluster, query: MessageQuery, text: RecordText, *, bootstrap: str
    ) -> None:
        self._cluster = cluster
        self._command = {"command": command_of(query, bootstrap), "note": note_of(query)}
        self._query = query
        self._text = text
        self._predicate = compile_filter(query.filter) if query.filter.strip() else None
        self._first: dict[TopicPartition, int] = {}
        self._end: dict[TopicPartition, int] = {}
        self._position: dict[TopicPartition, int] = {}
        self._scanned = 0
        self._sent = 0
        self._errors = 0
        self._first_error = ""
        self._asked_seconds = 0.0
        """Time that a registry took to answer."""
        self._began = self._reported = asyncio.get_running_loop().time()

    async def find_bounds(self) -> None:
        """Find the offsets between which records are read, and where reading begins."""
        query = self._query
        found = (await Admin(self._cluster).describe_topics([query.topic]))[query.topic]
        if isinstance(found, KafkaError):
            raise found
        wanted = sorted(query.partitions or found.partitions)
        for index in wanted:
            if index not in found.partitions:
                detail = f"partition {index} does not exist"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
        led = [(query.topic, index) for index in wanted if found.partitions[index].leader >= 0]
        self._first = await self._offsets(dict.fromkeys(led, EARLIEST))
        self._end = await self._offsets(dict.fromkeys(led, LATEST))
        self._position = {tp: await self._begin(tp) for tp in self._end if tp in self._first}

    async def _offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        level = int(self._query.read_committed)
        found = await Admin(self._cluster).list_offsets(wanted, isolation_level=level)
        for one in found.values():
            if isinstance(one, KafkaError):
                raise one
        return {tp: one.offset for tp, one in found.items() if not isinstance(one, KafkaError)}

    async def _begin(self, tp: TopicPartition) -> int:
        """Forward: the first offset to read; backward: the one after the last."""
        query = self._query
        first, end = self._first[tp], self._end[tp]
        if tp[1] in query.resume:
            wanted = query.resume[tp[1]]
        elif query.mode in {"from-time", "to-time"}:
            at = query.at + (query.mode == "to-time")
            found = (await self._offsets({tp: at})).get(tp, -1)
            wanted = end if found < 0 else found
        else:
            wanted = {
                "earliest": first,
                "from-offset": query.at,
                "to-offset": query.at + 1,
            }.get(query.mode, end)
        return min(end, max(first, wanted))

    # ---- reading

    def run(self) -> AsyncGenerator[ConsumedRecord | Json]:
        """Matching records, progress, and the end."""
        return self._tail() if self._query.mode == TAIL else self._windows()

    async def _windows(self) -> AsyncGenerator[ConsumedRecord | Json]:
        is_forward = self._query.mode in FORWARD
        goal = self._end if is_forward else self._first
        size_max = max(1, WINDOW_RECORDS_MAX // max(1, len(goal)))
        size = min(size_max, self._query.count)
        while self._sent < self._query.count and not self._is_over() and self._position != goal:
            low, high = self._window(size, is_forward=is_forward)
            counted = self._scanned, self._errors
            batch = _Batch(bytes_max=WINDOW_BYTES_MAX if size > 1 else sys.maxsize)
            async with aclosing(self._read(batch, low, high)) as reading:
                async for progress in reading:
                    yield progress
            if batch.is_too_large:
                size = max(1, size // _WINDOW_GROWTH)
                self._scanned, self._errors = counted  # Its records are read again.
                continue
            if batch.is_cut:
                break  # The window is read again when the reader continues.
            self._position = high if is_forward else low
            for record in self._merged(batch, is_forward=is_forward):
                yield record
            size = min(size_max, size * _WINDOW_GROWTH)
        yield self._finished(is_done=self._position == goal)

    def _window(
        self, size: int, *, is_forward: bool
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        if is_forward:
            high = {tp: min(self._end[tp], at + size) for tp, at in self._position.items()}
            return dict(self._position), high
        low = {tp: max(self._first[tp], at - size) for tp, at in self._position.items()}
        return low, dict(self._position)

    def _merged(self, batch: _Batch, *, is_forward: bool) -> Iterator[ConsumedRecord]:
        """The records that are still wanted; `_position` moves back to those that are not."""
        lists = [batch.records[tp] for tp in sorted(batch.records)]
        merged = heapq.merge(
            *(each if is_forward else each[::-1] for each in lists),
            key=lambda record: record.timestamp,
            reverse=not is_forward,
        )
        for record in merged:
            if self._sent < self._query.count:
                self._sent += 1
                yield record
                continue
            tp = (record.topic, record.partition)
            if is_forward:
                self._position[tp] = min(self._position[tp], record.offset)
            else:
                self._position[tp] = max(self._position[tp], record.offset + 1)

    async def _read(
        self, batch: _Batch, low: dict[TopicPartition, int], high: dict[TopicPartition, int]
    ) -> AsyncGenerator[Json]:
        """Read the ranges into `batch`; yields progress."""
        left = {tp for tp, at in low.items() if at < high[tp]}
        async with self._consumer(low, left) as consumer:
            while left and not batch.is_too_large and not self._is_over():
                async for record in self._safe(await consumer.poll(_POLL_MS)):
                    tp = (record.topic, record.partition)
                    if tp not in left or record.offset >= high[tp]:
                        continue
                    if self._matches(record):
                        batch.add(tp, record)
                for tp in [tp for tp in left if (consumer.position(tp) or 0) >= high[tp]]:
                    left.discard(tp)
                    consumer.pause(tp)
                if self._must_report():
                    yield self._progress()
        batch.is_cut = bool(left)

    async def _tail(self) -> AsyncGenerator[ConsumedRecord | Json]:
        """Records as they arrive, at most `TAIL_RECORDS_PER_SECOND`.

        The newest ones wait until they may be sent, so that the last of a burst is always shown;
        the others are counted.
        """
        loop = asyncio.get_running_loop()
        allowance, passed, filled_at = float(TAIL_RECORDS_PER_SECOND), 0, loop.time()
        waiting: deque[ConsumedRecord] = deque()
        async with self._consumer(self._position, set(self._position)) as consumer:
            while True:
                async for record in self._safe(await consumer.poll(_TAIL_POLL_MS)):
                    if self._matches(record):
                        waiting.append(record)
                while len(waiting) > TAIL_RECORDS_PER_SECOND:
                    waiting.popleft()
                    passed += 1
                now = loop.time()
                allowance += (now - filled_at) * TAIL_RECORDS_PER_SECOND
                allowance, filled_at = min(allowance, float(TAIL_RECORDS_PER_SECOND)), now
                while waiting and allowance >= 1:
                    allowance -= 1
                    self._sent += 1
                    yield waiting.popleft()
                if self._must_report():
                    yield {"progress": {**self._progress()["progress"], "passed": passed}}

    @asynccontextmanager
    async def _consumer(
        self, positions: dict[TopicPartition, int], partitions: set[TopicPartition]
    ) -> AsyncIterator[Consumer]:
        settings = ConsumerSettings(
            auto_offset_reset="earliest",
            read_committed=self._query.read_committed,
            partition_bytes_max=_PARTITION_BYTES,
            fetch_bytes_max=_FETCH_BYTES,
            fetch_wait_ms_max=_FETCH_WAIT_MS,
        )
        async with Consumer(self._cluster, settings) as consumer:
            consumer.assign(partitions)
            for tp in partitions:
                consumer.seek(tp, positions[tp])
            yield consumer

    async def _safe(self, records: Sequence[ConsumedRecord]) -> AsyncGenerator[ConsumedRecord]:
        """The records without masked fields; other pages have their turns between them."""
        loop = asyncio.get_running_loop()
        for at in range(0, len(records), _RECORDS_AT_ONCE):
            some, began = records[at : at + _RECORDS_AT_ONCE], loop.time()
            safe = await self._text.safe(some, asks=self._asked_seconds < ASKING_SECONDS_MAX)
            self._asked_seconds += loop.time() - began
            began = loop.time()
            for record in safe:
                yield record
                if loop.time() - began > _TURN_SECONDS:
                    await asyncio.sleep(0)
                    began = loop.time()

    # ---- counting

    def _matches(self, record: ConsumedRecord) -> bool:
        self._scanned += 1
        if self._predicate is not None:
            try:
                if not self._predicate(self._text.variables(record, self._query.forms)):
                    return False
            except FilterError as error:
                self._errors += 1
                self._first_error = self._first_error or str(error)
                return False
        return True

    def _is_over(self) -> bool:
        elapsed = asyncio.get_running_loop().time() - self._began
        return self._scanned >= SCAN_RECORDS_MAX or elapsed >= SCAN_SECONDS_MAX

    def _must_report(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._reported < PROGRESS_SECONDS:
            return False
        self._reported = now
        return True

    def _progress(self) -> Json:
        return {
            "progress": {
                "scanned": self._scanned,
                "matched": self._sent,
                "errors": self._errors,
                "firstError": self._first_error,
                **self._command,
            }
        }

    def _finished(self, *, is_done: bool) -> Json:
        resume = ",".join(f"{tp[1]}:{at}" for tp, at in sorted(self._position.items()))
        return {"end": {**self._progress()["progress"], "isDone": is_done, "resume": resume}}


async def shown_lines(
    items: AsyncIterator[ConsumedRecord | Json], query: MessageQuery, text: RecordText
) -> AsyncIterator[bytes]:
    """The lines that a page receives."""
    shown = text.record_json
    async for item in items:
        line = (
            item
            if isinstance(item, dict)
            else {"record": shown(item, query.forms, size=query.size)}
        )
        yield f"{json_text(line)}\n".encode()


async def exported_lines(
    items: AsyncIterator[ConsumedRecord | Json], _query: MessageQuery, text: RecordText
) -> AsyncIterator[bytes]:
    """The records only, in pieces of `EXPORT_PIECE_BYTES` or more.

    Raises:
        ExportError: the cluster failed; the download then fails, too, instead of ending early.
    """
    lines: list[bytes] = []
    size = 0
    async for item in items:
        if isinstance(item, dict):
            if "problem" in item:
                raise ExportError(item["problem"])
            continue
        lines.append(text.exported(item))
        size += len(lines[-1])
        if size >= EXPORT_PIECE_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)

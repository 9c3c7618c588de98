"""The whole metadata log in this process: the cluster's state at any offset, and each change.

The log is fetched once, in pages, and then followed. It is kept compressed in *chapters* of about
`CHAPTER_RECORDS` changes, each with the saved state before it. A state is made from the nearest
saved one, so a step never replays more than a chapter; the last state is kept, so a step onwards
replays only what follows (`Walk`). Changes are numbered from 0; records that change nothing have no
number, so that an idle cluster takes no room. The next page is fetched while one is indexed.

The offsets and times of all changes are kept packed (`packed_numbers`), also those of dropped
chapters. The states of partitions share their tuples (`PastState.shared`).

Everything is valid for one cluster id and one log. If a node answers that its log diverges from the
last epoch that was read here, or belongs to another cluster, the log is indexed again.

Work of more than a millisecond runs in a thread (`Timeline.run`), one piece at a time.
"""

from __future__ import annotations

import asyncio
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.errors import sentence_of
from sparkraft.client.past.changes import Change, change_of, leader_change
from sparkraft.client.past.log import PastReader, apply_to, records_of
from sparkraft.client.past.state import LEADER_UNCHANGED, PastState
from sparkraft.console.packed_numbers import PackedNumbers
from sparkraft.console.unserved import RefusalTimer
from sparkraft.protocol.messages.metadata_records import NoOpRecord, PartitionChangeRecord
from sparkraft.records.batch import iter_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from sparkraft.client.cluster import Cluster
    from sparkraft.client.past.log import LogPage, LogRecord
    from sparkraft.records.batch import BatchHeader

    T = TypeVar("T")

CHAPTER_RECORDS = 5_000

BYTES_MAX = 64 << 20
"""Compressed log and states; the oldest chapters are dropped beyond it. About 5 million changes."""

PAGE_BYTES = 1 << 20
"""Of a request; the most that a node returns."""

SLICE_BYTES = 1 << 17
"""Of a page: indexed at once, in about 10 ms, so that steps do not wait long for it."""

FOLLOW_SECONDS = 1.0
"""A timeline that is older than this is brought up to date by the next request."""

BUCKETS_MAX = 256
"""Groups of adjacent changes that are counted for the drawing of the bar."""

EVERYTHING = range(1 << 62)

COMPRESSION = 1
"""zlib's fastest level makes metadata five times smaller."""


@dataclass(slots=True)
class Chapter:
    """Adjacent batches of the log.

    Attributes:
        first_offset: the first record that is not in the saved state.
        first_change: the number of its first change.
        saved: the compressed state before it.
        batches: its batches, compressed once it is complete.
    """

    first_offset: int
    first_change: int
    saved: bytes
    batches: bytes | bytearray = field(default_factory=bytearray)
    is_complete: bool = False

    def state(self) -> PastState:
        """The state before the chapter."""
        return PastState.restored(zlib.decompress(self.saved))

    def records(self) -> Iterator[LogRecord]:
        """Its records that change something, decoded as they are taken."""
        raw = zlib.decompress(self.batches) if self.is_complete else bytes(self.batches)
        for header, view in iter_batches(raw, partial_tail=False):
            for each in records_of(header, view, EVERYTHING):
                if type(each.record) is not NoOpRecord and each.offset >= self.first_offset:
                    yield each

    def complete(self) -> None:
        """Compress the batches; none follow."""
        self.batches = zlib.compress(bytes(self.batches), COMPRESSION)
        self.is_complete = True

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self.saved) + len(self.batches)


class ChangeIndex:
    """Offset and time of each change, and how many there are in each part of the log."""

    def __init__(self) -> None:
        self.offsets = PackedNumbers()
        self.times = PackedNumbers()
        self.bucket_size = 1
        self.buckets: list[int] = []
        """Per `bucket_size` changes: how many are elections of a controller or of a leader."""
        self._room = 0
        """Changes that the last bucket still takes."""

    def add(self, each: LogRecord) -> None:
        """Number the next change."""
        if self._room == 0:
            self._add_bucket()
        self._room -= 1
        self.offsets.append(each.offset)
        self.times.append(each.at_ms)
        self.buckets[-1] += _is_election(each)

    def _add_bucket(self) -> None:
        if len(self.buckets) == BUCKETS_MAX:
            pairs = zip(self.buckets[::2], self.buckets[1::2], strict=True)
            self.buckets = [a + b for a, b in pairs]
            self.bucket_size *= 2
        self.buckets.append(0)
        self._room = self.bucket_size

    def last_at_or_before(self, offset: int) -> int:
        """The number of the last change up to an offset; -1 if there is none."""
        return self.offsets.last_up_to(offset)

    def last_at_time(self, at_ms: int) -> int:
        """The number of the last change up to a time; -1 if there is none."""
        return self.times.last_up_to(at_ms)


class Walk:
    """The state at an offset of a chapter, which moves onwards; the records are decoded once.

    An open chapter grows: a walk has only the batches of its start (`is_of`).
    """

    def __init__(self, chapter: Chapter) -> None:
        self.chapter = chapter
        self._size = (len(chapter.batches), chapter.is_complete)
        self.state = chapter.state()
        self._decoded: list[LogRecord] = []
        self._rest = chapter.records()
        self._applied = 0

    def is_of(self, chapter: Chapter) -> bool:
        """Whether it walks this chapter as it is now."""
        return self.chapter is chapter and self._size == (
            len(chapter.batches), chapter.is_complete,
        )  # fmt: skip

    def record(self, at: int) -> LogRecord | None:
        """A record of the chapter by its place; None after the last one."""
        while at >= len(self._decoded):
            following = next(self._rest, None)
            if following is None:
                return None
            self._decoded.append(following)
        return self._decoded[at]

    def move_to(self, offset: int) -> PastState:
        """Apply the records up to an offset; return the state, which the caller must not change."""
        if offset < self.state.offset:
            self.state, self._applied = self.chapter.state(), 0
        while (each := self.record(self._applied)) is not None and each.offset <= offset:
            apply_to(self.state, each)
            self._applied += 1
        if offset > self.state.offset:
            self.state.move_to(offset, self.state.epoch, self.state.at_ms)
        return self.state

    def next_change(self) -> tuple[LogRecord, Change] | None:
        """Apply the next record; return it with its change in words; None after the last one."""
        each = self.record(self._applied)
        if each is None:
            return None
        found = (each, _words(self.state, each))
        apply_to(self.state, each)
        self._applied += 1
        return found


def _is_election(each: LogRecord) -> bool:
    record = each.record
    if isinstance(record, PartitionChangeRecord):
        return bool(record.leader != LEADER_UNCHANGED)
    return record is None


class Timeline:
    """See the module docstring."""

    def __init__(self, cluster: Cluster) -> None:
        self._reader = PastReader(cluster)
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._indexed_at = float("-inf")
        self._refusals = RefusalTimer()
        self.problem = ""
        """Why the log cannot be read; empty if it can."""
        self.generation = 0
        """How often the log was read from its start: it is another one each time."""
        self._clear("", 0, PastState())

    def _clear(self, cluster_id: str, start_offset: int, state: PastState) -> None:
        self.generation += 1
        self.cluster_id = cluster_id
        self.start_offset = start_offset
        self.next_offset = state.offset + 1
        self.high_watermark = -1
        self.index = ChangeIndex()
        self._latest = state
        self._is_empty = not cluster_id
        self._chapters: list[Chapter] = []
        self._open_chapter()
        self._walk: Walk | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all that was committed at the last request is indexed."""
        return 0 <= self.high_watermark <= self.next_offset

    @property
    def first_change(self) -> int:
        """The number of the first change that is kept."""
        return self._chapters[0].first_change

    @property
    def latest(self) -> PastState:
        """The state after all that is indexed; the caller must not change it."""
        return self._latest

    # ---- fetching

    def follow(self) -> None:
        """Bring the timeline up to date in the background, unless that is under way."""
        now = asyncio.get_running_loop().time()
        is_running = self._task is not None and not self._task.done()
        is_due = now - self._indexed_at >= FOLLOW_SECONDS and self._refusals.is_due(now)
        if not is_running and is_due:
            self._indexed_at = now
            self._task = asyncio.create_task(self._index())

    async def up_to_date(self) -> None:
        """Wait until the timeline was brought up to date."""
        self.follow()
        if self._task is not None:
            await asyncio.shield(self._task)

    async def reach(self, offset: int) -> None:
        """Wait until the timeline has an offset; no wait if it has it already."""
        if offset < self.next_offset:
            self.follow()
        else:
            await self.up_to_date()

    async def _index(self) -> None:
        loop, is_refused = asyncio.get_running_loop(), False
        try:
            while not await self._index_pages():
                await self._start()
            self.problem = ""
        except KafkaError as error:
            self.problem = sentence_of(error)
            is_refused = error.code is ErrorCode.UNSUPPORTED_VERSION
        self._indexed_at = loop.time()
        self._refusals.count(self._indexed_at, is_refused=is_refused)

    async def _index_pages(self) -> bool:
        """Index all that is committed; return False if the log must be read from its start.

        It must if it was cleaned up to here, or if it is the log of another cluster.
        """
        if self._is_empty:
            await self._start()
        page = await self._page(self.next_offset, self._latest.epoch)
        while not isinstance(page, KafkaError):
            if page.range.cluster_id != self.cluster_id or page.diverging_end_offset >= 0:
                return False
            self.high_watermark = page.range.high_watermark
            if page.next_offset >= self.high_watermark or page.next_offset == page.from_offset:
                await self._add_page(page)
                return True
            epoch = page.next_epoch if page.next_epoch >= 0 else self._latest.epoch
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(self._page(page.next_offset, epoch))
                await self._add_page(page)
            page = following.result()
        if page.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise page
        return False

    async def _page(self, first: int, epoch: int) -> LogPage | KafkaError:
        try:
            return await self._reader.page(
                from_offset=first, last_fetched_epoch=epoch, max_bytes=PAGE_BYTES
            )
        except KafkaError as error:
            return error

    async def _start(self) -> None:
        """Begin at the first offset that the node has."""
        page = await self._reader.page(to_offset=0)
        start = page.range.start_offset
        state = PastState()
        if start > 0:
            state, _ = await self._reader.image(at_offset=start - 1)
        async with self._lock:
            self._clear(page.range.cluster_id, start, state)

    async def run(self, work: Callable[[], T]) -> T:
        """Run synchronous work in a thread, alone."""
        async with self._lock:
            return await asyncio.to_thread(work)

    async def as_of(self, offset: int, make: Callable[[PastState], T]) -> T:
        """Return the result of `make` for the cluster as of an offset, in a thread.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE if the offset is not in the timeline.
        """
        await self.reach(offset)
        return await self.run(lambda: make(self.state_at(offset)))

    # ---- indexing

    async def _add_page(self, page: LogPage) -> None:
        batches = page.batches()
        while await self.run(lambda: self._add(batches)):
            pass
        await self.run(lambda: self._pass_over(page))

    def _pass_over(self, page: LogPage) -> None:
        """Move to the end of a page: batches that change nothing are not in it."""
        self.next_offset = page.next_offset
        if page.next_ms >= 0:
            self._latest.move_to(page.next_offset - 1, page.next_epoch, page.next_ms)

    def _add(self, batches: Iterator[tuple[BatchHeader, memoryview]]) -> bool:
        """Index the next `SLICE_BYTES`; return whether there may be more."""
        size = 0
        for header, view in batches:
            if header.last_offset < self.next_offset:
                continue
            self._chapters[-1].batches += view
            for each in records_of(header, view, range(self.next_offset, EVERYTHING.stop)):
                if type(each.record) is not NoOpRecord:
                    self.index.add(each)
                apply_to(self._latest, each)
            self._latest.move_to(
                header.last_offset, header.partition_leader_epoch, header.max_timestamp
            )
            self.next_offset = header.next_offset
            if len(self.index.offsets) - self._chapters[-1].first_change >= CHAPTER_RECORDS:
                self._next_chapter()
            size += len(view)
            if size >= SLICE_BYTES:
                return True
        return False

    def _next_chapter(self) -> None:
        if self._latest.in_transaction:
            return
        self._chapters[-1].complete()
        self._open_chapter()
        while sum(chapter.size for chapter in self._chapters) > BYTES_MAX:
            del self._chapters[0]

    def _open_chapter(self) -> None:
        saved = zlib.compress(self._latest.saved(), COMPRESSION)
        self._chapters.append(Chapter(self._latest.offset + 1, len(self.index.offsets), saved))

    # ---- reading, in a thread (`run`)

    def state_at(self, offset: int) -> PastState:
        """The cluster as of an offset, until the next call; the caller must not change it.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE if the offset is not in the timeline.
        """
        return self._walk_of(self._chapter_of(offset)).move_to(offset)

    def state_kept(self, offset: int) -> PastState:
        """The same, as a state of its own that later calls leave alone."""
        return Walk(self._chapter_of(offset)).move_to(offset)

    def changes(self, first: int, count: int) -> list[tuple[LogRecord, Change]]:
        """Changes in words, from number `first` on; fewer at the end of the timeline."""
        found: list[tuple[LogRecord, Change]] = []
        offsets = self.index.offsets
        first = max(first, self._chapters[0].first_change)
        if first >= len(offsets):
            return found
        chapter = self._chapter_of(offsets[first])
        walk = self._walk_of(chapter)
        walk.move_to(offsets[first] - 1)
        while len(found) < count:
            following = walk.next_change()
            if following is not None:
                found.append(following)
                continue
            at = self._chapters.index(chapter) + 1
            if at == len(self._chapters):
                break
            chapter = self._chapters[at]
            walk = self._walk_of(chapter)
            walk.move_to(chapter.first_offset - 1)
        return found

    def _chapter_of(self, offset: int) -> Chapter:
        first = self._chapters[0].first_offset - 1
        if not first <= offset < max(self.next_offset, first + 1):
            wrong = f"offset {offset} is not within [{first}, {self.next_offset - 1}]"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, self.problem or wrong)
        at = bisect_right(self._chapters, offset, key=lambda chapter: chapter.first_offset)
        return self._chapters[max(0, at - 1)]

    def _walk_of(self, chapter: Chapter) -> Walk:
        """The walk of the last call if it is of this chapter, else a new one."""
        if self._walk is None or not self._walk.is_of(chapter):
            self._walk = Walk(chapter)
        return self._walk


def _words(state: PastState, each: LogRecord) -> Change:
    if each.record is None:
        return leader_change(each.leader_id, each.epoch)
    found = change_of(state, each.record)
    return found or Change("other", "", type(each.record).__name__)

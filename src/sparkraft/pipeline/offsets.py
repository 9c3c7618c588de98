"""Which offsets a batch covers, and how they are dealt out to tasks; nothing here asks a broker.

Offsets travel as the official connector's JSON, `{"topic":{"0":23,"1":0}}`, and lie in the
checkpoint in that form. `start` is inclusive, `end` exclusive everywhere.

Invariants:
    * A limit never cuts a batch to nothing while there is something to read.
    * `deal` depends on its arguments alone: planning a batch again gives the same tasks.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from sparkraft.base.ids import TopicPartition
from sparkraft.pipeline.places import EARLIEST, LATEST, Bound, ByTimestamp, OptionError

Offsets = Mapping[TopicPartition, int]


class Range(NamedTuple):
    """A stretch of one partition: `start` <= offset < `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets; a compacted topic or one with transactions has fewer records."""
        return self.end - self.start


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The official form, topics and partitions in order."""
    shaped: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        shaped.setdefault(topic, {})[str(partition)] = offset
    return shaped


def from_json(shaped: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Back from the official form."""
    return {
        (topic, int(partition)): offset
        for topic, partitions in shaped.items()
        for partition, offset in partitions.items()
    }


def lowest(values: Iterable[Any]) -> dict[TopicPartition, int]:
    """The offsets of sources; a partition that several read counts once, at the lowest offset.

    Args:
        values: of each source, JSON as text or read; other sources have other forms.
    """
    found: dict[TopicPartition, int] = {}
    for value in values:
        for each, offset in _offsets(value).items():
            found[each] = min(offset, found.get(each, offset))
    return found


def _offsets(value: Any) -> dict[TopicPartition, int]:
    shaped = json.loads(value) if isinstance(value, str) else value
    is_ours = isinstance(shaped, dict) and all(isinstance(each, dict) for each in shaped.values())
    return from_json(shaped) if is_ours else {}


# where to start and end


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """A bound applied to real partitions.

    Use: `fixed` are offsets as given; `lookups` are for ListOffsets, by constant or by time.
    """

    fixed: dict[TopicPartition, int]
    lookups: dict[TopicPartition, int]


def places(bound: Bound, partitions: Iterable[TopicPartition], name: str) -> Places:
    """Return the bound of each partition; `OptionError` if one is missing or unknown."""
    wanted = sorted(partitions)
    by_time = isinstance(bound, ByTimestamp)
    _check_known(bound, wanted, name)
    fixed, lookups = {}, {}
    for topic, partition in wanted:
        place = _place(bound, topic, partition, name)
        if by_time or place in (EARLIEST, LATEST):
            lookups[topic, partition] = place
        else:
            fixed[topic, partition] = place
    return Places(fixed=fixed, lookups=lookups)


def _place(bound: Bound, topic: str, partition: int, name: str) -> int:
    if bound.everywhere is not None:
        return bound.everywhere
    said = bound.by_topic.get(topic)
    if isinstance(said, int):
        return said
    if said is None or partition not in said:
        raise OptionError(
            f"{name} has no offset for {topic}-{partition}: name every partition, "
            f'or the whole topic as in {{"{topic}": "earliest"}}'
        )
    return said[partition]


def _check_known(bound: Bound, wanted: Sequence[TopicPartition], name: str) -> None:
    known = set(wanted)
    topics = {topic for topic, _ in wanted}
    for topic, said in bound.by_topic.items():
        strange = [] if isinstance(said, int) else [p for p in said if (topic, p) not in known]
        if topic not in topics or strange:
            which = f"{topic}-{strange[0]}" if strange else topic
            raise OptionError(f"{name} names {which}, which is not read")


# how much to read


def limited(
    start: Offsets, latest: Offsets, *, budget: float, weight: Offsets | Mapping[Any, float]
) -> dict[TopicPartition, int]:
    """The end of a batch of at most `budget`, shared out in proportion to what waits.

    Every partition gets one before any gets more, so that small ones don't starve.
    The budget is in offsets or bytes; `weight` is the cost of one offset of a partition, 1 if
    missing.
    """
    waiting = _waiting(start, latest)
    total = sum(size * weight.get(each, 1) for each, size in waiting.items())
    if total <= budget:
        return dict(latest)
    weights = {each: weight.get(each, 1) for each in waiting}
    first = int(sum(weights.values()) <= budget)
    reserved = first * sum(weights.values())
    share = (budget - reserved) / (total - reserved) if total > reserved else 0.0
    taken = {each: first + int((size - first) * share) for each, size in waiting.items()}
    left = budget - sum(number * weights[each] for each, number in taken.items())
    for each in sorted(waiting, key=lambda each: (-waiting[each], each)):
        if weights[each] <= left and taken[each] < waiting[each]:
            taken[each] += 1
            left -= weights[each]
    if not any(taken.values()):
        taken[max(waiting, key=lambda each: (waiting[each], each))] = 1
    return _ends(start, latest, taken)


_TIME_MS_MAX: Final = 1 << 42
"""The year 2109: above every timestamp that is one."""

_GOOD_ENOUGH: Final = 0.9
"""Bisecting stops when this share of the budget is used."""


def limited_by_time(
    start: Offsets,
    latest: Offsets,
    *,
    budget: float,
    weight: Mapping[TopicPartition, float],
    offsets_at: Callable[[int], Offsets],
) -> dict[TopicPartition, int]:
    """As `limited`, but every partition is cut at the same record time.

    So no partition runs ahead of another in event time, and a watermark drops nothing only
    because one partition was read faster (`alignTimestamps`). `offsets_at` gives the first
    offsets at a time (milliseconds) or later, -1 if there is none.
    """
    if _cost(start, latest, weight) <= budget:
        return dict(latest)
    best: dict[TopicPartition, int] = {}
    low, high = 0, _TIME_MS_MAX
    while high - low > 1:
        middle = (low + high) // 2
        found = offsets_at(middle)
        end = {each: _between(found[each], start.get(each, 0), latest[each]) for each in latest}
        cost = _cost(start, end, weight)
        if cost > budget:
            high = middle
            continue
        low = middle
        if cost:
            best = end
        if cost >= budget * _GOOD_ENOUGH:
            break
    # One moment may hold more than the budget: then its records are shared out like any others.
    return best or limited(start, latest, budget=budget, weight=weight)


def _between(offset: int, low: int, high: int) -> int:
    return high if offset < 0 else max(low, min(offset, high))


def _waiting(start: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    sizes = {each: end - start.get(each, 0) for each, end in sorted(latest.items())}
    return {each: size for each, size in sizes.items() if size > 0}


def _cost(start: Offsets, end: Offsets, weight: Mapping[TopicPartition, float]) -> float:
    return sum(size * weight.get(each, 1) for each, size in _waiting(start, end).items())


def _ends(start: Offsets, latest: Offsets, taken: Offsets) -> dict[TopicPartition, int]:
    """Return the end offset of each partition, not below its start."""
    return {
        each: start.get(each, 0) + taken[each] if each in taken else max(end, start.get(each, 0))
        for each, end in latest.items()
    }


def count(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between."""
    return sum(_waiting(start, end).values())


# assignment of ranges to tasks

_SMALL_TASK: Final = 1000
"""Fewer offsets than this are not worth a task of their own: one costs some 20 ms."""


def ranges_of(start: Offsets, end: Offsets) -> list[Range]:
    """The stretches between two offsets that hold something, in order."""
    return [
        Range(topic, partition, start.get((topic, partition), 0), until)
        for (topic, partition), until in sorted(end.items())
        if until > start.get((topic, partition), 0)
    ]


def deal(
    ranges: Sequence[Range],
    *,
    tasks_max: int,
    tasks_min: int = 1,
    records_per_task_max: int | None = None,
) -> list[list[Range]]:
    """Ranges for each task: several partitions a task, so that there are about `tasks_max`.

    Ranges are split only if `tasks_min` or `records_per_task_max` require more tasks than there are
    partitions. Few records go to few tasks.
    """
    total = sum(each.size for each in ranges)
    if not total:
        return []
    if records_per_task_max:
        pieces = [p for each in ranges for p in _cut(each, -(-each.size // records_per_task_max))]
        return [[piece] for piece in pieces]
    tasks = max(tasks_min, min(tasks_max, -(-total // _SMALL_TASK)))
    pieces = list(ranges)
    if len(ranges) < tasks_min:
        pieces = [p for each in ranges for p in _cut(each, round(tasks_min * each.size / total))]
    return _spread(pieces, tasks)


def _cut(whole: Range, parts: int) -> list[Range]:
    parts = max(1, min(parts, whole.size))
    edges = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [whole._replace(start=start, end=end) for start, end in pairwise(edges)]


def _spread(pieces: Sequence[Range], tasks: int) -> list[list[Range]]:
    """The largest first, each to the task with the least so far."""
    loads: dict[int, int] = defaultdict(int)
    dealt: list[list[Range]] = [[] for _ in range(min(tasks, len(pieces)))]
    for piece in sorted(pieces, key=lambda each: (-each.size, each)):
        lightest = min(range(len(dealt)), key=lambda number: (loads[number], number))
        loads[lightest] += piece.size
        dealt[lightest].append(piece)
    return [sorted(task) for task in dealt]

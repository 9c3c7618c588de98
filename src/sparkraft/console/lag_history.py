"""The lag of groups in time, and whether it shrinks.

The lag of a partition in time is the age of the first record that its group has not committed. The
console knows the ends of logs at the moments when it described a group, so that age follows from
the time at which the end passed the committed offset. If the console has not watched for long
enough, the record's own timestamp is used instead: the producer's clock, unless the topic has
LogAppendTime.

Trends are changes of the lag over the last minutes. Nothing is sampled while no page shows a group.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkraft.client.group_lag import GroupLag

Json = dict[str, Any]
TopicPartition = tuple[str, int]

SAMPLES_MAX = 720
"""Per partition and per group: an hour of samples that are five seconds apart."""

PARTITIONS_MAX = 2_000
"""Partitions of groups with samples; the ones not shown for longest are forgotten."""

GROUPS_MAX = 500
"""Groups with a total lag over time; likewise."""

TREND_MS = 5 * 60_000
"""A trend is the change of the lag over at most this time."""

TREND_MS_MIN = 10_000
"""Shorter changes say little: consumers commit every five seconds by default."""

STOPPED_MS = 30_000
"""A group with lag that has committed nothing new for this long has stopped."""

_RUN = 3
"""Numbers of a run."""


class _Partition:
    """The samples of a partition of a group, as numbers in arrays: there are very many."""

    __slots__ = ("_ends", "_lags", "_offset", "_offset_since", "_times")

    def __init__(self) -> None:
        self._ends = array("q")
        """Runs of an equal log end, from the last one that the group has passed on: the end, and
        the first and last time of it, in ms."""
        self._times = array("q")
        self._lags = array("q")
        """Those of the last `TREND_MS`."""
        self._offset = -1
        self._offset_since = 0

    def add(self, at_ms: int, offset: int, end: int) -> None:
        ends = self._ends
        if ends and end < ends[-_RUN]:
            del ends[:]  # The topic was deleted and created again.
        if ends and ends[-_RUN] == end:
            ends[-1] = at_ms
        else:
            ends.extend((end, at_ms, at_ms))
        passed = max(0, bisect_right(ends[::_RUN], offset) - 1)
        del ends[: _RUN * max(passed, len(ends) // _RUN - SAMPLES_MAX)]
        if offset != self._offset:
            self._offset, self._offset_since = offset, at_ms
        self._times.append(at_ms)
        self._lags.append(max(0, end - offset))
        old = max(bisect_left(self._times, at_ms - TREND_MS), len(self._times) - SAMPLES_MAX)
        del self._times[:old], self._lags[:old]

    def passed_ms(self, offset: int) -> int | None:
        """When the log end passed `offset`; None if it had done so before the first sample."""
        ends = self._ends
        for at in range(0, len(ends), _RUN):
            if ends[at] > offset:
                if at == 0:
                    return None
                before, before_last_ms = ends[at - _RUN], ends[at - 1]
                share = (offset - before) / (ends[at] - before)
                return int(before_last_ms + share * (ends[at + 1] - before_last_ms))
        return None

    def per_second(self) -> float | None:
        """The change of the lag in records a second; None after too short a time."""
        took_ms = self._times[-1] - self._times[0]
        if took_ms < TREND_MS_MIN:
            return None
        return (self._lags[-1] - self._lags[0]) * 1000 / took_ms

    def has_stopped(self) -> bool:
        """Whether there is lag, and nothing was committed for `STOPPED_MS`."""
        return self._lags[-1] > 0 and self._times[-1] - self._offset_since >= STOPPED_MS


class LagHistory:
    """Samples of the groups that pages have shown."""

    def __init__(self) -> None:
        self._partitions: OrderedDict[tuple[str, TopicPartition], _Partition] = OrderedDict()
        self._totals: OrderedDict[str, array[int]] = OrderedDict()
        """Of each group, times and its total lag at them, in turn."""
        self._times: OrderedDict[tuple[TopicPartition, int], int | None] = OrderedDict()

    def add(self, group: str, rows: Sequence[GroupLag], at_ms: int) -> None:
        """Add the offsets and log ends of a group at a time in Unix milliseconds."""
        known = list(_known(rows))
        for row, offset, end in known:
            key = (group, (row.topic, row.partition))
            self._partitions.setdefault(key, _Partition()).add(at_ms, offset, end)
            self._partitions.move_to_end(key)
        while len(self._partitions) > PARTITIONS_MAX:
            self._partitions.popitem(last=False)
        if known:
            self._add_total(group, at_ms, sum(max(0, end - offset) for _, offset, end in known))

    def _add_total(self, group: str, at_ms: int, lag: int) -> None:
        totals = self._totals.setdefault(group, array("q"))
        totals.extend((at_ms, lag))
        del totals[: -2 * SAMPLES_MAX]
        self._totals.move_to_end(group)
        while len(self._totals) > GROUPS_MAX:
            self._totals.popitem(last=False)

    def unknown_times(self, group: str, rows: Sequence[GroupLag]) -> dict[TopicPartition, int]:
        """Return partitions, by most lag, whose age needs the timestamp of the record."""
        wanted = [
            (end - offset, (row.topic, row.partition), offset)
            for row, offset, end in _known(rows)
            if end > offset
            and self._passed_ms(group, row, offset) is None
            and ((row.topic, row.partition), offset) not in self._times
        ]
        return {tp: offset for _, tp, offset in sorted(wanted, reverse=True)}

    def add_times(
        self, asked: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]
    ) -> None:
        """Keep timestamps of records: the offset that was asked for, and the time if known."""
        for tp, offset in asked.items():
            self._times[tp, offset] = found.get(tp)
        while len(self._times) > PARTITIONS_MAX:
            self._times.popitem(last=False)

    def _passed_ms(self, group: str, row: GroupLag, offset: int) -> int | None:
        known = self._partitions.get((group, (row.topic, row.partition)))
        return None if known is None else known.passed_ms(offset)

    # ---- documents

    def partition(self, group: str, row: GroupLag, at_ms: int) -> Json:
        """Return `behindMs`, `behindBy`, `perSecond`, `catchUpSeconds` and `progress` of a row.

        `behindBy` is `ends` or `record`, the source of the age; unknown fields are None.
        """
        tp = (row.topic, row.partition)
        known = self._partitions.get((group, tp))
        if known is None or row.offset is None or row.end is None:
            return _UNKNOWN
        if row.end <= row.offset:
            return {**_UNKNOWN, "behindMs": 0, "behindBy": "ends", "progress": "current"}
        since, source = known.passed_ms(row.offset), "ends"
        if since is None:
            since, source = self._times.get((tp, row.offset)), "record"
        per_second = known.per_second()
        is_shrinking = per_second is not None and per_second < 0
        return {
            "behindMs": None if since is None else max(0, at_ms - since),
            "behindBy": None if since is None else source,
            "perSecond": per_second,
            "catchUpSeconds": (row.end - row.offset) / -per_second
            if is_shrinking and per_second is not None
            else None,
            "progress": _progress(known, per_second),
        }

    def group(self, group: str, partitions: Sequence[Json]) -> Json:
        """Return `whole` of a group, and its total lag over time as `points`."""
        totals = self._totals.get(group, array("q"))
        points = list(zip(totals[::2], totals[1::2], strict=True))
        return {**self.whole(partitions), "points": points}

    @staticmethod
    def whole(partitions: Sequence[Json]) -> Json:
        """Return the same of a whole group from its partitions' documents with their `lag`."""
        late = [one for one in partitions if one["lag"]]
        behind = [one["behindMs"] for one in late if one["behindMs"] is not None]
        rates = [one["perSecond"] for one in partitions if one["perSecond"] is not None]
        waits = [one["catchUpSeconds"] for one in late]
        named = {one["progress"] for one in late} - {None}
        return {
            "records": sum(one["lag"] for one in late),
            "behindMs": max(behind, default=None) if late else 0,
            "perSecond": sum(rates) if rates else None,
            "catchUpSeconds": None if not late or None in waits else max(waits),
            "progress": next((name for name in _WORST_FIRST if name in named), None)
            if late
            else "current",
        }


_WORST_FIRST = ("stopped", "falling behind", "steady", "catching up")

_UNKNOWN: Json = {
    "behindMs": None,
    "behindBy": None,
    "perSecond": None,
    "catchUpSeconds": None,
    "progress": None,
}


def _progress(partition: _Partition, per_second: float | None) -> str | None:
    if partition.has_stopped():
        return "stopped"
    if per_second is None:
        return None
    if per_second == 0:
        return "steady"
    return "falling behind" if per_second > 0 else "catching up"


def _known(rows: Sequence[GroupLag]) -> Iterator[tuple[GroupLag, int, int]]:
    """Yield rows whose offset and end are known, with both."""
    for row in rows:
        if row.offset is not None and row.end is not None:
            yield row, row.offset, row.end

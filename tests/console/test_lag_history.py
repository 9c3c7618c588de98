"""Lag in time: the age of the first record that is not committed, and its trend."""

from typing import Any

import pytest

from sparkraft.client.group_lag import GroupLag
from sparkraft.console import lag_history
from sparkraft.console.lag_history import LagHistory

START_MS = 1_700_000_000_000


def row(offset: int | None, end: int | None, partition: int = 0) -> GroupLag:
    return GroupLag("t", partition, None, offset, end, None)


def sampled(*samples: tuple[int, int, int]) -> tuple[LagHistory, GroupLag, int]:
    """A history of samples (second, committed offset, log end), the last row and its time."""
    history = LagHistory()
    for second, offset, end in samples:
        history.add("g", [row(offset, end)], START_MS + second * 1000)
    second, offset, end = samples[-1]
    return history, row(offset, end), START_MS + second * 1000


def partition(*samples: tuple[int, int, int]) -> dict[str, Any]:
    return sampled(*samples)[0].partition("g", *sampled(*samples)[1:])


def test_a_group_at_the_end_is_not_behind() -> None:
    found = partition((0, 0, 0), (10, 50, 50))
    assert (found["behindMs"], found["progress"]) == (0, "current")


def test_the_age_is_that_of_the_first_record_that_is_not_committed() -> None:
    # Offset 60 was passed halfway between 10 s (end 50) and 20 s (end 70).
    assert partition((0, 0, 0), (10, 50, 50), (20, 50, 70), (30, 60, 70))["behindMs"] == 15_000


def test_the_ends_of_a_deleted_topic_do_not_count() -> None:
    found = partition((0, 900, 1_000), (10, 0, 0), (20, 0, 10), (30, 5, 10))
    assert (found["behindMs"], found["behindBy"]) == (15_000, "ends")


def test_an_end_that_rested_passes_an_offset_after_its_last_sample() -> None:
    found = partition((0, 0, 100), (10, 100, 100), (20, 100, 100), (21, 100, 110), (30, 100, 110))
    assert (found["behindMs"], found["behindBy"]) == (10_000, "ends")


def test_without_an_earlier_end_the_record_tells() -> None:
    history, last, at_ms = sampled((0, 5, 100), (10, 6, 100))
    assert history.partition("g", last, at_ms)["behindMs"] is None
    assert history.unknown_times("g", [last]) == {("t", 0): 6}
    history.add_times({("t", 0): 6}, {("t", 0): at_ms - 3_600_000})
    found = history.partition("g", last, at_ms)
    assert (found["behindMs"], found["behindBy"]) == (3_600_000, "record")
    assert history.unknown_times("g", [last]) == {}


def test_a_record_that_cannot_be_read_is_asked_for_once() -> None:
    history, last, at_ms = sampled((0, 5, 100))
    history.add_times(history.unknown_times("g", [last]), {})
    assert history.unknown_times("g", [last]) == {}
    assert history.partition("g", last, at_ms)["behindMs"] is None


def test_a_record_from_the_future_is_not_behind() -> None:
    history, last, at_ms = sampled((0, 5, 100))
    history.add_times({("t", 0): 5}, {("t", 0): at_ms + 60_000})
    assert history.partition("g", last, at_ms)["behindMs"] == 0


@pytest.mark.parametrize(
    ("samples", "progress", "per_second", "catch_up"),
    [
        (((0, 0, 100), (5, 10, 100)), None, None, None),
        (((0, 0, 100), (20, 40, 100)), "catching up", -2.0, 30.0),
        (((0, 0, 100), (20, 10, 150)), "falling behind", 2.0, None),
        (((0, 0, 100), (20, 50, 150)), "steady", 0.0, None),
        (((0, 7, 100), (20, 7, 100), (30, 7, 100)), "stopped", 0.0, None),
        (((0, 6, 100), (20, 7, 100), (30, 7, 100)), "catching up", -1 / 30, 93 * 30.0),
    ],
)
def test_the_trend_says_whether_and_when_a_group_catches_up(
    samples: tuple[tuple[int, int, int], ...],
    progress: str | None,
    per_second: float | None,
    catch_up: float | None,
) -> None:
    found = partition(*samples)
    assert found["progress"] == progress
    assert found["perSecond"] == (None if per_second is None else pytest.approx(per_second))
    assert found["catchUpSeconds"] == (None if catch_up is None else pytest.approx(catch_up))


def test_a_trend_is_that_of_the_last_minutes() -> None:
    found = partition((0, 0, 100_000), (600, 0, 200), (700, 0, 200), (900, 150, 200))
    assert found["perSecond"] == pytest.approx(-150 / 300)


def document(**fields: Any) -> dict[str, Any]:
    made = {"lag": 5, "behindMs": None, "perSecond": None, "catchUpSeconds": None}
    return {**made, "progress": None, **fields}


def test_a_group_is_as_far_behind_as_its_worst_partition() -> None:
    history = LagHistory()
    good = document(behindMs=10, perSecond=-1.0, catchUpSeconds=5.0, progress="catching up")
    bad = document(behindMs=99, perSecond=3.0, progress="falling behind")
    idle = document(lag=0, behindMs=0, progress="current")
    found = history.group("g", [good, bad, idle])
    assert {key: found[key] for key in ("records", "behindMs", "perSecond", "progress")} == {
        "records": 10, "behindMs": 99, "perSecond": 2.0, "progress": "falling behind",
    }  # fmt: skip
    assert found["catchUpSeconds"] is None
    assert history.group("g", [good, idle])["catchUpSeconds"] == 5.0
    assert history.group("g", [idle])["progress"] == "current"
    assert history.group("g", [document(lag=None)])["records"] == 0


def test_points_add_the_partitions_of_a_group() -> None:
    history = LagHistory()
    history.add("g", [row(0, 5), row(0, 7, partition=1), row(None, 9, partition=2)], START_MS)
    history.add("other", [row(0, 50)], START_MS)
    history.add("g", [row(5, 5), row(3, 7, partition=1)], START_MS + 1)
    assert history.group("g", [])["points"] == [(START_MS, 12), (START_MS + 1, 4)]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_history, "PARTITIONS_MAX", 10)
    monkeypatch.setattr(lag_history, "GROUPS_MAX", 10)
    history = LagHistory()
    for number in range(50):
        history.add(f"g{number}", [row(0, 5)], START_MS)
        history.add_times({("t", number): 0}, {})
    assert (len(history._partitions), len(history._times)) == (10, 10)
    assert history.group("g49", [])["points"]
    assert history.group("g0", [])["points"] == []


def test_a_partition_keeps_no_more_than_its_trend_and_the_ends_that_are_not_passed() -> None:
    history = LagHistory()
    for number in range(2_000):
        at_ms = START_MS + number * 3_000
        rows = [row(number * 10, number * 10 + 5), row(0, number * 10, partition=1)]
        history.add("g", rows, at_ms)
    follows, stands = history._partitions.values()
    trend = lag_history.TREND_MS // 3_000 + 1
    assert len(follows._times) == len(follows._lags) == trend
    assert len(follows._ends) <= 3 * 2
    assert len(stands._ends) == 3 * lag_history.SAMPLES_MAX
    assert len(history.group("g", [])["points"]) == lag_history.SAMPLES_MAX
    found = history.partition("g", rows[0], at_ms)
    assert (found["behindBy"], found["progress"]) == ("ends", "steady")

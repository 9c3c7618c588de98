"""Places in topics as options name them: subscriptions, and where reading starts and ends.

Not here: the other options (`options`); looking places up in a cluster (`offsets`, `source`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

EARLIEST: Final = -2
"""The first offset there is, in offset JSON and in ListOffsets alike."""

LATEST: Final = -1
"""The offset the next record will get, in offset JSON and in ListOffsets alike."""


class OptionError(ValueError):
    """An invalid, unknown or unsupported option; the message names it and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByOffset:
    """Start or end at given offsets; `EARLIEST` and `LATEST` stand for themselves.

    Use: `everywhere` for one word for all partitions, else `by_topic`, whose values are one
    number for all partitions of the topic or one for each.
    """

    everywhere: int | None = None
    by_topic: Mapping[str, int | Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByTimestamp:
    """Start or end at the first record of a time or later, in milliseconds since 1970.

    Use: as `ByOffset`. `or_latest`: take the end if no record is that late, instead of failing.
    """

    everywhere: int | None = None
    by_topic: Mapping[str, int | Mapping[int, int]] = field(default_factory=dict)
    or_latest: bool = False


Bound = ByOffset | ByTimestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which partitions to read; exactly one of the three is set."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    def includes(self, topic: str) -> bool:
        """Whether a topic is read, at least in part, if it exists and is not internal."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in (self.topics or self.assigned or ())


class Given(Protocol):
    """Options as given, by name."""

    def text(self, name: str) -> str | None:
        """The value; None if it is absent or empty."""
        ...

    def millis(self, name: str) -> int | None:
        """Milliseconds since 1970."""
        ...

    def json(self, name: str) -> Any:
        """A JSON value."""
        ...


def read_subscription(given: Given) -> Subscription:
    names = ("subscribe", "subscribePattern", "assign")
    set_names = [name for name in names if given.text(name)]
    if len(set_names) != 1:
        said = " and ".join(set_names) or "none"
        raise OptionError(f"exactly one of {', '.join(names)} must be set, not {said}")
    pattern = given.text("subscribePattern")
    if pattern:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(
                f"subscribePattern {pattern!r} is not a valid pattern: {error}"
            ) from error
        return Subscription(pattern=pattern)
    listed = given.text("subscribe")
    if listed:
        topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in listed.split(",")))))
        if not topics:
            raise OptionError(f"subscribe names no topic: {listed!r}")
        return Subscription(topics=topics)
    return Subscription(assigned=_assigned(given.json("assign")))


def _assigned(value: Any) -> Mapping[str, tuple[int, ...]]:
    wanted = 'assign must look like {"topic":[0,1]}'
    if not isinstance(value, dict) or not value:
        raise OptionError(wanted)
    for partitions in value.values():
        numbers = partitions if isinstance(partitions, list) else [None]
        if not numbers or any(type(each) is not int or each < 0 for each in numbers):
            raise OptionError(f"{wanted}, not {json.dumps(value)}")
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in value.items()}


def read_bound(given: Given, side: str) -> Bound | None:
    """Read one end; the official precedence: Timestamp, then OffsetsByTimestamp, then Offsets."""
    or_latest = side == "ending" or _start_at_latest_without_match(given)
    timestamp = given.millis(f"{side}Timestamp")
    if timestamp is not None:
        return ByTimestamp(everywhere=timestamp, or_latest=or_latest)
    name = f"{side}OffsetsByTimestamp"
    if given.text(name):
        by_topic = _by_topic(name, given.json(name), words={}, lowest=0)
        return ByTimestamp(by_topic=by_topic, or_latest=or_latest)
    name = f"{side}Offsets"
    text = given.text(name)
    if text is None:
        return None
    if text.lower() in _WORDS:
        return ByOffset(everywhere=_WORDS[text.lower()])
    return ByOffset(by_topic=_by_topic(name, given.json(name), words=_WORDS, lowest=EARLIEST))


_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


def _start_at_latest_without_match(given: Given) -> bool:
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in {"error", "latest"}:
        raise OptionError(
            f"startingOffsetsByTimestampStrategy must be error or latest, not {strategy!r}"
        )
    return strategy == "latest"


def _by_topic(
    name: str, value: Any, *, words: Mapping[str, int], lowest: int
) -> Mapping[str, int | Mapping[int, int]]:
    if not isinstance(value, dict) or not value:
        raise OptionError(f'{name} must be a word or look like {{"topic":{{"0":23,"1":-2}}}}')

    def number(each: Any) -> int:
        found = words.get(each.lower()) if isinstance(each, str) else each
        if type(found) is not int or found < lowest:
            raise OptionError(f"{name}: {json.dumps(each)} is not a valid place in a partition")
        return found

    read: dict[str, int | Mapping[int, int]] = {}
    for topic, places in value.items():
        if isinstance(places, dict):
            if not all(partition.isascii() and partition.isdigit() for partition in places):
                raise OptionError(f"{name}: the partitions of {topic} must be numbers")
            read[topic] = {int(partition): number(each) for partition, each in places.items()}
        else:
            read[topic] = number(places)
    return read

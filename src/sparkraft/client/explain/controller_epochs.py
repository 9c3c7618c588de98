"""The race for /controller by epoch: the winner, lost attempts, the failover and the end.

An epoch is what one broker did as the controller. Attempts that were lost belong to the epoch of
the winner that they name. Epochs of brokers without a journal, such as Apache Kafka's, have only
the attempts that other brokers lost against them.

    {"epoch": 2, "controller": 1, "at": MS, "events": [{"at", "broker", "kind", "winner", "text"}]}

`epoch` is None and `at` is None if no journal has the election. Kinds of events: `won`, `lost`,
`failover`, `resigned`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sparkraft.client.explain.times import clock_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Decision = dict[str, Any]
"""An entry of a journal: broker, number, atMs, kind, text."""

Json = dict[str, Any]

CLOCK_SKEW_MS = 2_000
"""How much earlier than its winner a loser may note its attempt: each has a clock of its own."""

_WON = re.compile(r"won epoch (\d+)")
_NAMED = re.compile(r"lost: broker (\d+) ")


def epoch_won(decision: Decision) -> int | None:
    """The epoch of an attempt that was successful; None for other decisions."""
    found = _WON.match(decision["text"]) if decision["kind"] == "attempt" else None
    return int(found[1]) if found else None


def controller_epochs(decisions: Sequence[Decision], controller: int, epoch: int) -> list[Json]:
    """The epochs that journals contain, and the present one, in order.

    Args:
        decisions: of all brokers; those of one broker in order.
        controller: the present one; -1 without one.
        epoch: its epoch; -1 if unknown.
    """
    won = [one for each in sorted(_by_broker(decisions).items()) for one in _epochs_of(*each)]
    found = sorted(won, key=lambda one: one["epoch"])
    lost = [one for one in decisions if one["kind"] == "attempt" and epoch_won(one) is None]
    for one in sorted(lost, key=lambda each: each["atMs"]):
        _add_lost(found, one)
    if controller >= 0:
        _add_present(found, controller, epoch)
    for each in found:
        each["events"].sort(key=lambda event: event["at"])
    return found


def _by_broker(decisions: Iterable[Decision]) -> dict[int, list[Decision]]:
    found: dict[int, list[Decision]] = {}
    for one in decisions:
        found.setdefault(one["broker"], []).append(one)
    return found


def _epochs_of(broker: int, decisions: Iterable[Decision]) -> Iterator[Json]:
    """The epochs that one broker won."""
    current: Json | None = None
    for one in decisions:
        number = epoch_won(one)
        if number is not None:
            current = {"epoch": number, "controller": broker, "at": one["atMs"], "events": []}
            yield current
            current["events"].append(_event(one, "won", broker, f"broker {broker} {one['text']}"))
        elif one["kind"] == "attempt":
            current = None
        elif current is not None and one["kind"] == "failover":
            text = f"failover of broker {broker}, +{one['atMs'] - current['at']} ms: {one['text']}"
            current["events"].append(_event(one, "failover", broker, text))
        elif current is not None and one["kind"] == "resignation":
            reason = one["text"].removeprefix(f"epoch {current['epoch']}: ")
            text = f"broker {broker} resigned: {reason}"
            current["events"].append(_event(one, "resigned", broker, text))


def _event(decision: Decision, kind: str, winner: int | None, text: str) -> Json:
    return {
        "at": decision["atMs"],
        "broker": decision["broker"],
        "kind": kind,
        "winner": winner,
        "text": text,
    }


def _add_lost(found: list[Json], decision: Decision) -> None:
    """Add a lost attempt to its epoch, or to one of a broker that has no journal."""
    named = _NAMED.match(decision["text"])
    winner = int(named[1]) if named else None
    epoch = _epoch_lost(found, winner, decision)
    if epoch is None:
        if winner is None:
            return
        before = [n for n, one in enumerate(found) if _starts(one) <= decision["atMs"]]
        epoch = {"epoch": None, "controller": winner, "at": None, "events": []}
        found.insert(before[-1] + 1 if before else 0, epoch)
    reason = decision["text"].removeprefix("lost: ")
    text = f"broker {decision['broker']} lost: {reason}"
    epoch["events"].append(_event(decision, "lost", epoch["controller"], text))


def _epoch_lost(found: Sequence[Json], winner: int | None, lost: Decision) -> Json | None:
    """The newest epoch that had begun, if it is one of `winner`."""
    at_ms = lost["atMs"]
    begun = [one for one in found if _starts(one) <= at_ms + CLOCK_SKEW_MS]
    own = [at for at, one in enumerate(begun) if winner in (None, one["controller"])]
    if not own:
        return None
    # After the election of another controller, the winner is one that is not known yet.
    is_over = any(
        _starts(one) <= at_ms - (0 if one["controller"] == lost["broker"] else CLOCK_SKEW_MS)
        for one in begun[own[-1] + 1 :]
    )
    return None if is_over else begun[own[-1]]


def _starts(epoch: Json) -> int:
    """When it is known to have begun."""
    if epoch["at"] is not None:
        return int(epoch["at"])
    return min((int(event["at"]) for event in epoch["events"]), default=0)


def _add_present(found: list[Json], controller: int, epoch: int) -> None:
    """Complete or add the present epoch, which no journal has if the broker keeps none."""
    if any(one["epoch"] == epoch for one in found):
        return
    number = epoch if epoch >= 0 else None
    if found and found[-1]["controller"] == controller and found[-1]["epoch"] is None:
        found[-1]["epoch"] = number
        return
    found.append({"epoch": number, "controller": controller, "at": None, "events": []})


def epoch_lines(epoch: Json) -> Iterator[str]:
    """An epoch as text."""
    number = "an unknown epoch" if epoch["epoch"] is None else f"epoch {epoch['epoch']}"
    if epoch["at"] is None:
        yield f"{number}: controller {epoch['controller']}, its election is in no journal"
    else:
        yield f"{number}: controller {epoch['controller']}   {time_text(epoch['at'])}"
    for event in epoch["events"]:
        yield f"    {clock_text(event['at'])}  {event['text']}"

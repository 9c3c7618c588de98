"""Plans and fields of requests, common to all changes of an editor.

A page posts the same document twice: `plan` validates it on the cluster without changing anything,
and `apply` carries it out. Dangerous changes are only carried out if the document repeats a name
that the editor typed (`Plan.confirm`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.client.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.client.leadership import LeadershipAdmin

Json = dict[str, Any]

ROWS_SHOWN = 500
"""Of a plan."""

INT32_MAX = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A line of a plan: a name, its value now and then; None for no value."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A change that was validated.

    Attributes:
        sentence: the change in words.
        differences: values now and then.
        warnings: consequences that an editor may not expect.
        confirm: the name to type; None if a click is enough.
        command: the command line that does the same; None if none does.
    """

    sentence: str
    differences: list[Difference]
    warnings: list[str] = field(default_factory=list)
    confirm: str | None = None
    command: str | None = None

    def as_json(self) -> Json:
        """The document for a page."""
        return {
            "sentence": self.sentence,
            "rows": [
                {"what": each.what, "from": each.before, "to": each.after}
                for each in self.differences[:ROWS_SHOWN]
            ],
            "moreRows": max(0, len(self.differences) - ROWS_SHOWN),
            "warnings": self.warnings,
            "confirm": self.confirm,
            "command": self.command,
        }


class Change(Protocol):
    """A change that an editor asks for."""

    @property
    def wish(self) -> str:
        """The change as an infinitive, for the audit line of a failure; without secrets."""

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        """Validate the change; `servers` are the bootstrap servers of the command.

        Raises:
            KafkaError: the cluster would refuse it.
            PlanError: it makes no sense.
        """

    async def apply(self, admin: LeadershipAdmin) -> str:
        """Carry it out; return what was done, for the audit line.

        Raises:
            KafkaError: the cluster refused it.
            PlanError: it makes no sense, or was refused in part; the message names the part.
        """


def text_of(document: Mapping[str, Any], name: str) -> str:
    """A field that is a text and not empty; KeyError or ValueError otherwise."""
    found = document[name]
    if not isinstance(found, str) or not found:
        raise ValueError(f"{name} must be a text that is not empty")
    return found


def number_of(document: Mapping[str, Any], name: str, *, least: int, most: int = INT32_MAX) -> int:
    """A field that is a whole number, also as text; KeyError or ValueError otherwise."""
    return number_from(document[name], name, least=least, most=most)


def number_from(found: Any, name: str, *, least: int, most: int = INT32_MAX) -> int:
    """A whole number within limits, also as text; ValueError otherwise."""
    try:
        number = int(found) if isinstance(found, str) and len(found) < ROWS_SHOWN else found
    except ValueError:
        number = None
    if type(number) is not int or not least <= number <= most:
        raise ValueError(f"{name} must be a number from {least} to {most}, not {found!r:.60}")
    return number


def optional_number_of(
    document: Mapping[str, Any], name: str, *, least: int, most: int = INT32_MAX
) -> int | None:
    """The same; None if the field is absent, null or empty."""
    found = document.get(name)
    return (
        None if found is None or found == "" else number_from(found, name, least=least, most=most)
    )


def raise_refusal(outcome: Iterable[object]) -> None:
    """Raise the first error of an outcome."""
    for error in outcome:
        if isinstance(error, Exception):
            raise error


def check_confirmed(document: Mapping[str, Any], name: str) -> None:
    """Raise PlanError unless the document has the name that a dangerous change needs."""
    if document.get("confirm") != name:
        raise PlanError(f"type {name} to confirm")

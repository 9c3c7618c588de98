"""Fields of the tables of a pipeline file, and the error that names a wrong one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class SpecError(InputError):
    """An error in a pipeline file, and its location."""


def sub_table(read: Mapping[str, Any], name: str, *, needed: bool = True) -> Mapping[str, Any]:
    """Return the table of a name; empty if it is missing and not required."""
    found = read.get(name, None if needed else {})
    if not isinstance(found, dict):
        raise SpecError(f"[{name}] is missing")
    return found


def needed_text(given: Any, name: str, where: str) -> str:
    """A text that must be there and not be empty."""
    found = given.get(name) if isinstance(given, dict) else None
    if not isinstance(found, str) or not found:
        raise SpecError(f"{where} needs {name}, a text")
    return found


def one_of(given: Mapping[str, Any], name: str, allowed: tuple[str, ...], default: str) -> str:
    """One of some texts."""
    found = given.get(name, default)
    if found not in allowed:
        raise SpecError(f"{name} is one of {', '.join(allowed)}, not {found!r}")
    return str(found)


def as_strings(given: Mapping[str, Any]) -> dict[str, str]:
    """Options as Spark takes them: true, not True."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in given.items()
    }


def refuse_others(given: Mapping[str, Any], allowed: Iterable[str], where: str) -> None:
    """Refuse a field that is not one of `allowed`, and suggest the nearest of them."""
    known = sorted(allowed)
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise SpecError(f"{where} has no {name}{hint}")

"""Parameters in the address of a request; an error names the one that is missing or wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBER_MAX = 0x7FFF_FFFF
"""Ids, and offsets of the metadata log, which are far below it."""

SHOWN_CHARS = 60
"""Of a wrong value."""


class Parameters:
    """Reads parameters; each method raises ValueError."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str | None = None) -> str:
        """Return the text of a parameter that is there or has a default."""
        found = self._values.get(name, default)
        if found is None:
            raise ValueError(f"{name} is missing")
        return found

    def number(
        self,
        name: str,
        default: int | None = None,
        *,
        low: int = -1,
        high: int = NUMBER_MAX,
        shown: str = "",
    ) -> int:
        """Return a whole number from `low` to `high`; an empty text is the default.

        Args:
            name: of the parameter.
            default: the number if it is missing; None: that is an error.
            low: the smallest one.
            high: the largest one.
            shown: its name in an error, if a page has another one.
        """
        text = self.text(name, "" if default is not None else None).strip()
        if not text and default is not None:
            return default
        try:
            number = int(text)
        except ValueError:
            number = high + 1
        if not low <= number <= high:
            wanted = f"expected a whole number from {low} to {high} for {shown or name}"
            raise ValueError(f"{wanted}, got {text[:SHOWN_CHARS]!r}")
        return number

    def numbers(self, name: str, *, high: int = NUMBER_MAX) -> frozenset[int]:
        """Return the whole numbers between commas; none if the parameter is missing."""
        texts = [each for each in self.text(name, "").split(",") if each.strip()]
        return frozenset(Parameters({name: each}).number(name, low=0, high=high) for each in texts)

    @property
    def at_offset(self) -> int:
        """The offset of an earlier moment, `at`; -1 is the present."""
        return self.number("at", -1)

"""Figures of a batch that Spark's report does not have: what its sinks set aside.

The function of `foreachBatch` notes them while the batch runs, and the thread that follows the
query takes them when Spark reports the batch. A batch that failed within this process is noted
again when it is repeated, so it is counted once.

Not here: Spark's own figures (`progress`).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class SetAside(NamedTuple):
    """What a sink left out of a batch.

    Args:
        misfits: rows that do not fit the sink.
        ignored: values of columns that the table does not have.
        dead_letters: records and rows written to `[dead_letter]`.
    """

    misfits: int = 0
    ignored: int = 0
    dead_letters: int = 0

    def plus(self, other: SetAside) -> SetAside:
        """The sum of both."""
        return SetAside(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NOTHING: Final = SetAside()


class BatchFigures:
    """The figures of the batches of a query."""

    def __init__(self) -> None:
        self._set_aside: dict[int, dict[int, SetAside]] = {}

    def note_set_aside(self, batch: int, part: int, found: SetAside) -> None:
        """Replace what a part of a batch has set aside.

        Args:
            batch: its number.
            part: the position of the sink, or of another writer after the sinks.
            found: all that it set aside.
        """
        self._set_aside.setdefault(batch, {})[part] = found

    def take_set_aside(self, batch: int) -> SetAside:
        """What all sinks set aside of a finished batch; earlier batches are forgotten."""
        found = self._set_aside.get(batch, {}).values()
        for number in [each for each in self._set_aside if each <= batch]:
            del self._set_aside[number]
        total = NOTHING
        for each in found:
            total = total.plus(each)
        return total

"""What a row of `./bench loop` measures on one node."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.nodes import NodeProcess


@dataclass
class Outcome:
    """One round of one node."""

    latencies: list[float]
    """The probe's, in ms."""
    figures: dict[str, float] = field(default_factory=dict)
    """Name with unit → value; more is better if the unit is MB/s."""

    @property
    def p99(self) -> float:
        """In ms."""
        return sorted(self.latencies)[len(self.latencies) * 99 // 100]


Load = Callable[[NodeProcess, int], Outcome]
"""Runs one round on a node; the number of the round makes names unique."""


class NotMeasuredError(Exception):
    """This machine cannot run a row; says why."""

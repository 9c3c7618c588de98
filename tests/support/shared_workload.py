"""The simulator's record clients at work on real processes, with the same checks.

They are idempotent producers, one that never retries, consumers, a group, a compacted topic and one
whose records last for seconds. Their checks on the way (P7, P8, P11, G1, G4, G5, S6) and of their
history in the end must hold here as in the simulator.
"""

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from sparkraft.simulation.workload.clients import Workload
from sparkraft.simulation.workload.history import acknowledged, check
from tests.support.shared_clients import DRAIN_SECONDS_MAX, SharedClients


class SharedWorkload(SharedClients):
    """See the module docstring."""

    def __init__(self, ports: Mapping[int, int], dice: random.Random) -> None:
        super().__init__(ports, dice)
        self.workload = Workload(self)

    def runs(self) -> Sequence[Callable[[Any], Coroutine[Any, Any, None]]]:
        return self.workload.clients

    def drain(self) -> None:
        self.wait_for(
            lambda: self.workload.is_idle and self.workload.all_read(),
            "all that was written is read back",
            DRAIN_SECONDS_MAX,
        )

    def verdict(self) -> str:
        """Check everything; return a line for the run's account."""
        self.assert_no_violation()
        self.workload.finish()
        anomalies = [str(found) for found in check(self.workload.history)]
        assert not anomalies, "\n".join(anomalies[:20])
        self.assert_counted("records acknowledged", "records read", "offsets committed")
        self.assert_counted("keyed read", *(f"checked {name}" for name in CHECKED))
        return (
            f"{acknowledged(self.workload.history)} records of the shared workload, "
            f"{self.counts['offsets committed']} offsets committed"
        )


CHECKED = ("P7", "P8", "G1", "G4", "S6")
"""Invariants without which a run proves nothing."""

"""The simulator's clients of coordinators at work on real processes, with the same checks.

Sessions of both transaction versions share three transactional ids: they fence each other, let
transactions time out and leave some open (T1, T3, T4, T6, T9, T14, T16). Members of both group
protocols join, leave and fall silent (K1, K5, K8).
"""

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from sparkraft.simulation.workload.clients import after_topic
from sparkraft.simulation.workload.group_workload import GroupWorkload, after_topics
from sparkraft.simulation.workload.transaction_clients import TransactionWorkload
from tests.support.shared_clients import SharedClients

IDLE_SECONDS_MAX = 60
"""For the sessions that are at work: up to eight transactions each."""

ENDED_SECONDS_MAX = 60
"""For the transactions that were left open: their timeout is 3 s, then coordinators are found."""

CONVERGED_SECONDS_MAX = 60
"""For a group: its members' sessions and rebalances, and the search for its coordinator."""


class SharedCoordinatorClients(SharedClients):
    """See the module docstring."""

    def __init__(self, ports: Mapping[int, int], dice: random.Random) -> None:
        super().__init__(ports, dice)
        self.transactions = TransactionWorkload(self)
        self.groups = GroupWorkload(self)

    def runs(self) -> Sequence[Callable[[Any], Coroutine[Any, Any, None]]]:
        return [
            *(partial(after_topic, client.run) for client in self.transactions.all_clients),
            *(partial(after_topics, member.run) for member in self.groups.members),
        ]

    def drain(self) -> None:
        self.wait_for(
            lambda: self.transactions.is_idle, "every session has ended", IDLE_SECONDS_MAX
        )
        try:
            self.wait_for(
                self.transactions.has_ended,
                "T9: every last stable offset is a high watermark",
                ENDED_SECONDS_MAX,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.transactions.reader.ends}") from None
        self.wait_for(
            self.groups.is_complete, "K5: every partition has one owner", CONVERGED_SECONDS_MAX
        )

    def verdict(self) -> str:
        """Check everything; return a line for the run's account."""
        self.transactions.finish()
        self.assert_no_violation()
        self.assert_counted("transactions committed", "transactions aborted", "records read")
        self.assert_counted("offsets: NONE", "heartbeats accepted", "offsets committed")
        self.assert_counted(*(f"checked {name}" for name in CHECKED))
        return (
            f"{self.counts['transactions committed']} transactions of the shared workload "
            f"committed, {self.counts['transactions aborted']} aborted, "
            f"{self.counts['transactions unknown']} unknown, "
            f"{self.counts['partitions given']} partitions given to members"
        )


CHECKED = ("T3", "T4", "T6", "T14", "T16", "K8")
"""Invariants without which a run proves nothing; K1 is only checked if a member was fenced."""

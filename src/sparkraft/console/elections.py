"""The nodes' journals of elections, kept between polls so that a poll transfers only news.

In ZooKeeper mode these are the journals of the race for /controller.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparkraft.client.explain.zookeeper_controller import controller_journals
from sparkraft.client.quorum_admin import NO_JOURNAL, Witness, witnesses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkraft.client.cluster import Cluster
    from sparkraft.client.explain.zookeeper_controller import ControllerJournal

Name = TypeVar("Name", bound=Hashable)

WHOLE_EVERY = 120
"""Polls after which all entries are read again: a clock may have been set back."""

SKIPPED_POLLS = 120
"""Polls in which a node without a journal gets no request: Apache Kafka's nodes close the
connection and log an invalid request each time."""

_REFUSALS_MIN = 2
"""Refusals in a row after which a node is skipped: one may be a node that was stopped meanwhile."""


class Refusals(Generic[Name]):
    """Nodes that keep no journal, and get no request for `SKIPPED_POLLS` polls."""

    def __init__(self) -> None:
        self._polls = 0
        self._counts: dict[Name, int] = {}
        self._skipped_until: dict[Name, int] = {}

    def skipped(self) -> dict[Name, str]:
        """The nodes to skip in this poll, and the error to show for them."""
        return {n: NO_JOURNAL for n, until in self._skipped_until.items() if until > self._polls}

    def count(self, silent: Mapping[Name, str]) -> None:
        """End a poll; `silent` has the nodes that did not respond, without the skipped ones."""
        self._polls += 1
        for name in [name for name in self._counts if silent.get(name) != NO_JOURNAL]:
            del self._counts[name]
        for name, why in silent.items():
            if why != NO_JOURNAL:
                continue
            self._counts[name] = self._counts.get(name, 0) + 1
            if self._counts[name] >= _REFUSALS_MIN:
                self._skipped_until[name] = self._polls + SKIPPED_POLLS


class ControllerJournals:
    """The journals of brokers in ZooKeeper mode."""

    def __init__(self) -> None:
        self._known: dict[int, ControllerJournal] = {}
        self._refusals = Refusals[int]()

    async def poll(self, cluster: Cluster) -> tuple[list[ControllerJournal], dict[int, str]]:
        """Return what `controller_journals` returns."""
        skipped = self._refusals.skipped()
        found, silent = await controller_journals(cluster, known=self._known, skipped=skipped)
        self._refusals.count({n: why for n, why in silent.items() if n not in skipped})
        self._known = {each.broker: each for each in found}
        return found, silent


class ElectionJournals:
    """Merged journals of all nodes."""

    def __init__(self) -> None:
        self._entries: dict[int, list[Any]] = {}
        self._polls = 0
        self._must_read_all = True
        self._refusals = Refusals[str]()

    async def poll(self, cluster: Cluster) -> tuple[list[Witness], dict[str, str]]:
        """Return what `witnesses` returns, with all entries."""
        since_ms = self.since_ms
        skipped = self._refusals.skipped()
        seen, silent = await witnesses(cluster, since_ms=since_ms, skipped=skipped)
        self._polls += 1
        self._refusals.count({n: why for n, why in silent.items() if n not in skipped})
        self.merge(seen, since_ms)
        return seen, silent

    @property
    def since_ms(self) -> int:
        """The oldest time from which entries are requested; -1 for all of them."""
        if self._must_read_all or self._polls % WHOLE_EVERY == 0:
            return -1
        return min((entries[-1].at_ms for entries in self._entries.values() if entries), default=-1)

    def merge(self, seen: Sequence[Witness], since_ms: int) -> None:
        """Complete the entries of `seen`, which are those at `since_ms` or later."""
        self._must_read_all = False
        for witness in seen:
            if since_ms >= 0 and witness.node_id not in self._entries:
                self._must_read_all = True  # its older entries are missing
            known = self._entries.get(witness.node_id, ()) if since_ms >= 0 else ()
            older = [entry for entry in known if entry.at_ms < since_ms]
            witness.entries = [*older, *witness.entries]
            self._entries[witness.node_id] = witness.entries

"""Fetch the history of partitions and brokers from all nodes and merge it into one report.

One node reads its metadata log. All controllers add the reasons they recorded for their elections,
and all brokers add why they changed ISRs as leaders. Apache Kafka nodes do not support these
requests and close the connection; the report then lacks their part.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.quorum_admin import NO_JOURNAL, WITNESS_MS_MAX, addresses
from sparkraft.client.zookeeper_history import zookeeper_history

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.base.ids import Uuid
    from sparkraft.client.cluster import Cluster

HISTORY_MS_MAX = 60_000
"""Timeout of a history request, long enough for a node to read a long metadata log."""

Event = Any
"""A `HistoryEvent`."""

IsrChange = Any
"""An `IsrChangeEntry`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReport:
    """The merged history of several nodes.

    Attributes:
        history: a `DescribeHistoryResponse` with the reasons from all journals.
        isr_changes: entries of the leaders' journals, by topic, partition and partition epoch.
        silent: nodes that returned no journal, and why.
    """

    history: Any
    isr_changes: Mapping[tuple[str, int, int], IsrChange]
    silent: Mapping[str, str]

    def isr_change(self, event: Event) -> IsrChange | None:
        """Return the leader's journal entry for an ISR change; None if it was lost."""
        if event.after is None:
            return None
        noted = self.isr_changes.get((event.topic, event.partition, event.after.partition_epoch))
        same = noted is not None and sorted(noted.isr) == sorted(event.after.isr)
        return noted if same else None


async def fetch_history(cluster: Cluster, request: Any) -> HistoryReport:
    """Send a `DescribeHistoryRequest` and collect the journals of all nodes.

    Raises:
        KafkaError: OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, or the reason why no node
            could be queried.
    """
    from sparkraft.protocol.messages import k10002_describe_history as k10002

    where = await addresses(cluster)
    journals = k10002.DescribeHistoryRequest(
        topics=request.topics, broker_ids=request.broker_ids, journal_only=True
    )
    names = list(where)
    reported = await asyncio.gather(
        *(_ask(cluster, where[name], journals, WITNESS_MS_MAX) for name in names)
    )
    answers = dict(zip(names, reported, strict=True))
    silent = {name: why for name, why in answers.items() if isinstance(why, str)}
    heard = {name: answer for name, answer in answers.items() if not isinstance(answer, str)}
    if not heard:
        why = "; ".join(f"{name}: {reason}" for name, reason in silent.items())
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no node could be queried: {why}")
    if any(answer.in_zookeeper_mode for answer in heard.values()):
        asked = await asyncio.gather(
            *(_ask(cluster, where[name], request, WITNESS_MS_MAX) for name in heard)
        )
        answered = [answer for answer in asked if not isinstance(answer, str)]
        history = await zookeeper_history(cluster, request, answered)
        isr_changes = await _isr_changes(cluster, [where[name] for name in heard], request)
        return merge_journals(history, [], isr_changes, silent)
    # Try the active controller first: its metadata is the most recent.
    order = sorted(heard, key=lambda name: not heard[name].is_controller)
    history = await _first(cluster, [where[name] for name in order], request)
    isr_changes = await _isr_changes(cluster, [where[name] for name in heard], request)
    return merge_journals(history, list(heard.values()), isr_changes, silent)


def merge_journals(
    history: Any,
    journals: list[Any],
    isr_changes: Mapping[str, list[Any]],
    silent: Mapping[str, str],
) -> HistoryReport:
    """Merge the responses of several nodes into one report.

    Args:
        history: a `DescribeHistoryResponse`; reasons from the journals are added to it in place.
        journals: one `DescribeHistoryResponse` per node with the elections in its journal.
        isr_changes: topic → `DescribeIsrChangesResponse`s.
        silent: nodes that returned nothing, and why.
    """
    _add_reasons(history, journals)
    changes = {
        (topic, change.partition, change.partition_epoch): change
        for topic, answers in isr_changes.items()
        for answer in answers
        for change in answer.changes
    }
    return HistoryReport(history=history, isr_changes=changes, silent=silent)


async def _first(cluster: Cluster, places: list[tuple[str, int]], request: Any) -> Any:
    """Return the first successful response; raise the last error if there is none."""
    found: Any = None
    for place in places:
        found = await _ask(cluster, place, request, HISTORY_MS_MAX)
        if not isinstance(found, str) and not found.error_code:
            return found
    if isinstance(found, str):
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no node could be queried: {found}")
    raise KafkaError(ErrorCode(found.error_code), found.error_message or "")


def _add_reasons(history: Any, journals: list[Any]) -> None:
    noted: dict[tuple[int, Uuid, int, int], Any] = {
        _decision(event): event
        for journal in journals
        for partition in journal.partitions
        for event in partition.events
    }
    reported = [event for partition in history.partitions for event in partition.events]
    reported += [event for broker in history.brokers for event in broker.elections]
    for event in reported:
        if event.election is None or event.election.from_journal or event.after is None:
            continue
        found = noted.get(_decision(event))
        if found is not None and found.after.leader == event.after.leader:
            event.election, event.cause = found.election, found.cause


def _decision(event: Any) -> tuple[int, Uuid, int, int]:
    """Return the key of an election: two controllers may decide one for the same leader epoch."""
    return event.controller_epoch, event.topic_id, event.partition, event.after.leader_epoch


async def _isr_changes(
    cluster: Cluster, places: list[tuple[str, int]], request: Any
) -> dict[str, list[Any]]:
    """Return the responses by topic. A controller-only node leads no partitions, so has none."""
    from sparkraft.protocol.messages.k10003_describe_isr_changes import DescribeIsrChangesRequest

    found: dict[str, list[Any]] = {}
    for topic in request.topics:
        one = topic.partitions[0] if topic.partitions and len(topic.partitions) == 1 else -1
        question = DescribeIsrChangesRequest(topic=topic.name, partition=one)
        answers = await asyncio.gather(
            *(_ask(cluster, place, question, WITNESS_MS_MAX) for place in places)
        )
        found[topic.name] = [answer for answer in answers if not isinstance(answer, str)]
    return found


async def _ask(cluster: Cluster, place: tuple[str, int], request: Any, timeout_ms: int) -> Any:
    """Return the response, or the reason why there is none."""
    try:
        connection = await cluster.connect(*place)
    except KafkaError as error:
        return error.detail or error.code.name
    try:
        return await connection.send(request, timeout_ms=timeout_ms)
    except KafkaError as error:
        if error.code is ErrorCode.NETWORK_EXCEPTION:
            return NO_JOURNAL
        return error.detail or error.code.name

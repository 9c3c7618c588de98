"""Changes of partitions between two offsets of the metadata log, as the nodes report them.

The nodes derive them from the log and add what their journals know (`sparkraft.client.history`).
A response has only the newest changes of each partition, so older ones are requested until the
range is complete.

Invariants:
    * Every change in the range is returned once, or the read fails with a reason.
    * A range that the log no longer has from its start is reported (`History.first`).

Not here: rows (`metadata_rows`), Spark (`metadata_source`). Apache Kafka's nodes do not serve the
request.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.history import fetch_history

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkraft.client.history import HistoryReport
    from sparkraft.pipeline.options import ClientOptions
    from sparkraft.pipeline.places import Subscription

_EVENTS_MAX: Final = 1000
"""Changes of a partition in one response: the limit of the nodes."""

_PARTITIONS_MAX: Final = 20
"""Partitions in one request, if topics are small: the nodes return at most 20,000 changes."""

_ATTEMPTS_MAX: Final = 20
_PAUSE_SECONDS: Final = 0.25
"""A controller that was just elected knows a moment later what is committed."""


@dataclass(slots=True, kw_only=True)
class PartitionHistory:
    """A partition's changes, oldest first: those in the range, and at least the election before.

    Attributes:
        state: the partition at the end of the range; None if it does not exist then.
        changes: (`HistoryEvent`, the report that has it).
    """

    topic: str
    topic_id: str
    partition: int
    state: Any
    changes: list[tuple[Any, HistoryReport]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The changes of partitions.

    Attributes:
        first: the first offset that the log still has.
        read_at: append time of the last record read, milliseconds since 1970.
    """

    first: int
    read_at: int
    partitions: list[PartitionHistory]


def connected(options: ClientOptions) -> Cluster:
    """An asynchronous client with the options of the source."""
    connect = None
    if options.tls is not None:
        from sparkraft.tls.contexts import client_context
        from sparkraft.tls.dialing import TlsDialer

        context = client_context(options.tls)
        connect = TlsDialer(lambda: context).connect
    servers = [f"[{host}]:{port}" for host, port in options.bootstrap_servers]
    return Cluster(
        servers,
        client_id=options.client_id,
        request_timeout_ms=options.request_timeout_ms,
        login=options.login,
        connect=connect,
    )


async def committed_end(cluster: Cluster) -> int:
    """The high watermark of the metadata log: the first offset that is not committed."""
    return (await Admin(cluster).describe_quorum()).high_watermark


async def read_history(
    cluster: Cluster, subscription: Subscription | None, start: int, end: int
) -> History:
    """Return the changes at offsets from `start` to before `end` of the topics' partitions.

    Topics that were deleted have no history in the response.

    Raises:
        KafkaError: no node serves the request, or the end is not in the log.
    """
    found: dict[tuple[str, int], PartitionHistory] = {}
    first, read_at = 0, -1
    pages = list(_pages(await _topics(cluster, subscription), end - 1))
    while pages:
        topics, at_offset = pages.pop()
        report = await _page(cluster, topics, at_offset)
        if report is None:
            # A topic of the page is younger than its offset: the others are asked one by one.
            pages += [({name: topics[name]}, at_offset) for name in topics if len(topics) > 1]
            continue
        first = max(first, report.history.start_offset)
        read_at = max(read_at, report.history.at_ms)
        for topic, partition, offset in _take(found, report, start):
            if offset >= report.history.start_offset:
                pages.append(({topic: [partition]}, offset))
    ordered = [found[key] for key in sorted(found)]
    return History(first=first, read_at=read_at, partitions=ordered)


_Topics = dict[str, list[int] | None]
"""Topic → partitions; None for all."""


async def _topics(cluster: Cluster, subscription: Subscription | None) -> dict[str, int]:
    """Topic → number of partitions."""
    names = None if subscription is None else subscription.topics
    await cluster.refresh(names)
    known = {name: len(info.partitions) for name, info in cluster.view.topics.items()}
    if names is not None:
        missing = [name for name in names if name not in known]
        if missing:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {missing[0]}, which subscribe names, does not exist",
            )
        return {name: known[name] for name in names}
    if subscription is not None and subscription.pattern is not None:
        pattern = re.compile(subscription.pattern)
        return {name: count for name, count in known.items() if pattern.fullmatch(name)}
    return known


def _pages(topics: dict[str, int], at_offset: int) -> Iterator[tuple[_Topics, int]]:
    page: _Topics = {}
    count = 0
    for name, partitions in sorted(topics.items()):
        if page and count + partitions > _PARTITIONS_MAX:
            yield page, at_offset
            page, count = {}, 0
        page[name] = None
        count += partitions
    if page:
        yield page, at_offset


async def _page(cluster: Cluster, topics: _Topics, at_offset: int) -> HistoryReport | None:
    """One response; None if a topic did not exist yet."""
    from sparkraft.protocol.messages import k10002_describe_history as k10002

    request = k10002.DescribeHistoryRequest(
        topics=[k10002.HistoryTopic(name=n, partitions=p) for n, p in topics.items()],
        at_offset=at_offset,
        events_max=_EVENTS_MAX,
        whole_log=True,
    )
    for attempt in range(_ATTEMPTS_MAX):
        try:
            return await fetch_history(cluster, request)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or attempt == _ATTEMPTS_MAX - 1:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)
    raise AssertionError


def _take(
    found: dict[tuple[str, int], PartitionHistory], report: HistoryReport, start: int
) -> list[tuple[str, int, int]]:
    """Keep the changes of a response; return (topic, partition, last offset) of earlier ones."""
    described = report.history.partitions
    # Whatever the limit of the node was: only the longest lists can have been cut.
    longest = max((len(each.events) for each in described), default=0)
    more = []
    for each in described:
        key = each.topic, each.partition
        kept = found.get(key)
        if kept is None:
            kept = found[key] = PartitionHistory(
                topic=each.topic,
                topic_id=str(each.topic_id),
                partition=each.partition,
                state=each.state,
            )
        kept.changes[:0] = [(event, report) for event in each.events]
        if each.events and len(each.events) == longest and _lacks_earlier(kept.changes, start):
            more.append((each.topic, each.partition, each.events[0].offset - 1))
    return more


def _lacks_earlier(changes: Sequence[tuple[Any, HistoryReport]], start: int) -> bool:
    """Whether changes in the range, or the last election before it, may be missing."""
    oldest = changes[0][0]
    if oldest.before is None:
        return False
    if oldest.offset >= start:
        return True
    return not any(event.offset < start and is_election(event) for event, _ in changes) and any(
        event.offset >= start for event, _ in changes
    )


def is_election(event: Any) -> bool:
    """Whether the event changes the leader; the first leader counts, a deletion does not."""
    before = -1 if event.before is None else event.before.leader
    return event.after is not None and event.after.leader != before

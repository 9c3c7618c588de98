"""Records of the metadata log, a page at a time, for the metadata table `records`.

The nodes leave out records that change nothing, replace what the principal may not see, and remove
secrets.

Not here: Spark (`metadata_source`). Apache Kafka's nodes do not serve the request.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.decoders.internal_topics import DECODERS
from sparkraft.client.past.changes import leader_of
from sparkraft.client.past.log import PastReader
from sparkraft.pipeline.metadata_rows import time_of
from sparkraft.pipeline.partition_history import connected
from sparkraft.records.record import decode_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkraft.client.past.log import LogPage
    from sparkraft.pipeline.options import ClientOptions

_NO_OP: Final = "NO_OP_RECORD"
_ATTEMPTS_MAX: Final = 20
_PAUSE_SECONDS: Final = 0.25
"""A node may learn a moment later than the leader what is committed."""


def first_offset(options: ClientOptions) -> int:
    """The first offset that the log still has."""

    async def ask() -> int:
        async with connected(options) as cluster:
            return (await PastReader(cluster).page(to_offset=0)).range.start_offset

    return asyncio.run(ask())


def pages_of_rows(options: ClientOptions, start: int, end: int) -> Iterator[list[dict[str, Any]]]:
    """The rows of the records at offsets from `start` to before `end`.

    Raises:
        KafkaError: no node serves the request, or `start` is not in the log.
    """
    with asyncio.Runner() as runner:
        cluster = connected(options)
        runner.run(cluster.__aenter__())
        try:
            reader = PastReader(cluster)
            while start < end:
                page = runner.run(_page(reader, start, end))
                yield list(_rows(page, end))
                start = page.next_offset
        finally:
            runner.run(cluster.__aexit__(None, None, None))


async def _page(reader: PastReader, start: int, end: int) -> LogPage:
    for _ in range(_ATTEMPTS_MAX):
        page = await reader.page(from_offset=start, to_offset=end)
        if page.next_offset > start:
            return page
        await asyncio.sleep(_PAUSE_SECONDS)
    raise KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE, f"the node does not know that offset {start} is committed"
    )


def _rows(page: LogPage, end: int) -> Iterator[dict[str, Any]]:
    for header, view in page.batches():
        for record in decode_records(view):
            if not page.from_offset <= record.offset < end:
                continue
            kind, document = _content(record, is_control=header.is_control)
            if kind is None or kind == _NO_OP:
                continue
            yield {
                "offset": record.offset,
                "timestamp": time_of(header.max_timestamp),
                "leaderEpoch": header.partition_leader_epoch,
                "type": kind,
                "record": json.dumps(document),
            }


def _content(record: Any, *, is_control: bool) -> tuple[str | None, Any]:
    if not is_control:
        _, decoded = DECODERS["cluster-metadata-decoder"].decode(record)
        return decoded["type"], decoded
    leader_id = leader_of(record.key, record.value)
    return (None, None) if leader_id is None else ("LEADER_CHANGE", {"leaderId": leader_id})

"""Spark pipelines, from the documents that they publish: one for each batch, in a compacted topic.

`batches_topic` in a pipeline's file names the topic. The newest `RECORDS_MAX` records of each of
its partitions are read, and the newest documents of each pipeline kept.
"""

from __future__ import annotations

import asyncio
import json
from shlex import quote
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.errors import sentence_of
from sparkraft.client.values import EARLIEST, LATEST
from sparkraft.console.recent import RecentAnswers

if TYPE_CHECKING:
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.reading import ConsumedRecord

Json = dict[str, Any]

DEFAULT_TOPIC = "pipeline-batches"
"""As in docs/pipelines.md."""

RECORDS_MAX = 2_000
"""Of a partition; compaction keeps few."""

BATCHES_SHOWN = 60
"""Of a pipeline."""

PIPELINES_MAX = 200
SECONDS_MAX = 5.0
_POLL_MS = 200


class PipelineViews:
    """See the module docstring; a request raises the `KafkaError` of the cluster."""

    def __init__(self, cluster: Cluster, *, bootstrap: str) -> None:
        """Use `cluster`, which commands name as `bootstrap`."""
        self._cluster = cluster
        self._bootstrap = bootstrap
        self._recent = RecentAnswers()

    async def pipelines(self, topic: str) -> Json:
        """The newest batches of all pipelines that publish in `topic`."""
        return await self._recent.get(topic, lambda: self._pipelines(topic))

    async def _pipelines(self, topic: str) -> Json:
        try:
            records, problem = await self._newest(topic), ""
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            records, problem = [], sentence_of(error)  # nothing was published yet
        found: dict[str, list[Json]] = {}
        damaged = 0
        for record in sorted(records, key=lambda each: (each.timestamp, each.offset)):
            document = _document_of(record)
            if document is None:
                damaged += record.value is not None
            elif document["pipeline"] in found or len(found) < PIPELINES_MAX:
                found.setdefault(document["pipeline"], []).append(document)
        return {
            "topic": topic,
            "problem": problem,
            "pipelines": [
                {"pipeline": name, "batches": found[name][-BATCHES_SHOWN:]}
                for name in sorted(found)
            ],
            "damaged": damaged,
            "command": f"sparkraft console-consumer --topic {quote(topic)} --from-beginning "
            f"--timeout-ms 2000 --bootstrap-server {self._bootstrap}",
        }

    async def _newest(self, topic: str) -> list[ConsumedRecord]:
        """The newest records; fewer if they do not arrive in time."""
        admin = Admin(self._cluster)
        info = (await admin.describe_topics([topic]))[topic]
        if isinstance(info, KafkaError):
            raise info
        led = [(topic, p.index) for p in info.partitions.values() if p.leader >= 0]
        first = await admin.list_offsets(dict.fromkeys(led, EARLIEST))
        last = await admin.list_offsets(dict.fromkeys(led, LATEST))
        ends = {
            tp: (max(start.offset, end.offset - RECORDS_MAX), end.offset)
            for tp in led
            if not isinstance(start := first[tp], KafkaError)
            and not isinstance(end := last[tp], KafkaError)
            and start.offset < end.offset
        }
        found: list[ConsumedRecord] = []
        try:
            async with (
                asyncio.timeout(SECONDS_MAX),
                Consumer(self._cluster, ConsumerSettings(auto_offset_reset="earliest")) as consumer,
            ):
                consumer.assign(ends)
                for tp, (start_offset, _) in ends.items():
                    consumer.seek(tp, start_offset)
                while any((consumer.position(tp) or 0) < end for tp, (_, end) in ends.items()):
                    found += await consumer.poll(_POLL_MS)
        except TimeoutError:
            return found
        return found


def _document_of(record: ConsumedRecord) -> Json | None:
    """The document of a batch; None if the record has none."""
    try:
        found = json.loads(record.value or b"")
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("pipeline"), str):
        return None
    return {**found, "atMs": record.timestamp}

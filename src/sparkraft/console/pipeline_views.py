"""Spark pipelines, from the documents of their batches: in a compacted topic, and in files.

`batches_topic` in a pipeline's file names the topic. The newest `RECORDS_MAX` records of each of
its partitions are read, and the newest documents of each pipeline kept. The files are beside the
checkpoints below a folder, if the console was given one (`pipeline_files`).

Viewers may not read records, and they choose the topic: of a record, only the figures of a batch
are shown, and only if it has them.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from shlex import quote
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.consumer import Consumer, ConsumerSettings
from sparkraft.client.errors import sentence_of
from sparkraft.client.values import EARLIEST, LATEST
from sparkraft.console.pipeline_files import newest_documents
from sparkraft.console.recent import RecentAnswers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sparkraft.client.cluster import Cluster
    from sparkraft.client.reading import ConsumedRecord
    from sparkraft.console.record_text import RecordText

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

    def __init__(
        self, cluster: Cluster, text: RecordText, *, bootstrap: str, folder: Path | None
    ) -> None:
        """Use `cluster`, which commands name as `bootstrap`, and the files below `folder`."""
        self._folder = folder
        self._cluster = cluster
        self._text = text
        self._bootstrap = bootstrap
        self._recent = RecentAnswers()

    async def pipelines(self, topic: str) -> Json:
        """The newest batches of all pipelines that publish in `topic` or have files."""
        return await self._recent.get(topic, lambda: self._pipelines(topic))

    async def _pipelines(self, topic: str) -> Json:
        try:
            records, problem = await self._text.safe(await self._newest(topic)), ""
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            records, problem = [], sentence_of(error)  # nothing was published yet
        published = [document_of(each) for each in records if each.value is not None]
        written, damaged = await self._written()
        documents = [each for each in published if each is not None]
        return {
            "topic": topic,
            "folder": None if self._folder is None else str(self._folder),
            "problem": problem if self._folder is None else "",
            "pipelines": _by_pipeline([*documents, *written]),
            "damaged": damaged + len(published) - len(documents),
            "command": f"sparkraft console-consumer --topic {quote(topic)} --from-beginning "
            f"--timeout-ms 2000 --bootstrap-server {self._bootstrap}",
            "filesCommand": None
            if self._folder is None
            else f"sparkraft pipeline list {quote(str(self._folder))}",
        }

    async def _written(self) -> tuple[list[Json], int]:
        """The documents in files, and how many are damaged."""
        folder = self._folder
        if folder is None:
            return [], 0
        found, damaged = await asyncio.to_thread(
            lambda: newest_documents(folder, batches_max=BATCHES_SHOWN)
        )
        sound = [{**_figures(each), "atMs": each["atMs"]} for each in found if _is_batch(each)]
        return sound, damaged + len(found) - len(sound)

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


def document_of(record: ConsumedRecord) -> Json | None:
    """The document of a batch; None if the record has none."""
    try:
        found = json.loads(record.value or b"")
    except (ValueError, RecursionError):
        return None
    return {**_figures(found), "atMs": record.timestamp} if _is_batch(found) else None


_NUMBERS = ("records", "lag", "late", "damaged", "state_rows")
_TEXTS = {
    "query": re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    "watermark": re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{1,20}Z?"),
}
_SHOWN = ("pipeline", "batch", "seconds", *_NUMBERS, *_TEXTS)


def _figures(batch: Json) -> Json:
    """The fields that the page shows; a text only if it has the form of the field."""
    return {name: batch[name] for name in _SHOWN if name in batch and _is_figure(batch, name)}


def _is_figure(batch: Json, name: str) -> bool:
    form = _TEXTS.get(name)
    return form is None or batch[name] is None or bool(form.fullmatch(str(batch[name])))


def _is_batch(found: Any) -> bool:
    """Whether a page can show it: anyone who may write to the topic can write anything."""
    if not isinstance(found, dict) or not isinstance(found.get("pipeline"), str):
        return False
    return (
        _is_number(found.get("batch"))
        and _is_number(found.get("seconds"))
        and all(_is_number(found[name]) for name in _NUMBERS if found.get(name) is not None)
        and isinstance(found.get("watermark", ""), str | None)
    )


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _by_pipeline(documents: Iterable[Json]) -> list[Json]:
    """The newest batches of each pipeline; one that is in a file and in the topic is one."""
    found: dict[str, dict[tuple[Any, ...], Json]] = {}
    for each in sorted(documents, key=lambda one: one["atMs"]):
        if each["pipeline"] in found or len(found) < PIPELINES_MAX:
            batch = (str(each.get("query")), each["batch"])
            found.setdefault(each["pipeline"], {})[batch] = each
    return [
        {"pipeline": name, "batches": list(batches.values())[-BATCHES_SHOWN:]}
        for name, batches in sorted(found.items())
    ]

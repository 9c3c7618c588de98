"""One JSON document for each batch, in a file beside the checkpoint and optionally in a topic.

    CHECKPOINT.batches.jsonl     a line for each batch that Spark has committed
    CHECKPOINT.batches.1.jsonl   the file before it

A killed driver may leave the last batch without a line. Only checkpoints in a folder of this
machine have these files.
"""

from __future__ import annotations

import json
import logging
import os
import time
from typing import TYPE_CHECKING, Any, Final

from sparkraft.base.errors import KafkaError
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.status import beside, is_local
from sparkraft.pipeline.wire import shared_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.pipeline.options import ClientOptions
    from sparkraft.pipeline.progress import Progress

log = logging.getLogger(__name__)

_NEWEST: Final = ".batches.jsonl"
_OLDER: Final = ".batches.1.jsonl"

_FILE_BYTES_MAX: Final = 8 << 20
"""About 20,000 batches; two files are kept."""


def append(checkpoint: str, document: Mapping[str, Any]) -> None:
    """Add a batch."""
    if not is_local(checkpoint):
        return
    path = beside(checkpoint, _NEWEST)
    if path.exists() and path.stat().st_size > _FILE_BYTES_MAX:
        path.replace(beside(checkpoint, _OLDER))
    with path.open("a") as file:
        file.write(json.dumps(document) + "\n")


class Reader:
    """Reads the newest file while it grows."""

    def __init__(self, checkpoint: str) -> None:
        """Start at its beginning."""
        self._path = beside(checkpoint, _NEWEST)
        self._position = 0

    def new(self) -> list[dict[str, Any]]:
        """The documents that were added since the last call; damaged lines are left out."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < self._position:
                self._position = 0
            file.seek(self._position)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._position += len(complete)
        return [read for line in complete.splitlines() if (read := _parsed_line(line))]


def _parsed_line(line: bytes) -> dict[str, Any] | None:
    # A kill can cut a line off; the next process appends to it.
    try:
        read = json.loads(line)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


class TopicLog:
    """Sends the documents to a topic, with the pipeline's name as key.

    The topic is created compacted, so that it keeps the last batch of each pipeline. A document
    that cannot be sent is logged and left out: the file has it.
    """

    def __init__(self, client: ClientOptions, topic: str) -> None:
        """Prepare; nothing is sent."""
        self._client = client
        self._topic = topic
        self._is_created = False

    def append(self, document: Mapping[str, Any]) -> None:
        """Send a document; return when it is stored."""
        cluster = shared_cluster(self._client)
        try:
            if not self._is_created and self._topic not in cluster.topics([self._topic]):
                cluster.create_topic(self._topic, partitions=1, configs=_COMPACTED)
            self._is_created = True
            producer = Producer(cluster)
            value = json.dumps(document).encode()
            key = str(document["pipeline"]).encode()
            producer.send(self._topic, key, value, timestamp_ms=int(time.time() * 1000))
            producer.flush()
        except KafkaError as error:
            log.warning("A document of a batch was not sent to %s: %s", self._topic, error)


_COMPACTED: Final = {"cleanup.policy": "compact"}


def forget(checkpoint: str) -> None:
    """Delete the files, for a checkpoint that is deleted."""
    for suffix in (_OLDER, _NEWEST):
        beside(checkpoint, suffix).unlink(missing_ok=True)


def document(name: str, progress: Progress) -> dict[str, Any]:
    """The document of a batch of the pipeline `name`."""
    report = progress.report
    states = report.get("stateOperators") or ()
    return {
        "pipeline": name,
        "query": report.get("id"),
        "started": report.get("timestamp"),
        **progress.figures(),
        "durations_ms": dict(report["durationMs"]),
        "watermark": (report.get("eventTime") or {}).get("watermark"),
        "state_rows": sum(each.get("numRowsTotal", 0) for each in states),
        "state_bytes": sum(each.get("memoryUsedBytes", 0) for each in states),
        "sources": [
            {key: _parsed(source.get(field)) for key, field in _SOURCE_FIELDS}
            for source in report["sources"]
        ],
    }


_SOURCE_FIELDS: Final = (("start", "startOffset"), ("end", "endOffset"), ("latest", "latestOffset"))


def _parsed(offsets: Any) -> Any:
    return json.loads(offsets) if isinstance(offsets, str) else offsets

"""Dead letters: records that a pipeline could not process, kept with the reason.

A record's identity is (query, batch, topic, partition, offset). Dead letters are written before
Spark marks their batch as done: those of a sink before the sink, those of the sources after all
sinks. So a crash repeats the batch and its dead letters: a table takes them once, and so does a
topic with `delivery = "exactly_once"`. Another topic may have them twice.

The dead letters of a batch are written in several parts: those of the sources, and those of each
table sink. In an exactly-once topic, a part is a transaction of the driver with a decision of its
own. A decision is found only until the next one of its prefix, so each part has a prefix.

In a topic, a dead letter has the key and value of its record, byte for byte, and headers with
Kafka Connect's names (KIP-298) for the fields that Connect has. Its own timestamp is the time of
writing: with the record's, retention could delete it at once.

Not here: finding damaged records (`json_values`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkraft.pipeline.decisions import QueryBatch
from sparkraft.pipeline.delta import DeltaSink
from sparkraft.pipeline.exactly_once import Committer, write_here
from sparkraft.pipeline.options import sink_options
from sparkraft.pipeline.produce import Producer
from sparkraft.pipeline.wire import shared_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from sparkraft.pipeline.options import SinkOptions

VALUE_CONVERTER: Final = "VALUE_CONVERTER"
"""Connect's name of the stage that decodes values."""
TASK_PUT: Final = "TASK_PUT"
"""Connect's name of the stage that writes into a sink."""

_CONNECT: Final = "__connect.errors."
_OURS: Final = "sparkraft.errors."


class DeadLetter(NamedTuple):
    """A record, or a row of the result, that was not processed.

    Args:
        topic: of the record; None, as the next three, for a row without such a column.
        timestamp: of the record, in milliseconds since 1970.
        value: of the record; a row as JSON.
        error: the reason, in a sentence.
        stage: the step that failed, in Connect's words.
    """

    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    error: str
    stage: str = VALUE_CONVERTER


@dataclass(frozen=True, slots=True)
class BatchName:
    """The batch that dead letters belong to.

    Args:
        part: the sink whose dead letters they are; empty for those of the sources.
    """

    pipeline: str
    query: str
    batch: int
    part: str = ""


def of_part(options: SinkOptions, part: str) -> SinkOptions:
    """The options for a part of a batch, which has a transactional id prefix of its own."""
    prefix = options.transactional_id_prefix
    if not prefix or not part:
        return options
    name = sha256(part.encode()).hexdigest()[:_PART_LENGTH]
    return replace(options, transactional_id_prefix=f"{prefix}.part-{name}")


_PART_LENGTH: Final = 8


class DeadLetterTopic:
    """Writes dead letters into a topic: at least once, or once if there is a prefix."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Take the options of a topic sink."""
        self._options = sink_options(options)
        self._committers: dict[str, Committer] = {}

    def write(self, letters: Sequence[DeadLetter], name: BatchName) -> None:
        """Return when all are stored with acks=all, and visible."""
        if self._options.transactional_id_prefix:
            self._write_once(letters, name)
            return
        producer = Producer(shared_cluster(self._options.client))
        self._send(producer, letters, name)
        producer.flush()

    def _write_once(self, letters: Sequence[DeadLetter], name: BatchName) -> None:
        options = of_part(self._options, name.part)
        if name.part not in self._committers:
            self._committers[name.part] = Committer.of(options)
        committer, batch = self._committers[name.part], QueryBatch(name.query, name.batch)
        ticket = committer.open()
        if ticket.has(batch):
            return
        with committer.aborting(ticket, batch):
            slot = write_here(
                options, ticket, batch, lambda producer: self._send(producer, letters, name)
            )
            committer.commit(ticket, batch, [slot] if slot else [])

    def _send(self, producer: Producer, letters: Sequence[DeadLetter], name: BatchName) -> None:
        now = int(time.time() * 1000)
        assert self._options.topic is not None
        for each in letters:
            producer.send(
                self._options.topic,
                each.key,
                each.value,
                timestamp_ms=now,
                headers=_headers(each, name),
            )


def _headers(letter: DeadLetter, name: BatchName) -> list[tuple[str, bytes | None]]:
    texts = {
        f"{_CONNECT}topic": letter.topic,
        f"{_CONNECT}partition": letter.partition,
        f"{_CONNECT}offset": letter.offset,
        f"{_CONNECT}connector.name": name.pipeline,
        f"{_CONNECT}stage": letter.stage,
        f"{_CONNECT}exception.message": letter.error,
        f"{_OURS}timestamp": letter.timestamp,
        f"{_OURS}query": name.query,
        f"{_OURS}batch": name.batch,
    }
    known = {header: text for header, text in texts.items() if text is not None}
    return [(header, str(text).encode()) for header, text in known.items()]


class DeadLetterTable:
    """Adds dead letters to a Delta table, each batch once."""

    def __init__(self, path: str) -> None:
        """The first dead letter creates the table."""
        self._table = DeltaSink(path, ())

    def write(self, letters: Sequence[DeadLetter], name: BatchName) -> None:
        """Commit all of a part of a batch at once; nothing if the table has it."""
        marker = name.query + name.part
        if not self._table.has(marker, name.batch):
            self._table.write(as_table(letters, name), marker, name.batch)


def as_table(letters: Sequence[DeadLetter], name: BatchName) -> pa.Table:
    """The columns of a table of dead letters."""
    import pyarrow as pa

    columns: list[Any] = [
        pa.array([name.query] * len(letters), pa.string()),
        pa.array([name.batch] * len(letters), pa.int64()),
    ]
    types = (
        pa.string(), pa.int32(), pa.int64(), pa.timestamp("ms", tz="UTC"), pa.binary(),
        pa.binary(), pa.string(), pa.string(),
    )  # fmt: skip
    fields = zip(*letters, strict=True)
    columns += [pa.array(values, kind) for values, kind in zip(fields, types, strict=True)]
    columns[5] = columns[5].cast(pa.timestamp("us", tz="UTC"))
    return pa.Table.from_arrays(columns, names=["query", "batch", *DeadLetter._fields])

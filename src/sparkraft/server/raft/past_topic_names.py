"""The names of all topics in the retained metadata log, deleted ones included, by topic id.

Records name most topics by id only. A reader whose principal may not see all topics needs the names
to authorize each record. The log is scanned once, and then only from the last scan on.
"""

from collections.abc import Generator, Mapping

from sparkraft.base.ids import Offset, Uuid
from sparkraft.protocol.framing import METADATA_FRAME_VERSION, decode_metadata_record
from sparkraft.protocol.messages.metadata_records import TopicRecord
from sparkraft.records.record import decode_records
from sparkraft.server.raft.committed_log import (
    LogReader,
    cleaned,
    committed_batches,
    committed_end,
)
from sparkraft.storage.snapshot_files import ZERO_SNAPSHOT

TOPIC_FRAME = bytes((METADATA_FRAME_VERSION, TopicRecord.SCHEMA.key))
"""The first bytes of a TopicRecord; batches without them are not decoded."""


class PastTopicNames:
    """See the module docstring; bounded by the retention of the log."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._names: dict[Uuid, str] = {}
        self._start = Offset(-1)
        """The log start when the names were scanned; they are scanned again when it advances."""
        self._position = Offset(0)

    def names(self) -> Generator[int, None, Mapping[Uuid, str]]:
        """The names of all topics in the committed log, by topic id."""
        log = self._reader.log
        if log.start != self._start:
            self._names, self._start = {}, log.start
            self._position = log.start
            yield from self._scan_snapshot()
        names = self._names
        for header, view in committed_batches(log, self._position, committed_end(self._reader)):
            yield from _add(names, view)
            if names is self._names:
                self._position = max(self._position, header.next_offset)
        return names

    def _scan_snapshot(self) -> Generator[int, None, None]:
        log = self._reader.log
        oldest = min((s for s in log.snapshots if s != ZERO_SNAPSHOT), default=None)
        if oldest is None or log.start == 0:
            return
        try:
            for batch in log.open_snapshot(oldest).data_batches():
                yield from _add(self._names, memoryview(batch))
        except FileNotFoundError as error:
            self._start = Offset(-1)
            raise cleaned() from error


def _add(names: dict[Uuid, str], batch: memoryview) -> Generator[int, None, None]:
    yield 1
    if TOPIC_FRAME not in bytes(batch):
        return
    for record in decode_records(batch):
        yield 1
        value = record.value or b""
        if value[: len(TOPIC_FRAME)] == TOPIC_FRAME:
            message, _ = decode_metadata_record(value)
            assert isinstance(message, TopicRecord)
            names[Uuid(message.topic_id)] = message.name

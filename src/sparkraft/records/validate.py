"""Checks and rewrites before a leader's append (Kafka's LogValidator).

Order of the checks is Kafka's, because it decides which error a client sees:

1. base offset 0, size, CRC; 2. the header against itself; 3. each record, if asked for.

Two depths (`sparkraft.record.validation`): `full`, the default, walks every record as Kafka does;
`header` believes the record bytes under a right CRC and checks the header's own times and counts.
Compacted topics and batches that must be rewritten are always walked.

As in Kafka, a batch is rewritten only for LogAppendTime, a wrong maximum timestamp (`full`) and a
`compression.type` other than the batch's.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.loop_work import WorkMax
from sparkraft.records.batch import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    COUNT_AT,
    HEAD_PATCH_SIZE,
    HEADER,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    SMALLEST_LENGTH,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    crc_ok,
    iter_batches,
    parse_header,
    sealed,
    with_timestamps,
)
from sparkraft.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    BrokenDataError,
    Codec,
    compress,
)
from sparkraft.records.crc import crc32c
from sparkraft.records.errors import CorruptRecords, RefusedRecords
from sparkraft.records.record import BatchBuilder, decode_records, decompressed, scan_plain
from sparkraft.records.walk import RECORDS_PER_PAUSE, walk, walk_part

INFLATED_RATIO_MAX = 100
"""Compression ratio limit of a produced batch that must be scanned or rewritten. Text reaches 20; a
far higher ratio is an attack on the broker."""

INFLATED_FREE_BYTES = 16 << 20
"""Any batch may inflate to this: small ones of equal records have high ratios."""

WALKED_RECORDS_MAX = 500_000
"""Records in a compressed batch that must be walked: most of a second of the loop."""

KEYLESS = "Compacted topic cannot accept message without key"
"""Kafka's text for a record without a key in a compacted topic."""

_SMALLEST_RECORD_BYTES = 7
_ERRORS_SHOWN_MAX = 3
_FIRST_ZSTD_VERSION = 7


class Origin(Enum):
    """Source of records appended to a leader's log."""

    CLIENT = "client"
    """Produce: everything is checked."""
    COORDINATOR = "coordinator"
    """A coordinator on this broker, which has built the batch: control batches and missing
    sequences are allowed."""
    RAFT = "raft"
    """The quorum leader: offsets and epochs are already right."""


class Rules(NamedTuple):
    """A topic's settings that bear on what it takes."""

    max_message_bytes: int = 1_048_588
    codec: Codec | None = None
    """`compression.type`; None is `producer`: keep the producer's."""
    level: int | None = None
    log_append_time: bool = False
    timestamp_before_max_ms: int = (1 << 63) - 1
    timestamp_after_max_ms: int = 3_600_000
    compacted: bool = False
    walk_records: bool = False
    """`sparkraft.record.validation=full`."""
    plain: bool = False
    """True if neither codec, append time nor compaction applies, so that the fast path may be
    taken."""


class Prepared(NamedTuple):
    """A batch fit to be appended."""

    header: BatchHeader
    """As it will be written, but for base offset and leader epoch."""
    rest: Buffer
    """The bytes from 16 on; the first 16 are the leader's to write."""


def is_heavy(records: Buffer, rules: Rules, work_max: WorkMax) -> bool:
    """Whether `check_produced` must run in a thread: long, or in calls that let others run."""
    size = len(records)
    if size < BATCH_OVERHEAD or (rules[8] and not rules[7]):
        return False
    codec = records[ATTRIBUTES_AT + 1] & CODEC_MASK
    if not codec and rules[8] and size < work_max[1] * _SMALLEST_RECORD_BYTES:
        return False  # it has no room for that many records
    converted = rules.codec is not None and rules.codec != codec
    if converted or rules.walk_records or rules.compacted:
        if int.from_bytes(records[COUNT_AT:BATCH_OVERHEAD], "big") > work_max.records:
            return True
        if codec == Codec.ZSTD:
            return size > work_max.codec_bytes >> 3
        if converted or codec != Codec.NONE:
            return size > work_max.codec_bytes
    return size > work_max.bytes


def check_request_records(records: Buffer | None, version: int) -> None:
    """Refuse what a Produce request of `version` may not carry: exactly one batch of format 2.

    Raises:
        RefusedRecords: no batch, several, or an older format.
        CorruptRecords: bytes that are not a batch.
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE for zstd before version 7.
    """
    view = memoryview(records if records is not None else b"")
    if len(view) > BATCH_OVERHEAD and view[16] == MAGIC:  # one whole batch: nearly always
        length = int.from_bytes(view[8:LOG_OVERHEAD], "big", signed=True)
        if length + LOG_OVERHEAD == len(view):
            _check_zstd(view[ATTRIBUTES_AT + 1], version)
            return
    _check_unusual(view, version)


def _check_zstd(attributes: int, version: int) -> None:
    if version < _FIRST_ZSTD_VERSION and attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {version} can't carry zstd; it needs {_FIRST_ZSTD_VERSION}",
        )


def _check_unusual(view: memoryview, version: int) -> None:
    if len(view) > 16 and view[16] < MAGIC and _whole(view):  # noqa: PLR2004 (the magic's place)
        raise RefusedRecords(f"Produce version {version} carries only batches of format 2")
    batches = [header for header, _ in iter_batches(view)]
    if not batches:
        raise RefusedRecords(f"Produce version {version} needs a record batch for each partition")
    _check_zstd(batches[0].attributes, version)
    if len(batches) > 1:
        raise RefusedRecords(f"Produce version {version} carries one batch a partition, not more")


def _whole(view: memoryview) -> bool:
    return 0 < int.from_bytes(view[8:LOG_OVERHEAD], "big", signed=True) <= len(view) - LOG_OVERHEAD


def _no_pause() -> None:
    """Do not pause: the caller is not in a thread."""


def check_produced(
    records: Buffer,
    rules: Rules,
    now_ms: int,
    origin: Origin = Origin.CLIENT,
    pause: Callable[[], None] = _no_pause,
) -> Prepared:
    """Check one batch for a leader's append, and rewrite it if the topic's configs require it.

    Args:
        records: exactly one batch; a cut-off second one is ignored, as Kafka does.
        rules: the topic's settings.
        now_ms: wall clock, for timestamps.
        origin: CLIENT or COORDINATOR.
        pause: called after every few thousand records, for callers in a thread.

    Raises:
        KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD or INVALID_TIMESTAMP, the
            last two as `RefusedRecords` with the errors of single records.
    """
    if rules[8] and origin is Origin.CLIENT:
        usual = _usual(records, rules, now_ms)
        if usual is not None:
            return usual
    if origin is Origin.COORDINATOR:
        own = _own(records, rules)
        if own is not None:
            return own
    size = len(records)
    if size < BATCH_OVERHEAD:
        raise CorruptRecords(f"{size} bytes can't hold a record batch")
    header = BatchHeader._make(HEADER.unpack_from(records))
    if header[1] != size - LOG_OVERHEAD or header[3] != MAGIC:
        records, header = _sole_batch(records)
        size = len(records)
    view = memoryview(records)
    _check_whole(header, view, rules, origin)
    if origin is Origin.CLIENT:
        _check_client_header(header)
    return _check_records(header, view, rules, now_ms, pause)


_new = tuple.__new__
"""A named tuple without the call of its `__new__`; for the hot path alone."""


def _usual(records: Buffer, rules: Rules, now_ms: int) -> Prepared | None:
    """Check a batch without special features; None sends it to the full check.

    The full check names the reason of a refusal. These are the same checks in one pass; they take
    a sixth of a small Produce's time.
    """
    size = len(records)
    if not BATCH_OVERHEAD < size <= rules[0]:
        return None
    fields = HEADER.unpack_from(records)
    base_offset, length, _, magic, crc, attributes, delta, first, largest = fields[:9]
    producer_id, _, sequence, count = fields[9:]
    codec = attributes & ~TRANSACTIONAL_BIT
    if (
        base_offset
        or length != size - LOG_OVERHEAD
        or magic != MAGIC
        or not 0 <= codec <= Codec.ZSTD
        or delta != count - 1
        or delta < 0
        or (sequence < 0 and producer_id > NO_PRODUCER_ID)
    ):
        return None
    earliest, latest = now_ms - rules[4], now_ms + rules[5]
    if not (earliest <= first <= latest and earliest <= largest <= latest):
        return None
    view = memoryview(records)
    if crc32c(view[ATTRIBUTES_AT:]) != crc:
        return None
    if rules[7] and (codec or not _walks(view, count, earliest - first, largest - first)):
        return None
    return _new(Prepared, (_new(BatchHeader, fields), view[HEAD_PATCH_SIZE:]))


def _own(records: Buffer, rules: Rules) -> Prepared | None:
    """A batch that this broker has just built; None sends it to the full check.

    Neither its CRC nor its records are checked: that would take longer than the write.
    """
    size = len(records)
    if not BATCH_OVERHEAD < size <= rules[0] or rules[3]:
        return None
    fields = HEADER.unpack_from(records)
    codec = fields[5] & CODEC_MASK
    if fields[1] != size - LOG_OVERHEAD or (rules[1] is not None and rules[1] != codec):
        return None
    return _new(Prepared, (_new(BatchHeader, fields), memoryview(records)[HEAD_PATCH_SIZE:]))


def _walks(batch: memoryview, count: int, low: int, high: int) -> bool:
    """Whether the records are usual, none is older than `low`, and `high` is the largest delta."""
    if count > RECORDS_PER_PAUSE:
        return False
    try:
        part = walk_part(batch, BATCH_OVERHEAD, 0, count)
    except (IndexError, DecodeError):
        return False
    return part is not None and part[0] == len(batch) and part[1] >= low and part[2] == high


def _sole_batch(records: Buffer) -> tuple[memoryview, BatchHeader]:
    """The only batch of an unusual buffer, else the refusal that fits."""
    parse_header(records)  # names what is wrong with the first header
    batches = list(iter_batches(records))
    if not batches:
        raise CorruptRecords(f"{len(records)} bytes hold less than one record batch")
    if len(batches) > 1:
        raise RefusedRecords("one append takes one record batch, not more")
    header, view = batches[0]
    return view, header


def _check_whole(header: BatchHeader, view: memoryview, rules: Rules, origin: Origin) -> None:
    if header.base_offset != 0 and origin is Origin.CLIENT:
        raise RefusedRecords(f"a produced batch has base offset 0, not {header.base_offset}")
    if len(view) > rules.max_message_bytes:
        raise too_large(len(view), rules.max_message_bytes)
    if not crc_ok(view):
        raise CorruptRecords(f"the CRC {header.crc} of the batch is wrong")


def too_large(size: int, bound: int) -> KafkaError:
    """MESSAGE_TOO_LARGE for a batch above `max.message.bytes`."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch has {size} bytes, and max.message.bytes is {bound}",
    )


def _check_client_header(header: BatchHeader) -> None:
    """The header against itself: counts, control bit, sequence."""
    last_offset_delta = header[6]
    if last_offset_delta < 0:
        raise RefusedRecords(f"the batch has a last offset delta of {last_offset_delta}")
    if header[12] <= 0:
        raise RefusedRecords(f"the batch claims {header.records_count} records")
    if last_offset_delta + 1 != header[12]:
        raise RefusedRecords(
            f"the batch claims {header.records_count} records but spans {last_offset_delta + 1} "
            "offsets"
        )
    if header[5] & CONTROL_BIT:
        raise RefusedRecords("clients may not write control records")
    if header[9] > NO_PRODUCER_ID and header[11] < 0:
        raise RefusedRecords(
            f"sequence {header.base_sequence} is invalid for producer {header.producer_id}"
        )


def _check_records(
    header: BatchHeader, view: memoryview, rules: Rules, now_ms: int, pause: Callable[[], None]
) -> Prepared:
    attributes = header[5]
    codec = attributes & CODEC_MASK
    if codec > Codec.ZSTD:
        raise RefusedRecords(f"the batch names codec {codec}, which does not exist")
    declared_append_time = attributes & LOG_APPEND_TIME_BIT
    if declared_append_time and (rules.log_append_time or header[8] == NO_TIMESTAMP):
        raise _log_append_time_from_client(header)
    target = codec if rules.codec is None else rules.codec
    control_plain = codec == Codec.NONE and attributes & CONTROL_BIT
    if target != codec and not control_plain:
        return _recompressed(header, view, rules, now_ms, pause)
    max_timestamp = header[8]
    if rules.walk_records or rules.compacted:
        max_timestamp, _ = _walk(header, view, rules, now_ms, pause)
    elif not rules.log_append_time:
        _check_header_times(header, rules, now_ms)
    if rules.log_append_time:
        return _restamped(view, log_append_time=True, max_timestamp=now_ms)
    if declared_append_time or max_timestamp != header[8]:
        return _restamped(view, log_append_time=False, max_timestamp=max_timestamp)
    return Prepared(header, view[HEAD_PATCH_SIZE:])


def _restamped(view: memoryview, *, log_append_time: bool, max_timestamp: int) -> Prepared:
    head, rest = with_timestamps(view, log_append_time=log_append_time, max_timestamp=max_timestamp)
    whole = head[HEAD_PATCH_SIZE:] + bytes(rest)
    return Prepared(BatchHeader._make(HEADER.unpack_from(head)), whole)


def _check_header_times(header: BatchHeader, rules: Rules, now_ms: int) -> None:
    """Both times of the header within bounds; record times lie between them unless it lies."""
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    for timestamp in (header[8], header[7]):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            detail = f"timestamp {timestamp} is not within [{earliest}, {latest}]"
            raise _refused([(0, detail)], bad_time=True)


def _log_append_time_from_client(header: BatchHeader) -> RefusedRecords:
    detail = "a producer may not set the timestamp type LogAppendTime"
    errors = [(index, detail) for index in range(min(header.records_count, _ERRORS_SHOWN_MAX))]
    return RefusedRecords(detail, errors, code=ErrorCode.INVALID_TIMESTAMP)


def _walk(
    header: BatchHeader, view: memoryview, rules: Rules, now_ms: int, pause: Callable[[], None]
) -> tuple[int, bytes | memoryview]:
    """Check every record; return the largest create time, and the record bytes decompressed."""
    if header.records_count > max(WALKED_RECORDS_MAX, len(view) // _SMALLEST_RECORD_BYTES):
        raise RefusedRecords(f"a compressed batch of {header.records_count} records is too much")
    try:
        data = decompressed(view, _bound_of(view))
    except BrokenDataError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    except DecodeError as error:
        raise RefusedRecords(f"the records of the batch are malformed: {error}") from error
    latest = _usual_max_timestamp(header, data, rules, now_ms, pause)
    if latest is None:
        latest = _checked_each(header, data, rules, now_ms, pause)
    return latest, data


def _usual_max_timestamp(
    header: BatchHeader,
    data: bytes | memoryview,
    rules: Rules,
    now_ms: int,
    pause: Callable[[], None],
) -> int | None:
    """The largest create time of usual records that all pass; None: each must be looked at."""
    if header[5] & LOG_APPEND_TIME_BIT:
        return None
    walked = walk(data, header[12], pause)
    if walked is None or (rules.compacted and walked.keyless):
        return None
    low, high = header[7] + walked.low, header[7] + walked.high
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    if not rules.log_append_time and not earliest <= low <= high <= latest:
        return None
    return max(high, NO_TIMESTAMP)


def _checked_each(
    header: BatchHeader,
    data: bytes | memoryview,
    rules: Rules,
    now_ms: int,
    pause: Callable[[], None],
) -> int:
    """Check records one by one, to name those at fault; return the largest create time."""
    errors: list[tuple[int, str]] = []
    bad_time = False
    max_timestamp = NO_TIMESTAMP
    earliest = now_ms - rules.timestamp_before_max_ms
    latest = now_ms + rules.timestamp_after_max_ms
    try:
        for index, (delta, timestamp, has_key) in enumerate(scan_plain(header, data)):
            if not index % RECORDS_PER_PAUSE:
                pause()
            max_timestamp = max(max_timestamp, timestamp)
            if delta != index:
                raise RefusedRecords(f"record {index} of the batch has offset delta {delta}")
            if rules.compacted and not has_key:
                errors.append((index, KEYLESS))
            elif (
                not rules.log_append_time
                and timestamp != NO_TIMESTAMP
                and not earliest <= timestamp <= latest
            ):
                bad_time = True
                detail = f"timestamp {timestamp} is not within [{earliest}, {latest}]"
                errors.append((index, detail))
    except DecodeError as error:
        raise RefusedRecords(f"the records of the batch are malformed: {error}") from error
    if errors:
        raise _refused(errors, bad_time=bad_time)
    return max_timestamp


def _bound_of(view: memoryview) -> int:
    """Bytes that a produced batch may inflate to."""
    return min(DECOMPRESSED_BYTES_MAX, max(INFLATED_FREE_BYTES, INFLATED_RATIO_MAX * len(view)))


def _refused(errors: list[tuple[int, str]], *, bad_time: bool) -> RefusedRecords:
    if bad_time:
        detail = "One or more records have been rejected due to invalid timestamp"
        return RefusedRecords(detail, errors, code=ErrorCode.INVALID_TIMESTAMP)
    shown = "; ".join(f"record {index}: {text}" for index, text in errors[:_ERRORS_SHOWN_MAX])
    return RefusedRecords(f"{len(errors)} records are refused, the first: {shown}", errors)


def _recompressed(
    header: BatchHeader, view: memoryview, rules: Rules, now_ms: int, pause: Callable[[], None]
) -> Prepared:
    """The same records in the topic's codec: the same bytes, since offsets and times stay."""
    assert rules.codec is not None
    max_timestamp, data = _walk(header, view, rules, now_ms, pause)
    if header.is_log_append_time:
        # The times of its records are the header's; they become create times of their own.
        return _rebuilt(header, view, rules)
    payload = compress(rules.codec, data, rules.level) if rules.codec != Codec.NONE else data
    kept_bits = TRANSACTIONAL_BIT | CONTROL_BIT
    changed = header._replace(
        batch_length=SMALLEST_LENGTH + len(payload),
        attributes=header.attributes & kept_bits
        | rules.codec
        | (LOG_APPEND_TIME_BIT if rules.log_append_time else 0),
        max_timestamp=now_ms if rules.log_append_time else max_timestamp,
    )
    return _prepared(sealed(changed, payload), rules)


def _rebuilt(header: BatchHeader, view: memoryview, rules: Rules) -> Prepared:
    """The records in the topic's codec, each written again."""
    assert rules.codec is not None
    builder = BatchBuilder(
        codec=rules.codec,
        level=rules.level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
    )
    for record in decode_records(view, _bound_of(view)):
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return _prepared(builder.build(), rules)


def _prepared(batch: bytes, rules: Rules) -> Prepared:
    if len(batch) > rules.max_message_bytes:
        raise too_large(len(batch), rules.max_message_bytes)
    return Prepared(
        BatchHeader._make(HEADER.unpack_from(batch)), memoryview(batch)[HEAD_PATCH_SIZE:]
    )

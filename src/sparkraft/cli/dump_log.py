"""`dump-log`: prints segments, indexes, snapshots and cluster metadata, as `kafka-dump-log.sh`.

Reads files only; the node that owns them may be running. Errors in a file are reported on standard
error, and the exit code is then 1. Records are decoded by `client.decoders`. Secrets of the cluster
metadata are not shown, with `--print-data-log` either; Kafka's tool prints them.

Not done: Java decoder classes, tiered storage's metadata.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sparkraft.base.errors import DecodeError
from sparkraft.cli.errors import CommandError
from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import warn
from sparkraft.client.decoders.batches import batch_json, batch_text, record_json, record_text
from sparkraft.client.decoders.internal_topics import DECODERS, metadata_decoder, text_decoder
from sparkraft.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    crc_ok,
    parse_header,
)
from sparkraft.records.record import decode_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkraft.client.decoders.internal_topics import Decoder
    from sparkraft.records.record import Record

_NAME_DIGITS = 20
_INT_MAX = 0x7FFFFFFF
_METADATA_DIRECTORY = "__cluster_metadata-0"
_JAVA_STRING_DECODERS = (
    "org.apache.kafka.tools.api.StringDecoder",
    "kafka.serializer.StringDecoder",
)


def _options() -> Options:
    options = Options(
        "dump-log",
        "Prints .log, .checkpoint, .index, .timeindex, .txnindex and .snapshot files.\n"
        "With --output json every batch or entry is a JSON object on a line of its own.",
    )
    options.value("--files", about="files between commas", required=True, metavar="F1,F2")
    options.flag("--print-data-log", "print keys and values")
    options.flag("--deep-iteration", "print records, without keys and values")
    for name in DECODERS:
        options.flag(f"--{name}", f"take records as {DECODERS[name].about}")
    for name in ("--key-decoder-class", "--value-decoder-class"):
        options.value(
            name,
            about="only Kafka's StringDecoder is known",
            nargs="?",
            const=_JAVA_STRING_DECODERS[0],
        )
    options.flag("--skip-record-metadata", "print keys and values only")
    options.flag("--verify-index-only", "check indexes without printing them")
    options.flag("--index-sanity-check", "only the check a node does when it starts")
    options.value("--max-bytes", about="read no more of a log", type=int, default=_INT_MAX)
    options.value("--max-message-size", about="accepted, has no effect here", type=int)
    options.output()
    return options


def main(argv: list[str]) -> int:
    """Dump; 1 if something is wrong with a file."""
    values = _options().parse(argv)
    for name in (values.key_decoder_class, values.value_decoder_class):
        if name is not None and name not in _JAVA_STRING_DECODERS:
            raise CommandError(f"the decoder {name} can't be loaded here")
    problems = 0
    for name in values.files.split(","):
        path = Path(name.strip())
        if not path.is_file():
            raise CommandError(f"{path} does not exist")
        if values.output == "text":
            print(f"Dumping {path}")
        dump = _DUMPS.get(path.suffix)
        if dump is None:
            warn(f"Ignoring unknown file {path}")
            continue
        try:
            found = dump(path, values)
        except DecodeError as error:
            raise CommandError(f"{path}: {error}") from error
        problems += len(found)
        for problem in found:
            warn(problem)
    return int(bool(problems))


def _emit(values: Values, data: dict[str, Any], text: str) -> None:
    print(json.dumps(data, ensure_ascii=False) if values.output == "json" else text)


# logs and snapshots of metadata


def read_batches(file: BinaryIO, limit: int) -> Iterator[tuple[BatchHeader, bytes, int]]:
    """Each whole batch with its bytes and position, up to `limit` bytes of the file.

    Ends if no complete batch follows; the file's position is then the end of the last batch.
    """
    position = 0
    while True:
        file.seek(position)
        head = file.read(BATCH_OVERHEAD)
        if len(head) < BATCH_OVERHEAD or position + len(head) > limit:
            break
        header = parse_header(head)
        size = header.size_in_bytes
        body = file.read(size - BATCH_OVERHEAD)
        if len(body) < size - BATCH_OVERHEAD or position + size > limit:
            break
        yield header, head + body, position
        position += size
    file.seek(position)


def _decoder(values: Values, path: Path) -> Decoder | None:
    from sparkraft.metadata.redaction import redacted

    if values.cluster_metadata_decoder:
        return metadata_decoder(redacted)
    for name, choice in DECODERS.items():
        if getattr(values, name.replace("-", "_")):
            return choice.decode
    is_asked = values.print_data_log or values.key_decoder_class or values.value_decoder_class
    return text_decoder(redacted, is_metadata=_is_metadata(path)) if is_asked else None


def _is_metadata(path: Path) -> bool:
    """Whether a file is at a place for metadata; a copied segment may be elsewhere."""
    return path.suffix == ".checkpoint" or path.resolve().parent.name == _METADATA_DIRECTORY


def _dump_log(path: Path, values: Values) -> list[str]:
    decoder = _decoder(values, path)
    is_deep = decoder is not None or values.deep_iteration
    problems: list[str] = []
    last: int | None = None
    if values.output == "text":
        print(_title(path))
    with path.open("rb") as file:
        try:
            for header, batch, position in read_batches(file, values.max_bytes):
                records = list(decode_records(batch)) if is_deep else []
                _print_batch(values, path, header, batch, position, records, decoder)
                for record in records:
                    if last is not None and record.offset != last + 1:
                        problems.append(
                            f"Non-consecutive offsets in {path}\n"
                            f"  {last} is followed by {record.offset}"
                        )
                    last = record.offset
        except DecodeError as error:
            problems.append(f"{path}: {error}")
        left = path.stat().st_size - file.tell()
    # A node that runs preallocates nothing in logs, so what is left over is not a batch.
    if left > 0 and values.max_bytes == _INT_MAX and not problems:
        problems.append(f"Found {left} invalid bytes at the end of {path.name}")
    return problems


def _title(path: Path) -> str:
    if path.name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    if path.suffix == ".checkpoint":
        offset, _, epoch = path.stem.partition("-")
        return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"
    return f"Log starting offset: {_base_offset(path)}"


def _base_offset(path: Path) -> int:
    name = path.name.split(".", 1)[0]
    if not name.isdigit():
        raise CommandError(f"{path}: the name does not begin with an offset")
    return int(name)


def _print_batch(  # noqa: PLR0913, PLR0917 (what there is of a batch)
    values: Values,
    path: Path,
    header: BatchHeader,
    batch: bytes,
    position: int,
    records: list[Record],
    decoder: Decoder | None,
) -> None:
    is_valid = crc_ok(batch)
    if values.output == "json":
        data = batch_json(str(path), header, position, is_valid=is_valid)
        if records:
            data["records"] = [record_json(header, record, decoder) for record in records]
        print(json.dumps(data, ensure_ascii=False))
        return
    print(batch_text(header, position, is_valid=is_valid))
    for record in records:
        print(record_text(header, record, decoder, skip_metadata=values.skip_record_metadata))


# indexes


def _index_entries(path: Path, size: int) -> list[bytes]:
    """The entries in use: a preallocated file ends in zeros, as the active segment's does."""
    data = path.read_bytes()
    entries = [data[at : at + size] for at in range(0, len(data) - size + 1, size)]
    used = next((i for i, entry in enumerate(entries) if i and not any(entry)), len(entries))
    return entries[:used]


def _dump_index(path: Path, values: Values) -> list[str]:
    base = _base_offset(path)
    entries = [(_int(e[:4]) + base, _int(e[4:])) for e in _index_entries(path, 8)]
    if not entries:
        _emit(values, {"file": str(path), "entries": 0}, f"{path} is empty.")
        return []
    problems = _sanity(path, [offset for offset, _ in entries], 8)
    if values.index_sanity_check:
        if not problems:
            print(f"{path} passed sanity check.")
        return problems
    with path.with_suffix(".log").open("rb") as log:
        for offset, position in entries:
            found = _last_offset_at(log, position)
            if found != offset:
                problems.append(
                    f"Mismatches in :{path}\n  Index offset: {offset}, log offset: {found}"
                )
            if not values.verify_index_only:
                data = {"file": str(path), "offset": offset, "position": position}
                _emit(values, data, f"offset: {offset} position: {position}")
    return problems


def _int(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _last_offset_at(log: BinaryIO, position: int) -> int | None:
    log.seek(position)
    head = log.read(BATCH_OVERHEAD)
    return parse_header(head).last_offset if len(head) == BATCH_OVERHEAD else None


def _sanity(path: Path, offsets: list[int], entry_size: int) -> list[str]:
    problems = []
    if path.stat().st_size % entry_size:
        problems.append(f"{path}: the size is not a multiple of {entry_size}")
    if any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
        problems.append(f"{path}: the offsets don't rise")
    return problems


def _dump_time_index(path: Path, values: Values) -> list[str]:
    base = _base_offset(path)
    entries = [(_int(e[:8]), _int(e[8:]) + base) for e in _index_entries(path, 12)]
    if values.index_sanity_check:
        problems = _sanity(path, [timestamp for timestamp, _ in entries], 12)
        if not problems:
            print(f"{path} passed sanity check.")
        return problems
    problems = _check_times(path, entries)
    if not values.verify_index_only:
        for timestamp, offset in entries:
            data = {"file": str(path), "timestamp": timestamp, "offset": offset}
            _emit(values, data, f"timestamp: {timestamp} offset: {offset}")
    return problems


def _check_times(path: Path, entries: list[tuple[int, int]]) -> list[str]:
    """Whether each entry names a batch's last offset and that batch's largest time."""
    problems: list[str] = []
    found: dict[int, int] = {}
    with path.with_suffix(".log").open("rb") as log:
        for header, _, _ in read_batches(log, _INT_MAX):
            found[header.last_offset] = header.max_timestamp
    before = -1
    for timestamp, offset in entries:
        if offset not in found:
            later = min((last for last in found if last >= offset), default=-1)
            problems.append(
                f"The following indexed offsets are not found in :{path}\n"
                f"Indexed offset: {offset}, found log offset: {later}"
            )
        elif found[offset] != timestamp:
            problems.append(
                f"Found timestamp mismatch in :{path}\n"
                f"  Index timestamp: {timestamp}, log timestamp: {found[offset]}"
            )
        elif timestamp <= before:
            problems.append(
                f"Found out of order timestamp in :{path}\n"
                f"  Index timestamp: {timestamp}, Previously indexed timestamp: {before}"
            )
        before = timestamp
    return problems


def _dump_aborted(path: Path, values: Values) -> list[str]:
    from sparkraft.storage.index import DamagedIndex, parse_aborted

    try:
        entries = parse_aborted(path.read_bytes())
    except DamagedIndex as error:
        return [f"{path}: {error}"]
    for entry in entries:
        data = {
            "version": 0,
            "producerId": entry.producer_id,
            "firstOffset": entry.first_offset,
            "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }
        text = " ".join(f"{name}: {value}" for name, value in data.items())
        _emit(values, {"file": str(path), **data}, text)
    return []


def _dump_producers(path: Path, values: Values) -> list[str]:
    from sparkraft.storage.producers import DamagedSnapshot, Producers

    try:
        producers = Producers.from_snapshot(path.read_bytes())
    except DamagedSnapshot as error:
        return [f"{path}: {error}"]
    for state in producers:
        data: dict[str, Any] = {
            "producerId": state.producer_id,
            "producerEpoch": state.epoch,
            "coordinatorEpoch": state.coordinator_epoch,
            "currentTxnFirstOffset": state.txn_first_offset,
            "lastTimestamp": state.last_timestamp,
        }
        if state.batches:
            mark = state.batches[0]
            data |= {
                "firstSequence": mark.first_sequence,
                "lastSequence": mark.last_sequence,
                "lastOffset": mark.last_offset,
                "offsetDelta": mark.offset_delta,
                "timestamp": mark.timestamp,
            }
        _emit(values, {"file": str(path), **data}, _producer_text(data))
    return []


def _producer_text(data: dict[str, Any]) -> str:
    first = data["currentTxnFirstOffset"]
    shown = data | {
        "currentTxnFirstOffset": f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty"
    }
    return " ".join(f"{name}: {value}" for name, value in shown.items())


_DUMPS: dict[str, Callable[[Path, Values], list[str]]] = {
    ".log": _dump_log,
    ".checkpoint": _dump_log,
    ".index": _dump_index,
    ".timeindex": _dump_time_index,
    ".txnindex": _dump_aborted,
    ".snapshot": _dump_producers,
}
"""By the file's suffix."""

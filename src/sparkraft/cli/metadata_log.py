"""`metadata-log`: prints each change of the cluster's metadata, a line per record. Ours.

Each line has the offset, the time and the change in words; `--output json` prints a JSON object per
line with the record as well. Passwords, SCRAM keys and delegation tokens are not included.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options
from sparkraft.cli.past_time import past_time
from sparkraft.cli.session import connected, run
from sparkraft.client.errors import sentence_of
from sparkraft.client.explain.times import time_text
from sparkraft.client.past.changes import change_of, leader_change
from sparkraft.client.past.log import PastReader
from sparkraft.client.past.state import PastState
from sparkraft.protocol.json_form import to_json

if TYPE_CHECKING:
    from sparkraft.cli.options import Values
    from sparkraft.client.past.changes import Change
    from sparkraft.client.past.log import LogRecord


def main(argv: list[str]) -> int:
    options = Options("metadata-log", "Print what changed in the cluster's metadata.")
    options.connection(controllers=True)
    options.value("--from", about="first offset; the log start by default", type=int, dest="first")
    options.value("--to", about="last offset; the last committed by default", type=int, dest="last")
    options.value("--from-time", about="since then: 90s, 10m, 2h, 3d ago, or 2026-11-20T12:00:00Z")
    options.value("--to-time", about="up to then")
    options.value("--only", about="kinds between commas, such as topic,partition,config")
    options.output()
    return run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    if values.first is not None and values.from_time is not None:
        raise UsageError("give --from or --from-time, not both")
    if values.last is not None and values.to_time is not None:
        raise UsageError("give --to or --to-time, not both")
    async with connected(values, client_id="metadata-log") as cluster:
        try:
            await _print_changes(PastReader(cluster), values)
        except KafkaError as error:
            if error.code in {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNSUPPORTED_VERSION}:
                raise CommandError(error.detail or sentence_of(error)) from error
            raise
    return 0


async def _print_changes(past: PastReader, values: Values) -> None:
    first, end = await _range(past, values)
    if first >= end:
        return
    state = PastState() if first == 0 else (await past.image(at_offset=first - 1))[0]
    kinds = None if values.only is None else set(values.only.split(","))
    # The image may be older: it never ends inside a metadata transaction.
    async for each in past.records(state, from_offset=state.offset + 1, to_offset=end):
        change = _change(state, each)
        if (
            change is None
            or each.offset < first
            or (kinds is not None and change.kind not in kinds)
        ):
            continue
        if values.output == "json":
            print(json.dumps(_document(each, change), ensure_ascii=False))
        else:
            print(f"{each.offset:>8}  {time_text(each.at_ms)[:23]}  {change.text}")


async def _range(past: PastReader, values: Values) -> tuple[int, int]:
    """The first offset, and the end, exclusive."""
    if values.first is not None and values.first < 0:
        raise UsageError("--from must not be negative")
    from_ms = past_time(values.from_time, "--from-time")
    page = await past.page(
        from_offset=-1 if values.first is None else values.first, from_ms=from_ms, to_offset=0
    )
    end = page.range.high_watermark
    if values.last is not None:
        end = min(end, values.last + 1)
    to_ms = past_time(values.to_time, "--to-time")
    if to_ms >= 0:
        end = min(end, (await past.page(from_ms=to_ms + 1, to_offset=0)).from_offset)
    return page.from_offset, end


def _change(state: PastState, each: LogRecord) -> Change | None:
    if each.record is None:
        return leader_change(each.leader_id, each.epoch)
    return change_of(state, each.record)


def _document(each: LogRecord, change: Change) -> dict[str, Any]:
    record = each.record
    return {
        "offset": each.offset,
        "time": time_text(each.at_ms),
        "epoch": each.epoch,
        "kind": change.kind,
        "subject": change.subject,
        "text": change.text,
        "type": "LeaderChangeMessage" if record is None else type(record).__name__,
        "data": {"leaderId": each.leader_id}
        if record is None
        else to_json(record, record.SCHEMA.versions[1]),
    }

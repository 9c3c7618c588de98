"""`transactions`: list, describe, find and end transactions, as `kafka-transactions.sh`.

The producers of a partition, and what makes a transaction hang, are in `client.transaction_admin`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sparkraft import __version__
from sparkraft.base.errors import KafkaError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.errors import sentence_of
from sparkraft.client.transaction_admin import TransactionAdmin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.transaction_admin import ActiveProducer

_MINUTE_MS = 60_000

_ALLOWED = {
    "list": {"--duration-filter", "--transactional-id-pattern"},
    "describe": {"--transactional-id"},
    "describe-producers": {"--broker-id", "--topic", "--partition"},
    "abort": {
        "--topic",
        "--partition",
        "--start-offset",
        "--producer-id",
        "--producer-epoch",
        "--coordinator-epoch",
    },
    "find-hanging": {"--broker-id", "--max-transaction-timeout", "--topic", "--partition"},
    "forceTerminateTransaction": {"--transactionalId"},
}
_NEEDED = {
    "describe": ("--transactional-id",),
    "describe-producers": ("--topic", "--partition"),
    "abort": ("--topic", "--partition"),
    "forceTerminateTransaction": ("--transactionalId",),
}
_FIELDS = {
    "--duration-filter": "duration_filter",
    "--transactional-id-pattern": "transactional_id_pattern",
    "--transactional-id": "transactional_id",
    "--transactionalId": "terminated_id",
    "--broker-id": "broker_id",
    "--topic": "topic",
    "--partition": "partition",
    "--start-offset": "start_offset",
    "--producer-id": "producer_id",
    "--producer-epoch": "producer_epoch",
    "--coordinator-epoch": "coordinator_epoch",
    "--max-transaction-timeout": "max_transaction_timeout",
}


def _options() -> Options:
    options = Options("transactions", "Shows transactions and their producers, ends hanging ones.")
    options.add_argument("action", choices=list(_ALLOWED))
    options.add_argument("-v", action="version", version=__version__, help="the same as --version")
    options.connection()
    options.value(
        "--duration-filter", about="list: only transactions open for longer, in ms", type=int
    )
    options.value(
        "--transactional-id-pattern", about="list: only ids that match this expression",
        metavar="REGEX",
    )  # fmt: skip
    options.value("--transactional-id", about="describe: the transactional id", metavar="ID")
    options.value(
        "--transactionalId",
        about="forceTerminateTransaction: the transactional id",
        dest="terminated_id",
        metavar="ID",
    )
    options.value("--topic", about="the topic")
    options.value("--partition", about="the partition's number", type=int)
    options.value(
        "--broker-id", about="the replica on this broker, instead of the leader", type=int
    )
    options.value(
        "--max-transaction-timeout",
        about="find-hanging: minutes that a transaction may last (15)",
        type=int,
    )
    options.value("--start-offset", about="abort: the first offset of the transaction", type=int)
    for name in ("--producer-id", "--producer-epoch", "--coordinator-epoch"):
        about = "abort: for brokers before 3.0, instead of --start-offset"
        options.value(name, about=about, type=int)
    options.output()
    return options


def main(argv: list[str]) -> int:
    """Do one action."""
    values = _options().parse(argv)
    _check(values)
    return run(_main(values))


def _check(values: Values) -> None:
    given = {name for name, field in _FIELDS.items() if getattr(values, field) is not None}
    wrong = sorted(given - _ALLOWED[values.action])
    if wrong:
        raise UsageError(f"{', '.join(wrong)} does not go with {values.action}")
    missing = [name for name in _NEEDED.get(values.action, ()) if name not in given]
    if missing:
        raise UsageError(f"{values.action} needs {', '.join(missing)}")
    if values.action == "find-hanging":
        if not given & {"--topic", "--broker-id"}:
            raise UsageError("find-hanging needs --topic or --broker-id")
        if "--partition" in given and "--topic" not in given:
            raise UsageError("--partition needs --topic")
    if values.action == "abort" and "--start-offset" not in given:
        rest = {"--producer-id", "--producer-epoch", "--coordinator-epoch"} - given
        if rest:
            raise UsageError(
                "abort needs --start-offset, or --producer-id, --producer-epoch and "
                "--coordinator-epoch for brokers before 3.0"
            )


async def _main(values: Values) -> int:
    actions = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "abort": _abort,
        "find-hanging": _find_hanging,
        "forceTerminateTransaction": _force_terminate,
    }
    async with connected(values, client_id="transactions-tool") as cluster:
        await actions[values.action](TransactionAdmin(cluster), values)
    return 0


async def _list(admin: TransactionAdmin, values: Values) -> None:
    duration = values.duration_filter
    listed = await admin.list_transactions(
        longer_than_ms=-1 if duration is None else duration,
        pattern=values.transactional_id_pattern,
    )
    _show(
        values,
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
        [(t.transactional_id, t.coordinator, t.producer_id, t.state) for t in listed],
    )


async def _describe(admin: TransactionAdmin, values: Values) -> None:
    found = await admin.describe(values.transactional_id)
    duration = None if found.start_ms is None else _now_ms() - found.start_ms
    header = (
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    )
    row: tuple[Any, ...] = (
        found.coordinator,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        found.start_ms,
        duration,
        [f"{topic}-{partition}" for topic, partition in found.partitions],
    )
    _show(values, header, [row])


async def _describe_producers(admin: TransactionAdmin, values: Values) -> None:
    producers = await _producers(admin, (values.topic, values.partition), values.broker_id)
    header = (
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    )
    rows = [
        (
            p.producer_id,
            p.producer_epoch,
            p.coordinator_epoch,
            p.last_sequence,
            p.last_timestamp,
            p.start_offset,
        )
        for p in producers
    ]
    _show(values, header, rows)


async def _producers(
    admin: TransactionAdmin, tp: TopicPartition, broker: int | None
) -> list[ActiveProducer]:
    found = (await admin.producers([tp], broker=broker))[tp]
    if isinstance(found, KafkaError):
        raise CommandError(f"{tp[0]}-{tp[1]}: {sentence_of(found)}")
    return found


async def _abort(admin: TransactionAdmin, values: Values) -> None:
    tp = (values.topic, values.partition)
    if values.start_offset is None:
        producer_id, producer_epoch = values.producer_id, values.producer_epoch
        coordinator_epoch = values.coordinator_epoch
    else:
        producers = await _producers(admin, tp, None)
        found = next((p for p in producers if p.start_offset == values.start_offset), None)
        if found is None:
            raise CommandError(
                f"no open transaction of {tp[0]}-{tp[1]} starts at offset {values.start_offset}"
            )
        producer_id, producer_epoch = found.producer_id, found.producer_epoch
        coordinator_epoch = found.coordinator_epoch
    await admin.abort(
        tp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        # No marker yet, so no epoch is known; no coordinator has a lower one than 0.
        coordinator_epoch=max(0, coordinator_epoch),
    )


async def _find_hanging(admin: TransactionAdmin, values: Values) -> None:
    if values.partition is not None:
        wanted = [(values.topic, values.partition)]
    else:
        topics = None if values.topic is None else [values.topic]
        wanted = await admin.partitions_to_search(topics, values.broker_id)
    minutes = 15 if values.max_transaction_timeout is None else values.max_transaction_timeout
    now = _now_ms()
    found = await admin.find_hanging(
        wanted, older_than_ms=minutes * _MINUTE_MS, now_ms=now, broker=values.broker_id
    )
    header = (
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    )
    rows = [
        (
            *each.partition,
            each.producer.producer_id,
            each.producer.producer_epoch,
            each.producer.coordinator_epoch,
            each.producer.start_offset,
            each.producer.last_timestamp,
            (now - each.producer.last_timestamp) // _MINUTE_MS,
        )
        for each in found
    ]
    _show(values, header, rows)


async def _force_terminate(admin: TransactionAdmin, values: Values) -> None:
    await admin.force_terminate(values.terminated_id)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _show(values: Values, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Rows as Kafka's table, whose cells are padded and end with a tab, or as JSON objects."""
    if values.output == "json":
        names = [_json_name(name) for name in header]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    lines = [list(header), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True)))


def _json_name(column: str) -> str:
    plain = column.replace("(min)", "Minutes")
    return plain[0].lower() + plain[1:]


def _text(cell: Any) -> str:
    if cell is None:
        return "None"
    return ",".join(cell) if isinstance(cell, list) else str(cell)

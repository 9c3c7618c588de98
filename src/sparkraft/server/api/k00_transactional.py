"""Transactional batches in a Produce: verified by the transaction coordinator first (KIP-890).

Not here: the request to the coordinator (`server.coordinator.transaction_verification`), guards
(`server.coordinator.guarded_appends`).
"""

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.records.batch import BATCH_OVERHEAD, BatchHeader, parse_header
from sparkraft.records.errors import CorruptRecords
from sparkraft.server.coordinator.guarded_appends import GuardedAppends
from sparkraft.server.coordinator.partition_check import PRODUCE_ADDS_FROM, CheckKind

if TYPE_CHECKING:
    from sparkraft.protocol.messages.k00_produce import ProduceRequest
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker_services import BrokerServices

ABORTABLE_FROM = 11
_FIRST_RETRY_MS = 1
"""Doubled up to add.partitions.to.txn.retry.backoff.ms."""

_RETRIABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Errors that old clients treat as fatal: they get NOT_ENOUGH_REPLICAS instead, as in Kafka."""


def check_kind(version: int) -> CheckKind:
    """The check that a Produce of that version needs."""
    if version >= PRODUCE_ADDS_FROM:
        return CheckKind.ADD
    return CheckKind.ABORTABLE if version >= ABORTABLE_FROM else CheckKind.DEFAULT


def produce_error(code: ErrorCode, kind: CheckKind) -> ErrorCode:
    """The coordinator's error as producers handle it."""
    if code in _RETRIABLE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and kind is not CheckKind.ADD:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code


async def verified(
    broker: "BrokerServices",
    context: "RequestContext",
    request: "ProduceRequest",
    name_of: Callable[[Any, int], str | None],
) -> "Callable[[HostedPartition, Any], None]":
    """Verify the batches; returns the check that each must pass at its append.

    Args:
        broker: has the partitions and the verification.
        context: of the request.
        request: has a transactional id.
        name_of: the name of a topic, from its entry and the version.

    Raises:
        KafkaError: as `GuardedAppends.verify`.
    """
    version = context.api_version
    kind = check_kind(version)
    guarded = GuardedAppends(broker.replica_manager, broker.verification, kind)
    assert request.transactional_id is not None
    turn = broker.env.turn(broker.env.work_max.partitions)
    batches = await turn.carry_out(_transactional(request, version, name_of))
    await _verify(broker, guarded, request.transactional_id, batches)

    def check(partition: "HostedPartition", records: Any) -> None:
        header = parse_header(records)
        if header.is_transactional:
            try:
                guarded.check(partition, header, base_sequence=header.base_sequence)
            except KafkaError as error:
                raise type(error)(produce_error(error.code, kind), error.detail) from error

    return check


async def _verify(
    broker: "BrokerServices",
    guarded: GuardedAppends,
    transactional_id: str,
    batches: "list[tuple[TopicPartition, BatchHeader]]",
) -> None:
    """Verify the batches; wait a little while the previous transaction is being completed.

    Otherwise a client would get CONCURRENT_TRANSACTIONS at the start of most transactions
    (KAFKA-18654). The first waits are shorter than Kafka's: markers are mostly written by then.
    """
    await guarded.verify(transactional_id, batches)
    config, clock = broker.config, broker.clock
    deadline_ms = clock.mono_ms() + config.number("add.partitions.to.txn.retry.backoff.max.ms")
    delay_ms_max = config.number("add.partitions.to.txn.retry.backoff.ms")
    delay_ms = min(_FIRST_RETRY_MS, delay_ms_max)
    while guarded.is_concurrent and clock.mono_ms() < deadline_ms:
        await asyncio.sleep(delay_ms / 1000)
        delay_ms = min(2 * delay_ms, delay_ms_max)
        guarded.forget_concurrent()
        await guarded.verify(transactional_id, batches)


def _transactional(
    request: "ProduceRequest", version: int, name_of: Callable[[Any, int], str | None]
) -> Generator[int, None, list[tuple[TopicPartition, BatchHeader]]]:
    """Every batch with a valid transactional header, and its partition."""
    found: list[tuple[TopicPartition, BatchHeader]] = []
    for topic in request.topic_data:
        name = name_of(topic, version)
        for part in topic.partition_data:
            header = None if name is None else _header_of(part.records)
            if name is not None and header is not None and header.is_transactional:
                found.append(((name, part.index), header))
            yield 1
    return found


def _header_of(records: Any) -> BatchHeader | None:
    """None if it is malformed: the append then fails with the reason."""
    if records is None or len(records) < BATCH_OVERHEAD:
        return None
    try:
        return parse_header(records)
    except CorruptRecords:
        return None

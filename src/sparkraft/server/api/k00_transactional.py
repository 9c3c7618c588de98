"""Transactional batches in a Produce: verified by the transaction coordinator first (KIP-890).

Not here: the request to the coordinator (`server.coordinator.transaction_verification`).
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.records.batch import BATCH_OVERHEAD, BatchHeader, parse_header
from sparkraft.records.errors import CorruptRecords
from sparkraft.server.coordinator.transaction_verification import AddPartitionsCheck

if TYPE_CHECKING:
    from sparkraft.protocol.messages.k00_produce import ProduceRequest
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker_services import BrokerServices

ADDING_VERSION = 12
"""From this version on the leader adds a partition to the client's transaction."""

_CHECKS_MAX = 2


class Verification:
    """The batches of one request: verifies them, and checks each right before its append."""

    def __init__(self, broker: "BrokerServices", version: int) -> None:
        """Nothing is verified yet; `version` is the request's."""
        self._broker = broker
        self._adding = version >= ADDING_VERSION
        self._guards: dict[TopicPartition, object] = {}
        self._results: dict[TopicPartition, ErrorCode] = {}

    async def verify(
        self, transactional_id: str, batches: "list[tuple[TopicPartition, BatchHeader]]"
    ) -> None:
        """Verify batches whose transaction is not open in the log yet.

        A producer continues as soon as the coordinator has decided its transaction (KIP-890), so
        the marker of that transaction may arrive while the next one is verified. The response may
        be older than the marker and is void then. One more check is enough, since no second
        marker follows while the batch waits.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING for batches of several producers.
        """
        if len({header.producer_id for _, header in batches}) > 1:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        for _ in range(_CHECKS_MAX):
            unverified = [one for one, header in batches if self._begin(one, header)]
            if not unverified or not self._broker.verification.is_enabled:
                return
            _, header = batches[0]
            check = AddPartitionsCheck(
                transactional_id,
                header.producer_id,
                header.producer_epoch,
                unverified,
                self._adding,
            )
            self._results |= await self._broker.verification.verify(check)

    def _begin(self, topic_partition: TopicPartition, header: BatchHeader) -> bool:
        """Take the guard of a check; False if the batch needs none."""
        if self._results.get(topic_partition, ErrorCode.NONE) is not ErrorCode.NONE:
            return False
        hosted = self._broker.replica_manager.hosted(*topic_partition)
        if hosted is None or not hosted.is_leader:
            return False  # The append fails for that reason.
        producers = hosted.log.producers
        if producers.has_open_transaction(header.producer_id, header.producer_epoch):
            return False
        if producers.is_verified(header.producer_id, self._guards.get(topic_partition)):
            return False
        self._guards[topic_partition] = producers.begin_verification(header.producer_id)
        return True

    def check(self, partition: "HostedPartition", records: Any) -> None:
        """Reject a batch, right before its append, that does not belong to an open transaction.

        Raises:
            KafkaError: the coordinator's error; INVALID_TXN_STATE; OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        header = parse_header(records)
        if not header.is_transactional:
            return
        producer_id = header.producer_id
        producers = partition.log.producers
        topic_partition = (partition.topic, partition.index)
        code = self._results.get(topic_partition, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, "the coordinator rejected it")
        if producers.has_open_transaction(producer_id, header.producer_epoch):
            return
        if not producers.is_verified(producer_id, self._guards.get(topic_partition)):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "the batch does not belong to an open transaction"
            )
        if self._adding and producers.get(producer_id) is None and header.base_sequence != 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} starts with sequence {header.base_sequence}, not 0",
            )


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
        KafkaError: as `Verification.verify`.
    """
    version = context.api_version
    verification = Verification(broker, version)
    assert request.transactional_id is not None
    batches = list(_transactional(request, version, name_of))
    await verification.verify(request.transactional_id, batches)
    return verification.check


def _transactional(
    request: "ProduceRequest", version: int, name_of: Callable[[Any, int], str | None]
) -> Iterator[tuple[TopicPartition, BatchHeader]]:
    """Every batch with a valid transactional header, and its partition."""
    for topic in request.topic_data:
        name = name_of(topic, version)
        for part in topic.partition_data:
            records: Any = part.records
            if name is None or records is None or len(records) < BATCH_OVERHEAD:
                continue
            try:
                header = parse_header(records)
            except CorruptRecords:
                continue  # The append fails with the reason.
            if header.is_transactional:
                yield (name, part.index), header

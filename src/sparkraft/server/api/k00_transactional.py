"""Transactional batches in a Produce: verified with the coordinator first (KIP-890).

Not here: how the coordinator is asked (`server.broker.verification`).
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.records.batch import BATCH_OVERHEAD, BatchHeader, parse_header
from sparkraft.records.errors import CorruptRecords
from sparkraft.server.broker.verification import Question

if TYPE_CHECKING:
    from sparkraft.protocol.messages.k00_produce import ProduceRequest
    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.services import BrokerServices

ADDING_VERSION = 12
"""From here on clients leave it to the leader to add a partition to their transaction."""

_ASKED_MAX = 2


class Verification:
    """One request's batches: what was asked about them, and what each must pass at its append."""

    def __init__(self, broker: "BrokerServices", version: int) -> None:
        """Nothing is asked yet; `version` is the request's."""
        self._broker = broker
        self._adding = version >= ADDING_VERSION
        self._guards: dict[TopicPartition, object] = {}
        self._said: dict[TopicPartition, ErrorCode] = {}

    async def ask(
        self, transactional_id: str, batches: "list[tuple[TopicPartition, BatchHeader]]"
    ) -> None:
        """Ask the coordinator about batches whose transaction isn't open here yet.

        A producer goes on as soon as its transaction is decided (KIP-890), so the marker of that
        one may come while the next is asked about. The answer may be from before it and is worth
        nothing then; it is asked once more, since no second marker follows while the batch waits.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING for batches of several producers.
        """
        if len({header.producer_id for _, header in batches}) > 1:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        for _ in range(_ASKED_MAX):
            asked = [place for place, header in batches if self._begin(place, header)]
            if not asked or not self._broker.verification.is_wanted:
                return
            _, header = batches[0]
            question = Question(
                transactional_id, header.producer_id, header.producer_epoch, asked, self._adding
            )
            self._said |= await self._broker.verification.ask(question)

    def _begin(self, place: TopicPartition, header: BatchHeader) -> bool:
        """Take the guard of a question that there is to ask; False where it has been answered."""
        if self._said.get(place, ErrorCode.NONE) is not ErrorCode.NONE:
            return False
        hosted = self._broker.replica_manager.hosted(*place)
        if hosted is None or not hosted.is_leader:
            return False  # refused for that, and not for the transaction
        producers = hosted.log.producers
        if producers.has_open_transaction(header.producer_id, header.producer_epoch):
            return False
        if producers.is_verified(header.producer_id, self._guards.get(place)):
            return False
        self._guards[place] = producers.begin_verification(header.producer_id)
        return True

    def check(self, partition: "HostedPartition", records: Any) -> None:
        """Refuse a batch, right before it is appended, that is not part of an open transaction.

        Raises:
            KafkaError: what the coordinator said; INVALID_TXN_STATE; OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        header = parse_header(records)
        if not header.is_transactional:
            return
        producer_id = header.producer_id
        producers = partition.log.producers
        place = (partition.topic, partition.index)
        code = self._said.get(place, ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, "the coordinator doesn't count it to a transaction")
        if producers.has_open_transaction(producer_id, header.producer_epoch):
            return
        if not producers.is_verified(producer_id, self._guards.get(place)):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "the batch is not part of an open transaction"
            )
        if self._adding and producers.get(producer_id) is None and header.base_sequence != 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins with sequence {header.base_sequence}",
            )


async def verified(
    broker: "BrokerServices",
    context: "RequestContext",
    request: "ProduceRequest",
    name_of: Callable[[Any, int], str | None],
) -> "Callable[[HostedPartition, Any], None]":
    """Ask what there is to ask; gives the check that each batch has to pass at its append.

    Args:
        broker: its partitions, and the way to coordinators.
        context: for the request's version.
        request: with a transactional id.
        name_of: a topic's name, from its entry and the version.

    Raises:
        KafkaError: as `Verification.ask`.
    """
    version = context.api_version
    verification = Verification(broker, version)
    assert request.transactional_id is not None
    batches = list(_transactional(request, version, name_of))
    await verification.ask(request.transactional_id, batches)
    return verification.check


def _transactional(
    request: "ProduceRequest", version: int, name_of: Callable[[Any, int], str | None]
) -> Iterator[tuple[TopicPartition, BatchHeader]]:
    """Every transactional batch that can be told as one, with its place."""
    for topic in request.topic_data:
        name = name_of(topic, version)
        for part in topic.partition_data:
            records: Any = part.records
            if name is None or records is None or len(records) < BATCH_OVERHEAD:
                continue
            try:
                header = parse_header(records)
            except CorruptRecords:
                continue  # the append says what is wrong with it
            if header.is_transactional:
                yield (name, part.index), header

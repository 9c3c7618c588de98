"""Blocks of producer ids (KIP-730). No id is assigned twice, not even by different controllers."""

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.call import Call
from sparkraft.controller.decision import Decision
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.protocol.messages import k67_allocate_producer_ids as k67
from sparkraft.protocol.messages.metadata_records import ProducerIdsRecord

PRODUCER_ID_BLOCK_SIZE = 1000
_PRODUCER_ID_MAX = (1 << 63) - 1


def allocate_producer_ids(
    context: DecisionContext, call: Call[k67.AllocateProducerIdsRequest]
) -> Decision:
    """Decide an AllocateProducerIds request: allocate the next block."""
    request = call.request
    context.check_broker_epoch(request.broker_id, request.broker_epoch)
    first = max(0, context.image.next_producer_id)
    if first > _PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been allocated.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
    )
    response = k67.AllocateProducerIdsResponse(
        producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK_SIZE
    )
    return Decision(records=((record, 0),), response=response)

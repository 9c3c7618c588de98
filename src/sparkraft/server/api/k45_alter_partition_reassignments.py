"""AlterPartitionReassignments: v0-1. Partitions move to other brokers, or stay after all. (KIP-455)

Behaviour:
    * Null replicas cancel a move; none under way: NO_REASSIGNMENT_IN_PROGRESS.
    * Strangers or repetitions among the replicas: INVALID_REPLICA_ASSIGNMENT.
    * A partition that moves already moves to the new target; the size that v1 may hold fast is the
      one it would have had in the end.
Versions: v1 may forbid another replication factor (KIP-860).    Not done: -
"""

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, Steps
from sparkraft.server.controller.submission import submit_to_controller


def refuse(
    _: type, request: AlterPartitionReassignmentsRequest, version: int, error: KafkaError
) -> Steps:
    """The error on the whole request and on each partition."""
    code, detail = error.code, error.detail
    topics: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        parts = (
            ReassignablePartitionResponse(
                partition_index=each.partition_index, error_code=code, error_message=detail
            )
            for each in topic.partitions
        )
        found = yield from encoded_in_pieces(AlterPartitionReassignmentsResponse, version, parts)
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=found))
        yield 1
    encoded = yield from encoded_in_pieces(AlterPartitionReassignmentsResponse, version, topics)
    return AlterPartitionReassignmentsResponse(
        error_code=code, error_message=detail, responses=encoded
    )


API = Api(
    key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.ALTER),),
    forward=True,
    refuse=refuse,
    controller=True,
)

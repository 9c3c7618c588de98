"""ElectLeaders: v0-2. Preferred or unclean elections, now. (KIP-183, KIP-460)

Behaviour:
    * No partitions given: all of them, and those that need no election are left out of the answer.
    * No eligible replica: PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE.
Versions: v1 unclean; v2 flexible.    Not done: -
"""

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, Steps
from sparkraft.server.controller.submission import submit_to_controller


def refuse(_: type, request: ElectLeadersRequest, version: int, error: KafkaError) -> Steps:
    """Every partition with the request's error, and the top-level field from v1 on."""
    code, detail = int(error.code), error.detail or None
    topics: list[ReplicaElectionResult] = []
    for topic in request.topic_partitions or ():
        parts = (
            PartitionResult(partition_id=index, error_code=code, error_message=detail)
            for index in topic.partitions
        )
        found = yield from encoded_in_pieces(ElectLeadersResponse, version, parts)
        topics.append(ReplicaElectionResult(topic=topic.topic, partition_result=found))
        yield 1
    encoded = yield from encoded_in_pieces(ElectLeadersResponse, version, topics)
    response = ElectLeadersResponse(replica_election_results=encoded)
    if version > 0:
        response.error_code = code
    return response


API = Api(
    key=ApiKey.ELECT_LEADERS,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.ALTER),),
    forward=True,
    controller=True,
    refuse=refuse,
)

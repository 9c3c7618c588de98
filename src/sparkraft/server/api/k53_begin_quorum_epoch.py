"""BeginQuorumEpoch: v0-1. A new leader of the quorum announces itself. (KIP-595, KIP-853)

Behaviour:
    * The receiver follows a leader of its epoch or a later one, durably.
    * An older epoch: FENCED_LEADER_EPOCH; another cluster: INCONSISTENT_CLUSTER_ID; addressed to
      another replica: INVALID_VOTER_KEY; a second leader of one epoch: INVALID_REQUEST.
Versions: v1 flexible, directory ids, endpoints.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochResponse
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.quorum_epoch import quorum_epoch_handler
from sparkraft.server.api.registry import Api
from sparkraft.server.raft import wire

API = Api(
    key=ApiKey.BEGIN_QUORUM_EPOCH,
    handle=quorum_epoch_handler(
        BeginQuorumEpochResponse, wire.read_begin, wire.write_begin_response
    ),
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)

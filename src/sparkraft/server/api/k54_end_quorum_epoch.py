"""EndQuorumEpoch: v0-1. The leader of the quorum has resigned. (KIP-595, KIP-853)

Behaviour:
    * A follower becomes a candidate: at once if it is the first preferred successor, the later the
      further down the list it is.
    * An older epoch: FENCED_LEADER_EPOCH; another cluster: INCONSISTENT_CLUSTER_ID.
Versions: v1 flexible, directory ids, endpoints.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k54_end_quorum_epoch import EndQuorumEpochResponse
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.quorum_epoch import quorum_epoch_handler
from sparkraft.server.api.registry import Api
from sparkraft.server.raft import wire

API = Api(
    key=ApiKey.END_QUORUM_EPOCH,
    handle=quorum_epoch_handler(EndQuorumEpochResponse, wire.read_end, wire.write_end_response),
    authorize=(on_cluster(AclOperation.CLUSTER_ACTION),),
    broker=False,
    controller=True,
)

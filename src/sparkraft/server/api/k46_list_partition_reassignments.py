"""ListPartitionReassignments: v0. Which partitions are on the move? (KIP-455)

Behaviour:
    * No topics given: all. Partitions that are not moving are left out, unknown ones too.
Versions: v0.    Not done: -
"""

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import submit_to_controller

API = Api(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
    forward=True,
    controller=True,
)

"""AlterClientQuotas: v0-1. Set and remove quotas of users, client ids and addresses. (KIP-546)

Behaviour:
    * A broker forwards it to the active controller.
    * Each entity is checked on its own: INVALID_REQUEST for unknown types and keys, an empty name,
      an ip with another type, a value that is not positive or does not fit its key. An entity that
      is given twice is refused the second time.
    * A value that is set already is not written again.
Versions: v1 flexible.    Not done: host names of ip entities, which Kafka resolves on every node.
"""

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, Steps
from sparkraft.server.controller.submission import set_error, submit_to_controller


def refuse(_: type, request: AlterClientQuotasRequest, version: int, error: KafkaError) -> Steps:
    """The error on each entity."""
    entries = (
        set_error(AlterClientQuotasResponseEntryData(entity=entry.entity), error)
        for entry in request.entries
    )
    encoded = yield from encoded_in_pieces(AlterClientQuotasResponse, version, entries)
    return AlterClientQuotasResponse(entries=encoded)


API = Api(
    key=ApiKey.ALTER_CLIENT_QUOTAS,
    handle=submit_to_controller,
    refuse=refuse,
    authorize=(on_cluster(AclOperation.ALTER_CONFIGS),),
    forward=True,
    controller=True,
)

"""AlterUserScramCredentials: v0. SCRAM users are added, changed and deleted. (KIP-554)

Behaviour:
    * One result per user; users in error are left as they are, all others change together.
    * A user named twice: DUPLICATE_RESOURCE. An empty name, or iterations outside 4096 to 16384:
      UNACCEPTABLE_CREDENTIAL. An unknown mechanism: UNSUPPORTED_SASL_MECHANISM. The deletion of
      what does not exist: RESOURCE_NOT_FOUND. metadata.version below 3.5-IV2: UNSUPPORTED_VERSION.
    * The user `*`: UNACCEPTABLE_CREDENTIAL. Kafka accepts it, but its requests fail.
    * The salted password is neither stored nor logged.
Versions: v0.    Not done: -
"""

from itertools import chain

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, Steps
from sparkraft.server.controller.submission import submit_to_controller


def refuse(
    _: type, request: AlterUserScramCredentialsRequest, version: int, error: KafkaError
) -> Steps:
    """The error for each user of the request, as in Kafka."""
    users: dict[str, None] = {}
    names = chain((one.name for one in request.deletions), (o.name for o in request.upsertions))
    for name in names:
        users[name] = None
        yield 1
    results = (
        AlterUserScramCredentialsResult(
            user=user, error_code=error.code, error_message=error.detail or None
        )
        for user in users
    )
    encoded = yield from encoded_in_pieces(AlterUserScramCredentialsResponse, version, results)
    return AlterUserScramCredentialsResponse(results=encoded)


API = Api(
    key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.ALTER),),
    forward=True,
    controller=True,
    refuse=refuse,
)

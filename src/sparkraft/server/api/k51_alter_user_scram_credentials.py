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

from typing import Any

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api
from sparkraft.server.controller.submission import submit_to_controller


def refuse(
    _: type, request: AlterUserScramCredentialsRequest, version: int, error: KafkaError
) -> Any:
    """The error for each user of the request, as in Kafka."""
    names = [deletion.name for deletion in request.deletions]
    users = dict.fromkeys([*names, *(upsertion.name for upsertion in request.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user, error_code=error.code, error_message=error.detail or None
            )
            for user in users
        ]
    )


API = Api(
    key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    handle=submit_to_controller,
    authorize=(on_cluster(AclOperation.ALTER),),
    forward=True,
    controller=True,
    refuse=refuse,
)

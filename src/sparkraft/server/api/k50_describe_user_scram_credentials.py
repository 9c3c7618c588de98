"""DescribeUserScramCredentials: v0. Which SCRAM mechanisms do users have? (KIP-554)

Behaviour:
    * No users: all of them. Mechanism and iterations of each; keys and salts are not returned.
    * A user named twice: DUPLICATE_RESOURCE; an unknown one: RESOURCE_NOT_FOUND. The others of the
      request are described all the same.
    * Answered from the image of this node.
Versions: v0.    Not done: -
"""

from collections import Counter
from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k50_describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.encoded_array import encoded_in_pieces
from sparkraft.server.api.registry import Api, RequestContext, Steps

if TYPE_CHECKING:
    from sparkraft.server.broker_services import BrokerServices


def handle(
    broker: "BrokerServices", context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe each user once, in the order of the request, or all users by name."""
    infos: dict[str, list[CredentialInfo]] = {}
    scram = broker.image.scram
    for mechanism, user in sorted(scram):
        info = CredentialInfo(mechanism=mechanism, iterations=scram[mechanism, user].iterations)
        infos.setdefault(user, []).append(info)
    names = [user.name for user in request.users or ()] or sorted(infos)
    counts = Counter(names)
    results = [_result(name, count, infos.get(name)) for name, count in counts.items()]
    return DescribeUserScramCredentialsResponse(results=results)


def _result(
    name: str, count: int, infos: list[CredentialInfo] | None
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name)
    if count > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
    elif infos is None:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        result.credential_infos = infos
    return result


def refuse(
    _: type, request: DescribeUserScramCredentialsRequest, version: int, error: KafkaError
) -> Steps:
    """The error on the whole request and, as in Kafka, once more without a name for each user."""
    results = (
        DescribeUserScramCredentialsResult(error_code=error.code) for _ in request.users or ()
    )
    cls = DescribeUserScramCredentialsResponse
    encoded = yield from encoded_in_pieces(cls, version, results)
    return cls(error_code=error.code, error_message=error.detail, results=encoded)


API = Api(
    key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    handle=handle,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
    refuse=refuse,
)

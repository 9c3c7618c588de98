"""UpdateFeatures: v0-2. Feature levels go up or down. (KIP-584, KIP-778, KIP-853, KIP-1022)

Behaviour:
    * All updates or none; every broker and voter must support each level, else
      INVALID_UPDATE_VERSION.
    * kraft.version is the quorum's own: it goes from 0 to 1 once every voter has sent its directory
      id, is checked with the others and raised before them, and never goes down.
Versions: v1 kinds of downgrade, validate only; v2 one error for all.    Not done: -
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.features import KRAFT_VERSION
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k57_update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.controller.audit import log_change

if TYPE_CHECKING:
    from sparkraft.server.controller.services import ControllerServices

_ONE_ERROR_VERSION = 2


@dataclass(frozen=True, slots=True)
class _Parts:
    """A request, divided into what the quorum decides and what the controller decides."""

    quorum: list[Any]
    others: UpdateFeaturesRequest


async def handle(
    node: "ControllerServices", context: RequestContext, request: UpdateFeaturesRequest
) -> Any:
    """Have the controller decide, and the quorum if kraft.version is among the features."""
    parts = _parted(request)
    if len(parts.quorum) != 1:  # a second one is refused with the rest
        return await _submit(node, context, request)
    wanted = parts.quorum[0].max_version_level
    if parts.others.feature_updates:
        dry = UpdateFeaturesRequest(
            feature_updates=parts.others.feature_updates, validate_only=True
        )
        await _submit(node, context, dry)
    try:
        await node.controller.upgrade_kraft_version(wanted, validate_only=request.validate_only)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_UPDATE_VERSION:
            raise
        wrong = f"Invalid update version {wanted} for feature {KRAFT_VERSION}. {error.detail}"
        raise KafkaError(error.code, wrong) from error
    answer: UpdateFeaturesResponse = await _submit(node, context, parts.others)
    if context.api_version < _ONE_ERROR_VERSION:
        answer.results.append(UpdatableFeatureResult(feature=KRAFT_VERSION, error_message="NONE"))
    return answer


def _parted(request: UpdateFeaturesRequest) -> _Parts:
    quorum = [u for u in request.feature_updates if u.feature == KRAFT_VERSION]
    others = [u for u in request.feature_updates if u.feature != KRAFT_VERSION]
    return _Parts(
        quorum,
        UpdateFeaturesRequest(
            timeout_ms=request.timeout_ms,
            feature_updates=others,
            validate_only=request.validate_only,
        ),
    )


async def _submit(node: "ControllerServices", context: RequestContext, request: Any) -> Any:
    response = await node.controller.submit(
        ApiKey.UPDATE_FEATURES,
        request,
        version=context.api_version,
        principal=context.principal,
    )
    log_change(context, request, response)
    return response


API = Api(
    key=ApiKey.UPDATE_FEATURES,
    handle=handle,
    authorize=(on_cluster(AclOperation.ALTER),),
    forward=True,
    controller=True,
)

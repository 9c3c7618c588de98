"""Rules of authorization, declared in each `Api` and so visible beside its handler.

    authorize=(on_cluster(ALTER),)                         checked before the handler runs
    authorize=(on_group(READ),)                            the same, for the group it names
    authorize=(on_each(READ, TOPIC),)                      the handler checks each topic
    authorize=NoAuthorization("sent before authentication")

Rules about a whole request are checked by `Api.call`, on every way to a handler: a connection, an
Envelope, a broker's call to the controller in its own process. The request then fails as a whole,
by `Api.refuse`. Rules about each resource are promises: the handler keeps them with
`RequestContext.is_allowed`, and tests/server/test_authorization.py holds it to them.

The rules are those of Kafka 4.3's KafkaApis and ControllerApis.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.security.acls import CLUSTER_NAME, AclOperation, AclResourceType

_REFUSALS = {
    AclResourceType.TOPIC: (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "Topic authorization failed.",
    ),
    AclResourceType.GROUP: (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        "Group authorization failed.",
    ),
    AclResourceType.CLUSTER: (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        "Cluster authorization failed.",
    ),
    AclResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}
"""Error code and Kafka's message by the type of resource that was denied."""


def denied(resource_type: AclResourceType) -> KafkaError:
    """The error for a resource of that type, whether or not the resource exists."""
    code, message = _REFUSALS[resource_type]
    return KafkaError(code, message)


class Permissions(Protocol):
    """The part of a `RequestContext` that rules use."""

    def is_allowed(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str = CLUSTER_NAME,
        *,
        logs: bool = True,
    ) -> bool: ...

    def is_allowed_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool: ...


@dataclass(frozen=True, slots=True)
class RequestRule:
    """Allowed any one of `operations` on one resource, or the whole request fails.

    Attributes:
        name_of: the resource that a request names, None for the cluster. A request that names
            none (null) passes.
    """

    operations: tuple[AclOperation, ...]
    resource_type: AclResourceType
    name_of: Callable[[Any], str | None] | None = None

    def permits(self, context: Permissions, request: Any) -> bool:
        """Whether `request` may be handled."""
        name = CLUSTER_NAME if self.name_of is None else self.name_of(request)
        *others, last = self.operations
        return (
            name is None
            or any(
                context.is_allowed(operation, self.resource_type, name, logs=False)
                for operation in others
            )
            or context.is_allowed(last, self.resource_type, name)
        )


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """Checked by the handler: resources that are denied fail, or are left out, one by one.

    Attributes:
        when: the requests it applies to; empty: all.
    """

    operation: AclOperation
    resource_type: AclResourceType
    when: str = ""


@dataclass(frozen=True, slots=True)
class NoAuthorization:
    """Any client may send it."""

    reason: str


Authorization = tuple[RequestRule | ResourceRule, ...] | NoAuthorization


def on_cluster(*operations: AclOperation) -> RequestRule:
    """Any one of `operations` on the cluster, else CLUSTER_AUTHORIZATION_FAILED for all."""
    return RequestRule(operations, AclResourceType.CLUSTER)


def on_group(operation: AclOperation) -> RequestRule:
    """`operation` on the group named by `group_id`, else GROUP_AUTHORIZATION_FAILED for all."""
    return RequestRule((operation,), AclResourceType.GROUP, lambda request: request.group_id)


def on_transactional_id(operation: AclOperation) -> RequestRule:
    """The same for `transactional_id`: TRANSACTIONAL_ID_AUTHORIZATION_FAILED for all."""
    return RequestRule(
        (operation,), AclResourceType.TRANSACTIONAL_ID, lambda request: request.transactional_id
    )


def on_each(
    operation: AclOperation, resource_type: AclResourceType, *, when: str = ""
) -> ResourceRule:
    """`operation` on each resource of that type in the request, checked by the handler."""
    return ResourceRule(operation, resource_type, when)


def request_rules(authorize: Authorization) -> tuple[RequestRule, ...]:
    """The rules that `Api.call` checks."""
    if isinstance(authorize, NoAuthorization):
        return ()
    return tuple(rule for rule in authorize if isinstance(rule, RequestRule))


def is_of_nodes(authorize: Authorization) -> bool:
    """Whether only nodes may send such a request."""
    return any(AclOperation.CLUSTER_ACTION in rule.operations for rule in request_rules(authorize))


def check_request(authorize: Authorization, context: Permissions, request: Any) -> None:
    """Refuse a request that its session may not send.

    Raises:
        KafkaError: by the first rule that does not permit it.
    """
    for rule in request_rules(authorize):
        if not rule.permits(context, request):
            raise denied(rule.resource_type)

"""The decision whether a session may perform an operation on a resource."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sparkraft.security.acls import AclOperation, AclResourceType
    from sparkraft.security.principal import KafkaPrincipal


class Requester(Protocol):
    """The input of a decision: principal and address of the client."""

    @property
    def principal(self) -> "KafkaPrincipal": ...

    @property
    def client_host(self) -> str: ...


class Authorizer(Protocol):
    """Decides for every session of a node.

    Attributes:
        allows_all: nothing is ever denied, so callers may skip `authorize`. Constant.
    """

    allows_all: bool

    def authorize(
        self,
        requester: Requester,
        operation: "AclOperation",
        resource_type: "AclResourceType",
        name: str,
    ) -> bool:
        """Whether `requester` may do `operation` on the resource called `name`.

        `name` is `CLUSTER_NAME` for the cluster. The resource need not exist: callers authorize a
        name before they look it up, so that a response does not reveal whether it exists.
        """
        ...

    def authorize_any(
        self, requester: Requester, operation: "AclOperation", resource_type: "AclResourceType"
    ) -> bool:
        """Whether `requester` may do `operation` on some resource of that type (KIP-679)."""
        ...

    def log_denied(
        self,
        requester: Requester,
        action: "tuple[AclOperation, AclResourceType, str]",
        *,
        request_name: str,
        now_ms: int,
    ) -> None:
        """Log that `authorize` has denied `action`: an operation on a resource.

        `request_name` is Kafka's name of the request, `now_ms` its monotonic time.
        """
        ...


class AllowAll:
    """Kafka without `authorizer.class.name`: every request is allowed."""

    allows_all = True

    def authorize(
        self,
        requester: Requester,
        operation: "AclOperation",
        resource_type: "AclResourceType",
        name: str,
    ) -> bool:
        return True

    def authorize_any(
        self, requester: Requester, operation: "AclOperation", resource_type: "AclResourceType"
    ) -> bool:
        return True

    def log_denied(
        self,
        requester: Requester,
        action: "tuple[AclOperation, AclResourceType, str]",
        *,
        request_name: str,
        now_ms: int,
    ) -> None:
        """Do nothing: nothing is denied."""

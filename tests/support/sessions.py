"""Sessions of clients that no connection made, and an authorizer that denies."""

from collections.abc import Callable
from typing import Any

from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.security.authorizer import AllowAll, Authorizer, Requester
from sparkraft.security.principal import ANONYMOUS, KafkaPrincipal
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.session import Session

Decision = Callable[[AclOperation, AclResourceType, str], bool]


class Deciding:
    """An authorizer that asks `decide`, and records what it was asked."""

    allows_all = False

    def __init__(self, decide: Decision = lambda *_: False) -> None:
        self.decide = decide
        self.asked: list[tuple[str, AclOperation, AclResourceType, str]] = []
        self.hosts: set[str] = set()
        """Addresses of the clients it decided on."""

    def authorize(
        self,
        requester: Requester,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        self.asked.append((str(requester.principal), operation, resource_type, name))
        self.hosts.add(requester.client_host)
        return self.decide(operation, resource_type, name)

    def authorize_any(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        self.asked.append((str(requester.principal), operation, resource_type, "*"))
        return self.decide(operation, resource_type, "*")

    def log_denied(
        self, requester: Requester, action: Any, *, request_name: str, now_ms: int
    ) -> None:
        """Denials are in `asked`."""


def client_session(
    principal: KafkaPrincipal = ANONYMOUS,
    *,
    authorizer: Authorizer | None = None,
    client_host: str = "127.0.0.1",
    listener_name: str = "PLAINTEXT",
) -> Session:
    return Session(
        principal,
        listener_name=listener_name,
        security_protocol=SecurityProtocol.PLAINTEXT,
        client_host=client_host,
        authorizer=authorizer or AllowAll(),
    )

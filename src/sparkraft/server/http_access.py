"""TLS of `sparkraft.http.listener`, and the users that may read /metrics.

If the node has an authorizer, /metrics needs DESCRIBE on the cluster, because it names topics,
groups, users and client ids. As on Kafka listeners, the user is the name of the client's
certificate, and ANONYMOUS without one, so also over plain http. /health has no restriction: it is
for load balancers. Kafka has no such listener, so the operation is ours.
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from sparkraft.security.principal import ANONYMOUS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from sparkraft.base.env import Clock
    from sparkraft.security.authorizer import Authorizer, Requester
    from sparkraft.security.principal import KafkaPrincipal
    from sparkraft.server.network.tls import ListenerTls

_ACTION = (AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME)


class HttpAccess:
    """See the module docstring.

    Attributes:
        context: returns the context of a new connection; None: the listener is plain http.
    """

    def __init__(self, tls: "ListenerTls | None", authorizer: "Authorizer", clock: "Clock") -> None:
        self.context: Callable[[], ssl.SSLContext] | None = None if tls is None else tls.context
        self._tls = tls
        self._authorizer = authorizer
        self._clock = clock

    def principal_of(self, certificate: bytes | None) -> "KafkaPrincipal":
        """See `ListenerTls.principal_of`."""
        return ANONYMOUS if self._tls is None else self._tls.principal_of(certificate)

    def may_read_metrics(self, requester: "Requester") -> bool:
        """Whether a client may read /metrics; before the entries are loaded, super users only."""
        try:
            return self._authorizer.authorize(requester, *_ACTION)
        except KafkaError:
            return False

    def log_denied(self, requester: "Requester") -> None:
        """Log that a client may not read /metrics, as other denials."""
        self._authorizer.log_denied(
            requester, _ACTION, request_name="GET /metrics", now_ms=self._clock.mono_ms()
        )

"""The operations a client may do, as responses show them on request (KIP-430)."""

from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.broker.cluster_view import CLUSTER_OPERATIONS, TOPIC_OPERATIONS


def topic_operations(context: RequestContext, name: str) -> int:
    """Bits by operation code, of those that exist for topics."""
    return context.allowed_operations(TOPIC_OPERATIONS, AclResourceType.TOPIC, name)


def cluster_operations(context: RequestContext) -> int:
    """The same for the cluster; 0 without DESCRIBE on it."""
    if not context.is_allowed(AclOperation.DESCRIBE, AclResourceType.CLUSTER, logs=False):
        return 0
    return context.allowed_operations(CLUSTER_OPERATIONS, AclResourceType.CLUSTER)

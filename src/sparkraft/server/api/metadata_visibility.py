"""Which metadata records a session may see, by today's access control entries, without secrets.

Requests that return records need DESCRIBE on the cluster, as DescribeAcls, DescribeCluster and
DescribeUserScramCredentials do. The others need what their own requests need:

topics, partitions                       DESCRIBE on the topic
configs of a topic                       DESCRIBE and DESCRIBE_CONFIGS on the topic
configs of a group                       DESCRIBE_CONFIGS on the group
configs of brokers and subscriptions     DESCRIBE_CONFIGS on the cluster
client quotas                            DESCRIBE_CONFIGS on the cluster

A record of a topic whose name is unknown is hidden. Sessions that may do everything skip all checks
but the redaction.
"""

from collections.abc import Mapping
from typing import Any

from sparkraft.base.ids import Uuid
from sparkraft.metadata.image import ResourceType
from sparkraft.metadata.redaction import redacted
from sparkraft.protocol.messages import metadata_records as records
from sparkraft.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.config import OWN_CONFIGS

_BY_TOPIC_ID = (
    records.PartitionRecord,
    records.PartitionChangeRecord,
    records.RemoveTopicRecord,
)

_CONFIGS_AS = {
    ResourceType.TOPIC: AclResourceType.TOPIC,
    ResourceType.GROUP: AclResourceType.GROUP,
}
"""Types of the resources whose configs are authorized by name; all others by the cluster."""


class MetadataVisibility:
    """One request's view of metadata records; decisions are kept, so each name is checked once."""

    def __init__(self, context: RequestContext, names: Mapping[Uuid, str]) -> None:
        """Authorize for `context`, with the names of all topics by id."""
        self._context = context
        self._names = names
        self._decided: dict[tuple[AclOperation, AclResourceType, str], bool] = {}
        self.is_unrestricted = context.session.authorizer.allows_all
        """Whether the session sees every record."""

    def shown(self, record: Any) -> Any:
        """The record without secrets; None if the session may not see it."""
        if not self.is_unrestricted and not self._may_see(record):
            return None
        return redacted(record, extensions=OWN_CONFIGS)

    def _may_see(self, record: Any) -> bool:
        if isinstance(record, _BY_TOPIC_ID):
            return self._may_see_topic(self._names.get(Uuid(record.topic_id)))
        if isinstance(record, records.TopicRecord):
            return self._may_see_topic(record.name)
        if isinstance(record, records.ClearElrRecord):
            return not record.topic_name or self._may_see_topic(record.topic_name)
        if isinstance(record, records.ConfigRecord):
            return self._may_see_configs(record.resource_type, record.resource_name)
        if isinstance(record, records.ClientQuotaRecord):
            return self._may(AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER, CLUSTER_NAME)
        return True

    def _may_see_topic(self, name: str | None) -> bool:
        return name is not None and self._may(AclOperation.DESCRIBE, AclResourceType.TOPIC, name)

    def _may_see_configs(self, resource_type: int, name: str) -> bool:
        if resource_type == ResourceType.TOPIC and not self._may_see_topic(name):
            return False
        kind = _CONFIGS_AS.get(resource_type, AclResourceType.CLUSTER)
        resource = CLUSTER_NAME if kind is AclResourceType.CLUSTER else name
        return self._may(AclOperation.DESCRIBE_CONFIGS, kind, resource)

    def _may(self, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        key = (operation, kind, name)
        known = self._decided.get(key)
        if known is None:
            known = self._context.is_allowed(operation, kind, name, logs=False)
            self._decided[key] = known
        return known

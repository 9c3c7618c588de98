"""Requests whose error codes show whether their sender may do what they ask for.

Most are answered by any broker; brokers forward the others to the controller. None of them changes
what another one asks for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k00_produce as k00
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k21_delete_records as k21
from sparkraft.protocol.messages import k30_create_acls as k30
from sparkraft.protocol.messages import k32_describe_configs as k32
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.records.record import BatchBuilder
from sparkraft.security.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.simulation.world.principals import Action

TIMEOUT_MS = 2_000

_TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_OF_GROUPS = 0

UNDECIDED = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Error codes of requests that no node may have decided on."""


class Question(NamedTuple):
    """A kind of request; `name` is that of its topic or group.

    Attributes:
        rights: (operation, resource type); any of them suffices.
        denied: the error code without them.
        forwarded: whether brokers forward it.
        version: of the request; None for the newest.
        request: builds it, for a name.
        code: reads the error code of a response.
    """

    rights: tuple[tuple[AclOperation, AclResourceType], ...]
    denied: ErrorCode
    request: Callable[[str], Any]
    code: Callable[[Any], int]
    version: int | None = None
    forwarded: bool = False

    def actions(self, principal: str, host: str, name: str) -> list[Action]:
        """The actions of the request, if a principal sends it from an address."""
        return [
            Action(
                principal,
                host,
                operation,
                kind,
                CLUSTER_NAME if kind == AclResourceType.CLUSTER else name,
            )
            for operation, kind in self.rights
        ]


def _metadata(name: str) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _describe_configs(name: str) -> k32.DescribeConfigsRequest:
    resource = k32.DescribeConfigsResource(
        resource_type=AclResourceType.TOPIC, resource_name=name, configuration_keys=["segment.ms"]
    )
    return k32.DescribeConfigsRequest(resources=[resource])


def produce(name: str, size: int = 1) -> k00.ProduceRequest:
    """Return a request with one record of `size` bytes, acknowledged by the leader alone."""
    builder = BatchBuilder()
    builder.append(0, None, bytes(size))
    data = k00.PartitionProduceData(index=0, records=builder.build())
    topic = k00.TopicProduceData(name=name, partition_data=[data])
    return k00.ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=[topic])


def _fetch(name: str) -> k01.FetchRequest:
    wanted = k01.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = k01.FetchTopic(topic=name, partitions=[wanted])
    return k01.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])


def _delete_records(name: str) -> k21.DeleteRecordsRequest:
    """Return a request that deletes nothing."""
    partition = k21.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = k21.DeleteRecordsTopic(name=name, partitions=[partition])
    return k21.DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def _create_topic(name: str) -> k19.CreateTopicsRequest:
    """Return a request that creates nothing."""
    topic = k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return k19.CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=True)


def _create_acl(name: str) -> k30.CreateAclsRequest:
    """Return a request for an entry that concerns no other request."""
    entry = k30.AclCreation(
        resource_type=AclResourceType.TRANSACTIONAL_ID,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:other",
        host="*",
        operation=AclOperation.DESCRIBE,
        permission_type=AclPermissionType.ALLOW,
    )
    return k30.CreateAclsRequest(creations=[entry])


def _of_topic(operation: AclOperation) -> tuple[tuple[AclOperation, AclResourceType], ...]:
    return ((operation, AclResourceType.TOPIC),)


QUESTIONS: dict[str, Question] = {
    "metadata": Question(
        _of_topic(AclOperation.DESCRIBE),
        _TOPIC_DENIED,
        _metadata,
        lambda answer: answer.topics[0].error_code,
    ),
    "configs": Question(
        _of_topic(AclOperation.DESCRIBE_CONFIGS),
        _TOPIC_DENIED,
        _describe_configs,
        lambda answer: answer.results[0].error_code,
    ),
    "produce": Question(
        _of_topic(AclOperation.WRITE),
        _TOPIC_DENIED,
        produce,
        lambda answer: answer.responses[0].partition_responses[0].error_code,
        version=9,
    ),
    "fetch": Question(
        _of_topic(AclOperation.READ),
        _TOPIC_DENIED,
        _fetch,
        lambda answer: answer.responses[0].partitions[0].error_code,
        version=11,
    ),
    "delete-records": Question(
        _of_topic(AclOperation.DELETE),
        _TOPIC_DENIED,
        _delete_records,
        lambda answer: answer.topics[0].partitions[0].error_code,
    ),
    "coordinator": Question(
        ((AclOperation.DESCRIBE, AclResourceType.GROUP),),
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        lambda name: FindCoordinatorRequest(coordinator_keys=[name], key_type=_OF_GROUPS),
        lambda answer: answer.coordinators[0].error_code,
        version=4,
    ),
    "create-topic": Question(
        (
            (AclOperation.CREATE, AclResourceType.CLUSTER),
            (AclOperation.CREATE, AclResourceType.TOPIC),
        ),
        _TOPIC_DENIED,
        _create_topic,
        lambda answer: answer.topics[0].error_code,
        forwarded=True,
    ),
    "create-entry": Question(
        ((AclOperation.ALTER, AclResourceType.CLUSTER),),
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        _create_acl,
        lambda answer: answer.results[0].error_code,
        forwarded=True,
    ),
}
"""Name → question."""

"""Requests that the controller of a cluster in ZooKeeper mode decides, as events and back.

AlterPartition, AllocateProducerIds, ControlledShutdown              of brokers
ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments of clients
UpdateFeatures                                                       refused: 3.9 has no features
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.messages import k07_controlled_shutdown as k07
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k46_list_partition_reassignments as k46
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.protocol.messages import k57_update_features as k57
from sparkraft.protocol.messages import k67_allocate_producer_ids as k67
from sparkraft.zookeeper.controller import events
from sparkraft.zookeeper.controller.store import PRODUCER_IDS_PER_BLOCK
from sparkraft.zookeeper.controller.values import IsrChangeRequest, LeaderAndIsr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkraft.base.ids import TopicPartition
    from sparkraft.zookeeper.controller.admin import Failure
    from sparkraft.zookeeper.controller.isr import IsrResults
    from sparkraft.zookeeper.controller.values import ReplicaAssignment
    from sparkraft.zookeeper.controller_task import ControllerTask

_IDS_VERSION = 2
"""AlterPartition names topics by id from this version on (KIP-516)."""

_EPOCHS_VERSION = 3
"""AlterPartition has the ISR with broker epochs from this version on (KIP-903)."""


async def alter_partition(
    task: "ControllerTask", request: k56.AlterPartitionRequest, version: int
) -> k56.AlterPartitionResponse:
    """AlterPartition: an unknown topic id is refused for its partitions only; v0-1 have names."""
    names = _names_of(request.topics, task, version)
    states = {
        (name, each.partition_index): LeaderAndIsr(
            leader=request.broker_id,
            isr=_isr_of(each, version),
            leader_epoch=each.leader_epoch,
            partition_epoch=each.partition_epoch,
            recovery_state=each.leader_recovery_state,
        )
        for name, topic in zip(names, request.topics, strict=True)
        if name is not None
        for each in topic.partitions
    }
    event = events.AlterPartition(
        IsrChangeRequest(
            broker=request.broker_id,
            broker_epoch=request.broker_epoch,
            version=version,
            states=states,
        )
    )
    results: IsrResults = await task.request(event)
    topics = [
        k56.AlterPartitionResponseTopicData(
            topic_name=name or "",
            topic_id=topic.topic_id,
            partitions=[_altered(each.partition_index, name, results) for each in topic.partitions],
        )
        for name, topic in zip(names, request.topics, strict=True)
    ]
    return k56.AlterPartitionResponse(topics=topics)


def _names_of(
    topics: "Sequence[k56.AlterPartitionRequestTopicData]", task: "ControllerTask", version: int
) -> list[str | None]:
    """The name of each topic; None for an id that the controller does not know."""
    if version < _IDS_VERSION:
        return [topic.topic_name for topic in topics]
    wanted = {topic.topic_id for topic in topics}
    known = task.controller.active.context.topic_ids
    names = {topic_id: name for name, topic_id in known.items() if topic_id in wanted}
    return [names.get(topic.topic_id) for topic in topics]


def _isr_of(partition: Any, version: int) -> tuple[int, ...]:
    if version >= _EPOCHS_VERSION:
        return tuple(each.broker_id for each in partition.new_isr_with_epochs)
    return tuple(partition.new_isr)


def _altered(
    index: int, topic: str | None, results: "IsrResults"
) -> k56.AlterPartitionResponsePartitionData:
    found = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else results[topic, index]
    if isinstance(found, ErrorCode):
        return k56.AlterPartitionResponsePartitionData(partition_index=index, error_code=found)
    return k56.AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=found.leader,
        leader_epoch=found.leader_epoch,
        isr=list(found.isr),
        leader_recovery_state=found.recovery_state,
        partition_epoch=found.partition_epoch,
    )


async def allocate_producer_ids(
    task: "ControllerTask", request: k67.AllocateProducerIdsRequest, _version: int
) -> k67.AllocateProducerIdsResponse:
    """AllocateProducerIds: a block of 1000."""
    event = events.AllocateProducerIds(request.broker_id, request.broker_epoch)
    first = await task.request(event)
    return k67.AllocateProducerIdsResponse(
        producer_id_start=first, producer_id_len=PRODUCER_IDS_PER_BLOCK
    )


async def controlled_shutdown(
    task: "ControllerTask", request: k07.ControlledShutdownRequest, _version: int
) -> k07.ControlledShutdownResponse:
    """ControlledShutdown: the partitions that the broker still leads."""
    event = events.ControlledShutdown(request.broker_id, request.broker_epoch)
    remaining: list[TopicPartition] = await task.request(event)
    return k07.ControlledShutdownResponse(
        remaining_partitions=[
            k07.RemainingPartition(topic_name=topic, partition_index=partition)
            for topic, partition in remaining
        ]
    )


# Clients


async def elect_leaders(
    task: "ControllerTask", request: k43.ElectLeadersRequest, version: int
) -> tuple[k43.ElectLeadersResponse, "Mapping[TopicPartition, int]"]:
    """ElectLeaders: the response, and the leaders that the brokers learn.

    If all partitions are elected, those that need no election are left out of the response.
    """
    wanted = None
    if request.topic_partitions is not None:
        wanted = [(t.topic, index) for t in request.topic_partitions for index in t.partitions]
    event = events.ElectLeaders(wanted, unclean=request.election_type == _UNCLEAN)
    results: Mapping[TopicPartition, int | Failure] = await task.request(event)
    topics: dict[str, k43.ReplicaElectionResult] = {}
    leaders: dict[TopicPartition, int] = {}
    for (topic, index), result in sorted(results.items()):
        code, message = (ErrorCode.NONE, "") if isinstance(result, int) else result
        if isinstance(result, int):
            leaders[topic, index] = result
        if wanted is None and code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        found = topics.setdefault(topic, k43.ReplicaElectionResult(topic=topic))
        found.partition_result.append(
            k43.PartitionResult(partition_id=index, error_code=code, error_message=message or None)
        )
    del version
    return k43.ElectLeadersResponse(replica_election_results=list(topics.values())), leaders


async def alter_reassignments(
    task: "ControllerTask", request: k45.AlterPartitionReassignmentsRequest, version: int
) -> k45.AlterPartitionReassignmentsResponse:
    """AlterPartitionReassignments: start or cancel."""
    del version
    targets = {
        (topic.name, each.partition_index): None if each.replicas is None else tuple(each.replicas)
        for topic in request.topics
        for each in topic.partitions
    }
    results: Mapping[TopicPartition, Failure] = await task.request(
        events.AlterReassignments(targets)
    )
    return k45.AlterPartitionReassignmentsResponse(
        responses=[
            k45.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _reassigned(each.partition_index, results[topic.name, each.partition_index])
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _reassigned(index: int, result: "Failure") -> k45.ReassignablePartitionResponse:
    code, message = result
    return k45.ReassignablePartitionResponse(
        partition_index=index, error_code=code, error_message=message or None
    )


async def list_reassignments(
    task: "ControllerTask", request: k46.ListPartitionReassignmentsRequest, version: int
) -> k46.ListPartitionReassignmentsResponse:
    """ListPartitionReassignments: those in progress."""
    del version
    wanted = None
    if request.topics is not None:
        wanted = [(t.name, index) for t in request.topics for index in t.partition_indexes]
    found: Mapping[TopicPartition, ReplicaAssignment] = await task.request(
        events.ListReassignments(wanted)
    )
    topics: dict[str, k46.OngoingTopicReassignment] = {}
    for (name, index), assignment in sorted(found.items()):
        topic = topics.setdefault(name, k46.OngoingTopicReassignment(name=name))
        topic.partitions.append(
            k46.OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
            )
        )
    return k46.ListPartitionReassignmentsResponse(topics=list(topics.values()))


_UNCLEAN = 1
"""Election type of ElectLeaders (KIP-460)."""


async def update_features(
    task: "ControllerTask", request: k57.UpdateFeaturesRequest, version: int
) -> k57.UpdateFeaturesResponse:
    """UpdateFeatures: refused with Kafka's sentences, because brokers of 3.9 support no feature.

    Raises:
        KafkaError: NOT_CONTROLLER, or from v2 on the first error.
    """
    if not task.is_active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    results = [
        k57.UpdatableFeatureResult(
            feature=each.feature,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=_feature_problem(each),
        )
        for each in request.feature_updates
    ]
    if version >= _ONE_ERROR_VERSION and results:
        raise KafkaError(ErrorCode.INVALID_REQUEST, results[0].error_message or "")
    return k57.UpdateFeaturesResponse(results=results)


_ONE_ERROR_VERSION = 2
_UPGRADE, _UNSAFE_DOWNGRADE = 1, 3
"""Types of an update of a feature; 2 is SAFE_DOWNGRADE."""


def _feature_problem(update: k57.FeatureUpdateKey) -> str:
    """Kafka's sentence (`KafkaController.validateFeatureUpdate`)."""
    if not update.feature:
        return "Feature name can not be empty."
    if not _UPGRADE <= update.upgrade_type <= _UNSAFE_DOWNGRADE:
        return "Received unknown upgrade type."
    is_downgrade = update.upgrade_type != _UPGRADE or update.allow_downgrade
    if update.max_version_level < 1 and is_downgrade:
        return "Can not delete non-existing finalized feature."
    if update.max_version_level < 1:
        return (
            f"Can not provide maxVersionLevel: {update.max_version_level} less than 1 without "
            "setting the SAFE downgradeType to true in the request."
        )
    return "Could not apply finalized feature update because the provided feature is not supported."

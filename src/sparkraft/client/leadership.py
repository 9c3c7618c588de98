"""Administration of leaders and replicas: elections, reassignments, removed brokers.

Calls on many partitions answer per partition: None, or the `KafkaError` it was refused with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition, by_topic
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import check, code_of
from sparkraft.client.partition_calls import refusal_of, topics_with
from sparkraft.client.values import Reassignment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFERRED = 0
"""Election type: back to the first replica."""

UNCLEAN = 1
"""Election type: any live replica, for partitions without a leader; records may be lost."""

Refusals = dict[TopicPartition, KafkaError | None]


class LeadershipAdmin(Admin):
    """`Admin` with the calls of this module."""

    async def elect_leaders(
        self, election_type: int, partitions: Iterable[TopicPartition] | None
    ) -> Refusals:
        """Elect now (KIP-460); `partitions` None: all, without those that need no election."""
        from sparkraft.protocol.messages import k43_elect_leaders as k43

        wanted = None
        if partitions is not None:
            wanted = [
                k43.TopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        request = k43.ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=wanted,
            timeout_ms=self.cluster.request_timeout_ms,
        )
        answer = await self._submit(request, lambda _: ())
        check(answer.error_code)
        return {
            (result.topic, entry.partition_id): refusal_of(entry)
            for result in answer.replica_election_results
            for entry in result.partition_result
        }

    async def reassign(
        self,
        replicas: Mapping[TopicPartition, list[int] | None],
        *,
        may_change_replication_factor: bool = True,
    ) -> Refusals:
        """Start moves of partitions to these brokers, or cancel those given None (KIP-455)."""
        from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45

        request = k45.AlterPartitionReassignmentsRequest(
            timeout_ms=self.cluster.request_timeout_ms,
            topics=topics_with(
                replicas,
                k45.ReassignableTopic,
                lambda tp: k45.ReassignablePartition(partition_index=tp[1], replicas=replicas[tp]),
            ),
        )
        if not may_change_replication_factor:
            request.allow_replication_factor_change = False
        answer = await self._submit(request, lambda _: ())
        check(answer.error_code, answer.error_message)
        return {
            (topic.name, entry.partition_index): refusal_of(entry)
            for topic in answer.responses
            for entry in topic.partitions
        }

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves under way, of these partitions or of all."""
        from sparkraft.protocol.messages import k46_list_partition_reassignments as k46

        wanted = None
        if partitions is not None:
            wanted = [
                k46.ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        request = k46.ListPartitionReassignmentsRequest(
            timeout_ms=self.cluster.request_timeout_ms, topics=wanted
        )
        answer = await self._submit(request, lambda _: ())
        check(answer.error_code, answer.error_message)
        return {
            (topic.name, entry.partition_index): Reassignment(
                replicas=tuple(entry.replicas),
                adding=tuple(entry.adding_replicas),
                removing=tuple(entry.removing_replicas),
            )
            for topic in answer.topics
            for entry in topic.partitions
        }

    async def unregister_broker(self, broker_id: int) -> None:
        """Take a broker that is gone for good out of the cluster.

        Raises:
            KafkaError: BROKER_ID_NOT_REGISTERED.
        """
        from sparkraft.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest

        answer = await self._submit(UnregisterBrokerRequest(broker_id=broker_id), lambda _: ())
        check(answer.error_code, answer.error_message)

    async def move_replicas(
        self, directories: Mapping[tuple[TopicPartition, int], str]
    ) -> dict[tuple[TopicPartition, int], ErrorCode]:
        """AlterReplicaLogDirs: put brokers' replicas into directories; an error code for each."""
        from sparkraft.protocol.messages import k34_alter_replica_log_dirs as k34

        outcome: dict[tuple[TopicPartition, int], ErrorCode] = {}
        for broker in sorted({broker for _, broker in directories}):
            paths: dict[str, list[TopicPartition]] = {}
            for (tp, owner), path in directories.items():
                if owner == broker:
                    paths.setdefault(path, []).append(tp)
            request = k34.AlterReplicaLogDirsRequest(
                dirs=[
                    k34.AlterReplicaLogDir(
                        path=path,
                        topics=[
                            k34.AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                            for topic, indexes in by_topic(tps).items()
                        ],
                    )
                    for path, tps in paths.items()
                ]
            )
            answer: Any = await self.cluster.ask_node(broker, request)
            for result in answer.results:
                for entry in result.partitions:
                    tp = (result.topic_name, entry.partition_index)
                    outcome[tp, broker] = code_of(entry.error_code)
        return outcome

"""Administration of a cluster: topics, configs, records, log dirs, quorum, features.

Every call tries again while an error is retriable, within the cluster's `api_timeout_ms`. Calls on
many things answer per thing: a value or the `KafkaError` it was refused with; nothing is raised
for a single one.

Not here: consumer groups and their offsets (`groups`), elections and reassignments (`leadership`).
Not here either: access control entries (`acl_admin`). Not done: quotas.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.cluster import (
    Cluster,
    Node,
    PartitionInfo,
    TopicInfo,
    check,
    code_of,
)
from sparkraft.client.partition_calls import PartitionCalls, refusal_of
from sparkraft.client.values import (
    ClusterInfo,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    ConfigSynonym,
    CreatedTopic,
    Features,
    LogDir,
    NewTopic,
    QuorumInfo,
    QuorumReplica,
    ReplicaDir,
    Resource,
    ResourceType,
)
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping


class Admin(PartitionCalls):
    """Operator's calls over a `Cluster`, which stays the caller's to close."""

    def __init__(self, cluster: Cluster) -> None:
        """Speak through `cluster`."""
        self.cluster = cluster

    # nodes

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterInfo:
        """The cluster's id, controller and nodes."""
        from sparkraft.protocol.messages.k60_describe_cluster import DescribeClusterRequest

        kind = 2 if self.cluster.to_controllers else 1
        request = DescribeClusterRequest(endpoint_type=kind)
        if include_fenced:
            request.include_fenced_brokers = True
        answer = await self._checked(lambda: self.cluster.ask_any(request))
        return ClusterInfo(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            nodes=tuple(
                Node(
                    id=entry.broker_id,
                    host=entry.host,
                    port=entry.port,
                    rack=entry.rack,
                    is_fenced=entry.is_fenced,
                )
                for entry in answer.brokers
            ),
        )

    # topics

    async def list_topics(self) -> dict[str, TopicInfo]:
        """Every topic by name, internal ones included."""
        view = await self.cluster.retrying(self.cluster.refresh)
        return dict(sorted(view.topics.items()))

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo | KafkaError]:
        """Describe the named topics, or return their errors; with the ELR if the node has it."""
        wanted = sorted(set(names))
        connection = await self.cluster.any_connection()
        if wanted and int(ApiKey.DESCRIBE_TOPIC_PARTITIONS) in connection.versions:
            return await self._describe_topic_partitions(wanted)
        view = await self.cluster.retrying(lambda: self.cluster.refresh(wanted))
        missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
        return {n: view.topics.get(n) or view.errors.get(n) or missing for n in wanted}

    async def _describe_topic_partitions(
        self, names: list[str]
    ) -> dict[str, TopicInfo | KafkaError]:
        """Page by page: an answer holds a bounded number of partitions."""
        from sparkraft.protocol.messages import k75_describe_topic_partitions as k75

        found: dict[str, TopicInfo | KafkaError] = {}
        cursor: Any = None
        while True:
            request = k75.DescribeTopicPartitionsRequest(
                topics=[k75.TopicRequest(name=name) for name in names], cursor=cursor
            )
            answer = await self.cluster.retrying(partial(self.cluster.ask_any, request))
            for entry in answer.topics:
                found[entry.name] = _described(entry, found.get(entry.name))
            if answer.next_cursor is None:
                return found
            cursor = k75.Cursor(
                topic_name=answer.next_cursor.topic_name,
                partition_index=answer.next_cursor.partition_index,
            )

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics; each is made or refused on its own."""
        from sparkraft.protocol.messages import k19_create_topics as k19

        request = k19.CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self.cluster.request_timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._submit(request, lambda a: a.topics)
        return {
            entry.name: refusal_of(entry)
            or CreatedTopic(
                name=entry.name,
                id=Uuid(entry.topic_id),
                partitions=entry.num_partitions,
                replication_factor=entry.replication_factor,
            )
            for entry in answer.topics
        }

    async def delete_topics(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete topics by name."""
        from sparkraft.protocol.messages import k20_delete_topics as k20

        wanted = sorted(set(names))
        connection = await self.cluster.any_connection()
        request = k20.DeleteTopicsRequest(timeout_ms=self.cluster.request_timeout_ms)
        if connection.version_for(ApiKey.DELETE_TOPICS) >= 6:  # noqa: PLR2004 (topic ids)
            request.topics = [k20.DeleteTopicState(name=name) for name in wanted]
        else:
            request.topic_names = wanted
        answer = await self._submit(request, lambda a: a.responses)
        return {entry.name: refusal_of(entry) for entry in answer.responses}

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, list[list[int]]] | None = None,
        validate_only: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Grow topics to `counts` partitions; `assignments` holds the new partitions' brokers."""
        from sparkraft.protocol.messages import k37_create_partitions as k37

        given = assignments or {}
        request = k37.CreatePartitionsRequest(
            topics=[
                k37.CreatePartitionsTopic(
                    name=name,
                    count=count,
                    assignments=[
                        k37.CreatePartitionsAssignment(broker_ids=ids) for ids in given[name]
                    ]
                    if name in given
                    else None,
                )
                for name, count in counts.items()
            ],
            timeout_ms=self.cluster.request_timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._submit(request, lambda a: a.results)
        return {entry.name: refusal_of(entry) for entry in answer.results}

    # configs

    async def describe_configs(
        self,
        resources: Iterable[Resource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = True,
        documentation: bool = False,
    ) -> dict[Resource, list[ConfigEntry] | KafkaError]:
        """Configs of resources, only `names` if given; a broker's own are asked of that broker."""
        wanted = None if names is None else list(names)
        by_node: dict[int | None, list[Resource]] = {}
        for resource in resources:
            by_node.setdefault(self._owner_of(resource), []).append(resource)
        found: dict[Resource, list[ConfigEntry] | KafkaError] = {}
        for node_id, group in by_node.items():
            answer = await self._describe_configs(
                node_id, group, wanted, synonyms=synonyms, documentation=documentation
            )
            for entry in answer.results:
                key = (ResourceType(entry.resource_type), entry.resource_name)
                found[key] = refusal_of(entry) or [_config_of(config) for config in entry.configs]
        return found

    async def _describe_configs(
        self,
        node_id: int | None,
        group: list[Resource],
        names: list[str] | None,
        *,
        synonyms: bool,
        documentation: bool,
    ) -> Any:
        from sparkraft.protocol.messages import k32_describe_configs as k32

        request = k32.DescribeConfigsRequest(
            resources=[
                k32.DescribeConfigsResource(
                    resource_type=int(kind), resource_name=name, configuration_keys=names
                )
                for kind, name in group
            ],
            include_synonyms=synonyms,
        )
        if documentation:
            request.include_documentation = True
        return await self.cluster.retrying(lambda: self._ask_owner(node_id, request))

    async def alter_configs(
        self,
        changes: Mapping[Resource, Iterable[tuple[str, ConfigOperation, str | None]]],
        *,
        validate_only: bool = False,
    ) -> dict[Resource, KafkaError | None]:
        """Change configs: per resource (name, operation, value); all of a resource or none."""
        outcome: dict[Resource, KafkaError | None] = {}
        by_node: dict[int | None, list[Resource]] = {}
        for resource in changes:
            by_node.setdefault(self._owner_of(resource), []).append(resource)
        for node_id, group in by_node.items():
            request = _alteration({r: changes[r] for r in group}, validate_only=validate_only)
            ask = partial(self._ask_owner, node_id, request)
            answer = await self._ask_until(ask, lambda a: a.responses)
            for entry in answer.responses:
                key = (ResourceType(entry.resource_type), entry.resource_name)
                outcome[key] = refusal_of(entry)
        return outcome

    def _owner_of(self, resource: Resource) -> int | None:
        kind, name = resource
        is_a_broker = kind in {ResourceType.BROKER, ResourceType.BROKER_LOGGER} and name
        return int(name) if is_a_broker and not self.cluster.to_controllers else None

    async def _ask_owner(self, node_id: int | None, request: Any) -> Any:
        if node_id is None:
            return await self.cluster.ask_controller(request)
        return await self.cluster.ask_node(node_id, request)

    async def list_config_resources(self, kind: ResourceType) -> list[str]:
        """Names of resources of `kind` that have configs of their own (KIP-1142)."""
        from sparkraft.protocol.messages.k74_list_config_resources import (
            ListConfigResourcesRequest,
        )

        request = ListConfigResourcesRequest(resource_types=[int(kind)])
        answer = await self._checked(lambda: self.cluster.ask_any(request))
        return sorted(entry.resource_name for entry in answer.config_resources)

    # log dirs

    async def describe_log_dirs(
        self, brokers: Iterable[int], *, topics: Iterable[str] | None = None
    ) -> dict[int, list[LogDir] | KafkaError]:
        """Describe log dirs and their replicas; only the replicas of `topics` if given."""
        wanted = None if topics is None else set(topics)
        found: dict[int, list[LogDir] | KafkaError] = {}
        for broker in brokers:
            try:
                found[broker] = await self._log_dirs(broker, wanted)
            except KafkaError as error:
                found[broker] = error
        return found

    async def log_dirs_alone(self, broker: int) -> list[LogDir]:
        """Describe the log dirs of one broker without their replicas.

        Raises:
            KafkaError: the broker does not respond or refuses it.
        """
        return await self._log_dirs(broker, set(), is_alone=True)

    async def _log_dirs(
        self, broker: int, wanted: set[str] | None, *, is_alone: bool = False
    ) -> list[LogDir]:
        from sparkraft.protocol.messages import k35_describe_log_dirs as k35

        request = k35.DescribeLogDirsRequest(topics=[] if is_alone else None)
        answer = await self._checked(lambda: self.cluster.ask_node(broker, request))
        return [_log_dir_of(entry, wanted) for entry in answer.results]

    # quorum and features

    async def describe_quorum(self) -> QuorumInfo:
        """The metadata quorum's leader, high watermark, voters and observers.

        Raises:
            KafkaError: its `detail` names the epoch and the voters if there is no leader.
        """
        from sparkraft.protocol.messages import k55_describe_quorum as k55

        request = k55.DescribeQuorumRequest(
            topics=[
                k55.DescribeQuorumRequestTopicData(
                    topic_name="__cluster_metadata",
                    partitions=[k55.DescribeQuorumRequestPartitionData(partition_index=0)],
                )
            ]
        )

        async def attempt() -> Any:
            answer = await self._leader_or_any(request)
            try:
                check(answer.error_code, answer.error_message)
                partition = answer.topics[0].partitions[0]
                check(partition.error_code, partition.error_message)
            except KafkaError as error:
                self.cluster.forget_controller(error.code)
                raise
            return answer

        answer = await self.cluster.retrying(attempt)
        return _quorum_of(answer)

    async def _leader_or_any(self, request: Any) -> Any:
        """Return the leader's response; without a leader, the response of some controller.

        The leader that controllers name may have stopped: they keep naming it until a new leader is
        elected (KIP-996).
        """
        try:
            return await self.cluster.ask_controller(request)
        except KafkaError:
            if not self.cluster.to_controllers:
                raise
            return await self.cluster.ask_any(request)

    async def describe_features(self, node_id: int | None = None) -> Features:
        """Feature levels, from a node's ApiVersions answer: `node_id`'s, or any node's."""
        cluster = self.cluster
        asked = cluster.any_connection() if node_id is None else cluster.connection(node_id)
        connection = await asked
        from sparkraft.protocol.messages.k18_api_versions import ApiVersionsRequest

        request = ApiVersionsRequest(
            client_software_name="sparkraft", client_software_version="tools"
        )
        answer = await connection.send(request, timeout_ms=self.cluster.request_timeout_ms)
        check(answer.error_code)
        return Features(
            supported={f.name: (f.min_version, f.max_version) for f in answer.supported_features},
            finalized={f.name: f.max_version_level for f in answer.finalized_features},
            epoch=answer.finalized_features_epoch,
        )

    async def update_features(
        self, levels: Mapping[str, int], *, upgrade_type: int = 1, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Set feature levels, all or none; 0 removes one.

        Args:
            levels: feature → level.
            upgrade_type: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade.
            validate_only: only ask whether it would work.
        """
        from sparkraft.protocol.messages import k57_update_features as k57

        request = k57.UpdateFeaturesRequest(
            timeout_ms=self.cluster.request_timeout_ms,
            feature_updates=[
                k57.FeatureUpdateKey(
                    feature=name, max_version_level=level, upgrade_type=upgrade_type
                )
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        answer = await self._submit(request, lambda _: ())
        whole = refusal_of(answer)
        if whole is not None:
            return dict.fromkeys(levels, whole)
        outcome: dict[str, KafkaError | None] = dict.fromkeys(levels)
        outcome.update({entry.feature: refusal_of(entry) for entry in answer.results})
        return outcome

    # asking

    async def _submit(self, request: Any, entries: Callable[[Any], Iterable[Any]]) -> Any:
        return await self._ask_until(lambda: self.cluster.ask_controller(request), entries)

    async def _ask_until(
        self, ask: Callable[[], Awaitable[Any]], entries: Callable[[Any], Iterable[Any]]
    ) -> Any:
        """Return the first response that has no retriable error in any entry."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.cluster.api_timeout_ms / 1000
        last: list[Any] = []

        async def attempt() -> Any:
            answer = await ask()
            last[:] = [answer]
            for entry in (answer, *entries(answer)):
                code = code_of(getattr(entry, "error_code", 0))
                if code in _PASSING:
                    self.cluster.forget_controller(code)
                    raise KafkaError(code, getattr(entry, "error_message", None) or "")
            return answer

        try:
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            return await self.cluster.retrying(attempt, timeout_ms=left_ms)
        except KafkaError as error:
            if last and error.code in _PASSING:
                return last[0]
            raise

    async def _checked(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        async def attempt() -> Any:
            answer = await ask()
            check(answer.error_code, getattr(answer, "error_message", None))
            return answer

        return await self.cluster.retrying(attempt)


_PASSING = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


def _described(entry: Any, before: TopicInfo | KafkaError | None) -> TopicInfo | KafkaError:
    """A topic of one page, with the partitions of the pages before."""
    if entry.error_code:
        code = code_of(entry.error_code)
        unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        what = f"topic {entry.name} does not exist" if unknown else f"topic {entry.name}"
        return KafkaError(code, what)
    partitions = dict(before.partitions) if isinstance(before, TopicInfo) else {}
    for p in entry.partitions:
        partitions[p.partition_index] = PartitionInfo(
            index=p.partition_index,
            leader=p.leader_id,
            leader_epoch=p.leader_epoch,
            replicas=tuple(p.replica_nodes),
            isr=tuple(p.isr_nodes),
            offline=tuple(p.offline_replicas),
            elr=_maybe_tuple(p.eligible_leader_replicas),
            last_known_elr=_maybe_tuple(p.last_known_elr),
        )
    return TopicInfo(
        name=entry.name,
        id=Uuid(entry.topic_id),
        is_internal=entry.is_internal,
        partitions=partitions,
    )


def _maybe_tuple(ids: list[int] | None) -> tuple[int, ...] | None:
    return None if ids is None else tuple(ids)


def _creatable(topic: NewTopic) -> Any:
    from sparkraft.protocol.messages import k19_create_topics as k19

    is_assigned = bool(topic.assignment)
    return k19.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if is_assigned else topic.partitions,
        replication_factor=-1 if is_assigned else topic.replication_factor,
        assignments=[
            k19.CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
            for index, ids in topic.assignment.items()
        ],
        configs=[
            k19.CreatableTopicConfig(name=name, value=value)
            for name, value in topic.configs.items()
        ],
    )


def _alteration(
    changes: Mapping[Resource, Iterable[tuple[str, ConfigOperation, str | None]]],
    *,
    validate_only: bool,
) -> Any:
    from sparkraft.protocol.messages import k44_incremental_alter_configs as k44

    return k44.IncrementalAlterConfigsRequest(
        resources=[
            k44.AlterConfigsResource(
                resource_type=int(kind),
                resource_name=name,
                configs=[
                    k44.AlterableConfig(name=key, config_operation=int(operation), value=value)
                    for key, operation, value in entries
                ],
            )
            for (kind, name), entries in changes.items()
        ],
        validate_only=validate_only,
    )


def _config_of(entry: Any) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=_source_of(entry.config_source),
        is_read_only=entry.read_only,
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            ConfigSynonym(name=s.name, value=s.value, source=_source_of(s.source))
            for s in entry.synonyms
        ),
        documentation=entry.documentation,
    )


def _source_of(number: int) -> ConfigSource:
    return ConfigSource(number) if number in set(ConfigSource) else ConfigSource.UNKNOWN


def _log_dir_of(entry: Any, wanted: set[str] | None) -> LogDir:
    return LogDir(
        path=entry.log_dir,
        error=code_of(entry.error_code),
        replicas=tuple(
            ReplicaDir(
                topic=topic.name,
                partition=p.partition_index,
                size=p.partition_size,
                offset_lag=p.offset_lag,
                is_future=p.is_future_key,
            )
            for topic in entry.topics
            if wanted is None or topic.name in wanted
            for p in topic.partitions
        ),
        total_bytes=entry.total_bytes,
        usable_bytes=entry.usable_bytes,
    )


def _quorum_of(answer: Any) -> QuorumInfo:
    partition = answer.topics[0].partitions[0]
    return QuorumInfo(
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=tuple(map(_quorum_replica_of, partition.current_voters)),
        observers=tuple(map(_quorum_replica_of, partition.observers)),
        endpoints={
            node.node_id: tuple((e.name, e.host, e.port) for e in node.listeners)
            for node in answer.nodes
        },
    )


def _quorum_replica_of(entry: Any) -> QuorumReplica:
    return QuorumReplica(
        id=entry.replica_id,
        directory_id=Uuid(entry.replica_directory_id),
        log_end_offset=entry.log_end_offset,
        last_fetch_ms=entry.last_fetch_timestamp,
        last_caught_up_ms=entry.last_caught_up_timestamp,
    )

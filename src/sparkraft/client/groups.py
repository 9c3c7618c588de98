"""Consumer groups from outside: list, describe, their committed offsets, delete.

The same manners as `admin`: retries inside, answers per thing.

Not done: share and streams groups (they are listed, not described).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.ids import by_topic
from sparkraft.client.cluster import Cluster, check, code_of
from sparkraft.client.values import Committed
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.values import GroupMetadata

_OFFSET_VERSION_BY_NAME = 9
"""OffsetCommit and OffsetFetch name topics by id from v10 on; by name they need no look-up."""

_OFFSET_FETCH_BATCHED = 8
_OFFSET_FETCH_STABLE = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group as listed by ListGroups; `state` and `kind` are Kafka's words."""

    id: str
    protocol_type: str
    state: str
    kind: str

    @property
    def type_name(self) -> str:
        """The type as Kafka's tools print it; empty from a broker that knows no types."""
        return self.kind.capitalize()

    @property
    def is_simple(self) -> bool:
        """Whether it holds only offsets, committed without membership."""
        return not self.protocol_type


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member and what it was given; `instance_id` is None unless it is static."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()
    """The target assignment; empty in a classic group."""
    epoch: int | None = None
    """The member epoch; None in a classic group."""
    is_upgraded: bool | None = None
    """Whether it uses the protocol of KIP-848; None if the coordinator did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group as described by its coordinator."""

    id: str
    kind: str
    """`classic` or `consumer`."""
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    group_epoch: int | None = None
    target_epoch: int | None = None
    """The epoch of the target assignment; both are None for a classic group."""


class Groups:
    """Calls on consumer groups over a `Cluster`, which stays the caller's to close."""

    def __init__(self, cluster: Cluster) -> None:
        """Speak through `cluster`."""
        self.cluster = cluster

    async def list(
        self, *, states: Iterable[str] = (), kinds: Iterable[str] = ()
    ) -> list[ListedGroup]:
        """List every group of every coordinator, by id; filtered if filters are given."""
        from sparkraft.protocol.messages.k16_list_groups import ListGroupsRequest

        await self.cluster.retrying(lambda: self.cluster.refresh(()))
        found: dict[str, ListedGroup] = {}
        for node_id in sorted(self.cluster.view.nodes):
            request = ListGroupsRequest()
            if states:
                request.states_filter = list(states)
            if kinds:
                request.types_filter = list(kinds)
            answer = await self._checked(partial(self.cluster.ask_node, node_id, request))
            for entry in answer.groups:
                found[entry.group_id] = ListedGroup(
                    id=entry.group_id,
                    protocol_type=entry.protocol_type,
                    state=entry.group_state,
                    kind=entry.group_type,
                )
        return [found[group_id] for group_id in sorted(found)]

    async def describe(self, group_id: str) -> GroupInfo:
        """Describe a group's state and members; GROUP_ID_NOT_FOUND if there is none."""
        coordinator = await self.cluster.retrying(lambda: self.cluster.coordinator(group_id))
        connection = await self.cluster.connection(coordinator)
        if int(ApiKey.CONSUMER_GROUP_DESCRIBE) in connection.versions:
            try:
                return await self._describe_consumer(group_id)
            except KafkaError as error:
                if error.code not in _NOT_A_CONSUMER_GROUP:
                    raise
        return await self._describe_classic(group_id)

    async def _describe_classic(self, group_id: str) -> GroupInfo:
        from sparkraft.protocol.messages.k15_describe_groups import DescribeGroupsRequest

        request = DescribeGroupsRequest(groups=[group_id])

        async def attempt() -> Any:
            answer = await self._ask(group_id, request, lambda a: a.groups[0])
            return answer.groups[0]

        entry = await self.cluster.retrying(attempt)
        if entry.group_state == "Dead":
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        return GroupInfo(
            id=group_id,
            kind="classic",
            state=entry.group_state,
            protocol_type=entry.protocol_type,
            assignor=entry.protocol_data,
            coordinator=await self.cluster.coordinator(group_id),
            members=tuple(_classic_member(m, entry.protocol_type) for m in entry.members),
        )

    async def _describe_consumer(self, group_id: str) -> GroupInfo:
        from sparkraft.protocol.messages import k69_consumer_group_describe as k69

        request = k69.ConsumerGroupDescribeRequest(group_ids=[group_id])

        async def attempt() -> Any:
            answer = await self._ask(group_id, request, lambda a: a.groups[0])
            return answer.groups[0]

        entry = await self.cluster.retrying(attempt)
        return GroupInfo(
            id=group_id,
            kind="consumer",
            state=entry.group_state,
            protocol_type="consumer",
            assignor=entry.assignor_name,
            coordinator=await self.cluster.coordinator(group_id),
            members=tuple(_consumer_member(member) for member in entry.members),
            group_epoch=entry.group_epoch,
            target_epoch=entry.assignment_epoch,
        )

    async def delete(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups that have no members."""
        from sparkraft.protocol.messages.k42_delete_groups import DeleteGroupsRequest

        outcome: dict[str, KafkaError | None] = {}
        for group_id in group_ids:
            request = DeleteGroupsRequest(groups_names=[group_id])
            outcome[group_id] = await self._outcome(group_id, request, lambda a: a.results[0])
        return outcome

    async def _outcome(
        self, group_id: str, request: Any, entry_of: Callable[[Any], Any]
    ) -> KafkaError | None:
        try:
            await self.cluster.retrying(lambda: self._ask(group_id, request, entry_of))
        except KafkaError as error:
            return error
        return None

    # offsets

    async def offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        member: GroupMetadata | None = None,
    ) -> dict[TopicPartition, Committed]:
        """Return committed offsets; `partitions` None: of all partitions that have one.

        Args:
            group_id: the group.
            partitions: topics and indexes.
            member: the member that will read from them: offsets of open transactions are waited for
                (KIP-447), and its epoch is checked (KIP-848). None from outside the group.
        """
        wanted = None if partitions is None else by_topic(partitions)

        async def attempt() -> dict[TopicPartition, Committed]:
            node_id = await self.cluster.coordinator(group_id)
            connection = await self.cluster.connection(node_id)
            version = connection.version_for(ApiKey.OFFSET_FETCH, at_most=_OFFSET_VERSION_BY_NAME)
            request = _offset_fetch(group_id, wanted, version, member)
            answer = await self._ask(
                group_id,
                request,
                lambda a: a.groups[0] if version >= _OFFSET_FETCH_BATCHED else a,
                version=version,
            )
            group = answer.groups[0] if version >= _OFFSET_FETCH_BATCHED else answer
            return _committed_of(group)

        return await self.cluster.retrying(attempt)

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Committed],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit offsets: as a member, or from outside while the group has no members."""
        from sparkraft.protocol.messages import k08_offset_commit as k08

        request = k08.OffsetCommitRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance_id,
            topics=[
                k08.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        k08.OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[topic, index].offset,
                            committed_leader_epoch=offsets[topic, index].leader_epoch,
                            committed_metadata=offsets[topic, index].metadata,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )

        async def attempt() -> Any:
            node_id = await self.cluster.coordinator(group_id)
            connection = await self.cluster.connection(node_id)
            version = connection.version_for(ApiKey.OFFSET_COMMIT, at_most=_OFFSET_VERSION_BY_NAME)
            return await self._ask(group_id, request, _worst_partition, version=version)

        return _per_partition(await self.cluster.retrying(attempt))

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of topics that the group no longer reads."""
        from sparkraft.protocol.messages import k47_offset_delete as k47

        request = k47.OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                k47.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[k47.OffsetDeleteRequestPartition(partition_index=i) for i in many],
                )
                for topic, many in by_topic(partitions).items()
            ],
        )
        answer = await self.cluster.retrying(lambda: self._ask(group_id, request, lambda a: a))
        return _per_partition(answer)

    # asking

    async def _ask(
        self,
        group_id: str,
        request: Any,
        entry_of: Callable[[Any], Any],
        *,
        version: int | None = None,
    ) -> Any:
        """One attempt; a coordinator that moved is forgotten."""
        answer = await self.cluster.ask_coordinator(group_id, request, version=version)
        entry = entry_of(answer)
        if entry is not None and entry.error_code:
            if code_of(entry.error_code) in _MOVED:
                self.cluster.forget_coordinator(group_id)
            check(entry.error_code, getattr(entry, "error_message", None))
        return answer

    async def _checked(self, ask: Callable[[], Any]) -> Any:
        async def attempt() -> Any:
            answer = await ask()
            check(answer.error_code)
            return answer

        return await self.cluster.retrying(attempt)


_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

_NOT_A_CONSUMER_GROUP = frozenset(
    {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_GROUP_ID}
)


def _classic_member(entry: Any, protocol_type: str) -> GroupMember:
    return GroupMember(
        id=entry.member_id,
        instance_id=entry.group_instance_id,
        client_id=entry.client_id,
        host=entry.client_host,
        assignment=_assignment_of(bytes(entry.member_assignment), protocol_type),
    )


def _consumer_member(entry: Any) -> GroupMember:
    return GroupMember(
        id=entry.member_id,
        instance_id=entry.instance_id,
        client_id=entry.client_id,
        host=entry.client_host,
        assignment=_partitions_of(entry.assignment),
        target=_partitions_of(entry.target_assignment),
        epoch=entry.member_epoch,
        is_upgraded=None if entry.member_type < 0 else bool(entry.member_type),
    )


def _partitions_of(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple((t.topic_name, i) for t in assignment.topic_partitions for i in t.partitions)


def _assignment_of(raw: bytes, protocol_type: str) -> tuple[TopicPartition, ...]:
    """The partitions in an assignment; none if it is not a consumer's or can't be read."""
    if protocol_type != "consumer" or not raw:
        return ()
    from sparkraft.protocol.framing import decode_versioned
    from sparkraft.protocol.messages.consumer_protocol import ConsumerProtocolAssignment

    try:
        assignment: Any = decode_versioned(ConsumerProtocolAssignment, raw)
    except DecodeError:
        return ()
    return tuple(
        (topic.topic, index)
        for topic in assignment.assigned_partitions
        for index in topic.partitions
    )


def _offset_fetch(
    group_id: str,
    wanted: dict[str, list[int]] | None,
    version: int,
    member: GroupMetadata | None,
) -> Any:
    from sparkraft.protocol.messages import k09_offset_fetch as k09

    is_stable = member is not None and version >= _OFFSET_FETCH_STABLE
    if version >= _OFFSET_FETCH_BATCHED:
        group = k09.OffsetFetchRequestGroup(group_id=group_id, topics=None)
        if wanted is not None:
            group.topics = [
                k09.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in wanted.items()
            ]
        if member is not None and member.member_id:
            group.member_id, group.member_epoch = member.member_id, member.generation
        return k09.OffsetFetchRequest(groups=[group], require_stable=is_stable)
    plain = (
        None
        if wanted is None
        else [
            k09.OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in wanted.items()
        ]
    )
    return k09.OffsetFetchRequest(group_id=group_id, topics=plain, require_stable=is_stable)


def _committed_of(group: Any) -> dict[TopicPartition, Committed]:
    found: dict[TopicPartition, Committed] = {}
    for topic in group.topics:
        for entry in topic.partitions:
            check(entry.error_code)
            if entry.committed_offset >= 0:
                found[topic.name, entry.partition_index] = Committed(
                    offset=entry.committed_offset,
                    leader_epoch=entry.committed_leader_epoch,
                    metadata=entry.metadata or "",
                )
    return found


def _worst_partition(answer: Any) -> Any:
    """An entry whose error concerns the whole group, if there is one."""
    for topic in answer.topics:
        for entry in topic.partitions:
            if code_of(entry.error_code) in _OF_THE_GROUP:
                return entry
    return None


_OF_THE_GROUP = _MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def _per_partition(answer: Any) -> dict[TopicPartition, KafkaError | None]:
    return {
        (topic.name, entry.partition_index): KafkaError(code_of(entry.error_code))
        if entry.error_code
        else None
        for topic in answer.topics
        for entry in topic.partitions
    }

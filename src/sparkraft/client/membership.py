"""A consumer's membership in a classic group: join, sync, heartbeat, leave.

    unjoined --JoinGroup--> (leader: assign) --SyncGroup--> stable --a rebalance--> unjoined

The first to join leads; it runs the assignor the group voted for and hands out shares. Rebalances
happen inside `ensure_active`, which `poll` calls, so an application sees no change of partitions
between two polls. Heartbeats run beside it.

Not here: the protocol of KIP-848 (`consumer_membership`).
Not done: cooperative rebalancing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.assignors import (
    ASSIGNORS,
    Subscriber,
    decode_sticky_user_data,
    encode_sticky_user_data,
)
from sparkraft.client.cluster import Cluster, check, code_of
from sparkraft.protocol.framing import decode_versioned, encode_versioned
from sparkraft.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.subscription import GroupSettings


PROTOCOL_TYPE = "consumer"
_SUBSCRIPTION_VERSION = 1
_ASSIGNMENT_VERSION = 1

_MEMBER_LOST = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH}
)
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Membership:
    """One member. Its owner calls `ensure_active` often, and `leave` at the end."""

    def __init__(
        self, cluster: Cluster, settings: GroupSettings, topics: Callable[[], Iterable[str]]
    ) -> None:
        """Prepare; `topics` returns the subscription each time the group is joined."""
        self.cluster = cluster
        self.settings = settings
        self.member_id = ""
        self.generation = -1
        self.assignment: tuple[TopicPartition, ...] = ()
        self._topics = topics
        self._joined_topics: tuple[str, ...] = ()
        self._needs_join = True
        self._heartbeats: asyncio.Task[None] | None = None
        self._fatal: KafkaError | None = None

    @property
    def is_member(self) -> bool:
        """Whether the group has given this member a generation."""
        return self.generation >= 0

    @property
    def needs_join(self) -> bool:
        """Whether the next `ensure_active` rejoins the group."""
        return self._needs_join or tuple(sorted(self._topics())) != self._joined_topics

    async def ensure_active(self) -> bool:
        """Become or stay a stable member; True if there is a new assignment.

        Raises:
            KafkaError: a fatal refusal, such as FENCED_INSTANCE_ID.
        """
        if self._fatal is not None:
            raise self._fatal
        if not self.needs_join:
            return False
        await self._stop_heartbeats()
        await self.cluster.retrying(self._join, timeout_ms=self.settings.rebalance_timeout_ms)
        self._needs_join = False
        self._heartbeats = asyncio.get_running_loop().create_task(self._heartbeat())
        return True

    async def leave(self) -> None:
        """Leave the group, unless the member is static: a static one comes back."""
        await self._stop_heartbeats()
        if not self.member_id or self.settings.instance_id is not None:
            return
        from sparkraft.protocol.api_keys import ApiKey
        from sparkraft.protocol.messages import k13_leave_group as k13

        request = k13.LeaveGroupRequest(group_id=self.settings.group_id)
        try:
            node_id = await self.cluster.coordinator(self.settings.group_id)
            connection = await self.cluster.connection(node_id)
            if connection.version_for(ApiKey.LEAVE_GROUP) >= 3:  # noqa: PLR2004 (KIP-345)
                request.members = [k13.MemberIdentity(member_id=self.member_id)]
            else:
                request.member_id = self.member_id
            await self.cluster.ask_coordinator(self.settings.group_id, request)
        except KafkaError:
            # The session runs out instead.
            pass
        self.member_id, self.generation = "", -1

    def on_commit_error(self, error: KafkaError) -> None:
        """A commit was refused because the group moved on."""
        if error.code in _MEMBER_LOST or error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._on_error(error)

    async def _stop_heartbeats(self) -> None:
        if self._heartbeats is None:
            return
        self._heartbeats.cancel()
        try:
            await self._heartbeats
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
        self._heartbeats = None

    # joining

    async def _join(self) -> None:
        topics = tuple(sorted(self._topics()))
        answer = await self._ask(self._join_request(topics))
        code = code_of(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await self._ask(self._join_request(topics))
            code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            raise self._on_error(KafkaError(code, f"group {self.settings.group_id}"))
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        shares: dict[str, bytes] = {}
        if answer.leader == answer.member_id and not answer.skip_assignment:
            shares = await self._assign(answer)
        await self._sync(answer.protocol_name, shares)
        self._joined_topics = topics

    def _join_request(self, topics: tuple[str, ...]) -> Any:
        from sparkraft.protocol.messages import k11_join_group as k11

        return k11.JoinGroupRequest(
            group_id=self.settings.group_id,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                k11.JoinGroupRequestProtocol(name=name, metadata=self._subscription(name, topics))
                for name in self.settings.assignors
            ],
        )

    def _subscription(self, assignor: str, topics: tuple[str, ...]) -> bytes:
        owned: dict[str, list[int]] = {}
        for topic, index in self.assignment:
            owned.setdefault(topic, []).append(index)
        is_sticky = assignor == "sticky"
        return encode_versioned(
            ConsumerProtocolSubscription(
                topics=list(topics),
                user_data=encode_sticky_user_data(owned, self.generation) if is_sticky else None,
                owned_partitions=[
                    ConsumerProtocolSubscriptionTopicPartition(topic=t, partitions=i)
                    for t, i in owned.items()
                ],
            ),
            _SUBSCRIPTION_VERSION,
        )

    async def _assign(self, answer: Any) -> dict[str, bytes]:
        """Compute all members' assignments as the group leader; encoded."""
        members = {
            entry.member_id: _subscriber(entry, answer.protocol_name) for entry in answer.members
        }
        wanted = sorted({topic for member in members.values() for topic in member.topics})
        view = await self.cluster.refresh(wanted)
        counts = {t: len(view.topics[t].partitions) for t in wanted if t in view.topics}
        shares = ASSIGNORS[answer.protocol_name](members, counts)
        return {member: _encode_share(share) for member, share in shares.items()}

    async def _sync(self, protocol_name: str, shares: dict[str, bytes]) -> None:
        from sparkraft.protocol.messages import k14_sync_group as k14

        answer = await self._ask(
            k14.SyncGroupRequest(
                group_id=self.settings.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.settings.instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=protocol_name,
                assignments=[
                    k14.SyncGroupRequestAssignment(member_id=member, assignment=share)
                    for member, share in shares.items()
                ],
            )
        )
        code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            raise self._on_error(KafkaError(code, f"group {self.settings.group_id}"))
        self.assignment = _decode_share(bytes(answer.assignment))

    async def _ask(self, request: Any) -> Any:
        """To the coordinator, with time for a whole rebalance."""
        node_id = await self.cluster.coordinator(self.settings.group_id)
        connection = await self.cluster.connection(node_id)
        timeout_ms = self.settings.rebalance_timeout_ms + 5_000
        try:
            return await connection.send(request, timeout_ms=timeout_ms)
        except KafkaError:
            self.cluster.forget_coordinator(self.settings.group_id)
            raise

    def _on_error(self, error: KafkaError) -> KafkaError:
        """Note what `error` means for the membership; the error to raise, retriable if it is."""
        self._needs_join = True
        if error.code in _MOVED:
            self.cluster.forget_coordinator(self.settings.group_id)
        elif error.code in _MEMBER_LOST:
            self.member_id, self.generation, self.assignment = "", -1, ()
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.code.name)
        elif error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.code.name)
        elif not error.code.is_retriable:
            self._fatal = error
        return error

    # heartbeats

    async def _heartbeat(self) -> None:
        from sparkraft.protocol.messages.k12_heartbeat import HeartbeatRequest

        request = HeartbeatRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
        )
        # Also while a rebalance waits for this member: without heartbeats its session expires.
        while self.generation == request.generation_id:
            await asyncio.sleep(self.settings.heartbeat_interval_ms / 1000)
            try:
                answer = await self.cluster.ask_coordinator(self.settings.group_id, request)
                check(answer.error_code)
            except KafkaError as error:
                if error.code is ErrorCode.NETWORK_EXCEPTION:
                    continue
                if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    self._on_heartbeat_error(error)

    def _on_heartbeat_error(self, error: KafkaError) -> None:
        if error.code in _MOVED or error.code is ErrorCode.REQUEST_TIMED_OUT:
            self.cluster.forget_coordinator(self.settings.group_id)
            return
        self._on_error(error)


def _subscriber(entry: Any, assignor: str) -> Subscriber:
    subscription = decode_versioned(ConsumerProtocolSubscription, bytes(entry.metadata))
    owned: tuple[TopicPartition, ...] = ()
    generation = -1
    if assignor == "sticky":
        owned, generation = decode_sticky_user_data(subscription.user_data)
    return Subscriber(
        topics=frozenset(subscription.topics),
        instance_id=entry.group_instance_id,
        owned=owned,
        generation=generation,
    )


def _encode_share(share: list[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in share:
        topics.setdefault(topic, []).append(index)
    return encode_versioned(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=t, partitions=i)
                for t, i in sorted(topics.items())
            ]
        ),
        _ASSIGNMENT_VERSION,
    )


def _decode_share(raw: bytes) -> tuple[TopicPartition, ...]:
    if not raw:
        return ()
    share = decode_versioned(ConsumerProtocolAssignment, raw)
    return tuple((t.topic, index) for t in share.assigned_partitions for index in t.partitions)

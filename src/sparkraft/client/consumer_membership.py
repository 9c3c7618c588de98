"""A consumer's membership in a group of the protocol of KIP-848.

    JOINING --epoch--> STABLE --a new target--> RECONCILING --owned partitions--> STABLE
       ^--- FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID: all partitions are lost ---|

ConsumerGroupHeartbeat joins, keeps alive, leaves and reports the owned partitions; its response
brings the target assignment. It runs beside the application. `ensure_active`, which `poll` calls,
reconciles: the owner gives partitions up first, then acknowledges the new assignment with the next
heartbeat. Until then the group gives them to no other member.

Invariants:
    * A partition is reported as owned until the application has given it up.
    * A heartbeat names only what changed since the last one that was answered.
    * While the application does not poll within `rebalance_timeout_ms`, the member leaves.

Not here: positions and commits (`consumer`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.cluster import RETRY_BACKOFF_MS, RETRY_BACKOFF_MS_MAX, Cluster, code_of
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.subscription import GroupSettings, Subscription

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

_BY_CLIENT_ID = 1
"""The version from which clients make member ids and the group evaluates patterns."""

_LOOK_UP_SECONDS = 1
"""Between look-ups of a topic that no metadata names yet."""

_LOST = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

Target = dict[Uuid, tuple[int, ...]]


class ConsumerMembership:
    """One member. Its owner calls `ensure_active` often, and `leave` at the end."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        subscription: Callable[[], Subscription],
        on_change: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            cluster: the cluster of the group.
            settings: with `protocol` "consumer".
            subscription: the current subscription.
            on_change: called when `ensure_active` has something to do.
        """
        self.cluster = cluster
        self.settings = settings
        self.member_id = str(Uuid(uuid4().bytes))
        self.generation = JOIN_EPOCH
        """The member epoch."""
        self.assignment: tuple[TopicPartition, ...] = ()
        """The owned partitions."""
        self._subscription = subscription
        self._on_change = on_change
        self._target: Target = {}
        self._owned: Target = {}
        self._is_member = False
        self._lost_all = False
        self._offered: Target = {}
        """The result of the last `ensure_active`, by topic id."""
        self._sent: tuple[Subscription, Target] | None = None
        """Subscription and partitions last reported to the group; None: report everything."""
        self._looked_up_at = float("-inf")
        self._interval_ms = 0
        self._polled_at = 0.0
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()
        self._beats: asyncio.Task[None] | None = None
        self._fatal: KafkaError | None = None

    # called by the consumer

    @property
    def is_member(self) -> bool:
        """Whether the group has given this member an epoch."""
        return self._is_member

    @property
    def is_lost(self) -> bool:
        """Whether the group has taken all partitions away without waiting for this member."""
        return self._lost_all

    async def ensure_active(self) -> tuple[TopicPartition, ...] | None:
        """Become or stay a member; the assignment to own from now on if it changed, else None.

        The caller gives up what is not in it, then calls `acknowledge`.

        Raises:
            KafkaError: a fatal refusal, such as UNRELEASED_INSTANCE_ID.
        """
        if self._fatal is not None:
            raise KafkaError(self._fatal.code, self._fatal.detail)
        self._polled_at = asyncio.get_running_loop().time()
        if self._beats is None or self._beats.done():
            self._raise_bug()
            self._beats = asyncio.get_running_loop().create_task(self._keep_alive())
        if self._sent is not None and self._sent[0] != self._subscription():
            self._wake.set()
        if self._lost_all:
            return ()
        if self._target == self._owned or not self._is_member:
            return None
        names = await self._names()
        self._offered = {topic: self._target[topic] for topic in self._target if topic in names}
        if self._offered == self._owned:
            return None
        return tuple((names[topic], i) for topic, many in self._offered.items() for i in many)

    def _raise_bug(self) -> None:
        """Raise what ended the heartbeats, if it was an exception."""
        if self._beats is not None and not self._beats.cancelled():
            failure = self._beats.exception()
            if failure is not None:
                raise failure

    def acknowledge(self, assignment: tuple[TopicPartition, ...]) -> None:
        """The caller owns `assignment` and nothing else; the next heartbeat reports it."""
        self.assignment = assignment
        if self._lost_all:
            self._lost_all = False
        else:
            self._owned = self._offered
        self._wake.set()

    async def leave(self) -> None:
        """Leave the group; a static member leaves for the time being and keeps its assignment."""
        await self._stop()
        if self._is_member:
            await self._send_leave()
        self._is_member, self.generation = False, JOIN_EPOCH

    async def _send_leave(self) -> None:
        from sparkraft.protocol.messages.k68_consumer_group_heartbeat import (
            ConsumerGroupHeartbeatRequest,
        )

        is_static = self.settings.instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            member_epoch=STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=self.settings.instance_id,
        )
        with suppress(KafkaError):  # the session runs out instead
            await self._ask(request)

    def on_commit_error(self, error: KafkaError) -> None:
        """A commit was refused because the group moved on; the next heartbeat finds out why."""
        if error.code in _LOST or error.code is ErrorCode.STALE_MEMBER_EPOCH:
            self._wake.set()

    async def next_epoch(self, after: int, timeout_ms: int) -> bool:
        """Whether the member epoch differs from `after` within `timeout_ms`."""
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self.generation == after and self._is_member:
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            return False
        return self._is_member

    # heartbeats

    async def _stop(self) -> None:
        if self._beats is None:
            return
        self._beats.cancel()
        try:
            await self._beats
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
        self._beats = None

    async def _keep_alive(self) -> None:
        """Send heartbeats until the application no longer polls, or the group refuses for good."""
        backoff_ms = RETRY_BACKOFF_MS
        loop = asyncio.get_running_loop()
        while self._fatal is None:
            if (loop.time() - self._polled_at) * 1000 > self.settings.rebalance_timeout_ms:
                await self._leave_idle()
                return
            self._wake.clear()
            try:
                await self._beat()
                backoff_ms = RETRY_BACKOFF_MS
                wait_ms = self._interval_ms
            except KafkaError as error:
                if not self._on_error(error):
                    return
                wait_ms = backoff_ms
                backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)
                await asyncio.sleep(wait_ms / 1000)
                continue
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _beat(self) -> None:
        node_id = await self.cluster.coordinator(self.settings.group_id)
        connection = await self.cluster.connection(node_id)
        version = connection.version_for(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        subscription, owned = self._subscription(), self._owned
        request = self._request(version=version)
        answer = await self._ask(request, version=version)
        code = code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, answer.error_message or f"group {self.settings.group_id}")
        if request.member_epoch != self.generation:
            return  # lost and joined again meanwhile
        self._sent = (subscription, owned)
        self._is_member = True
        self.member_id = answer.member_id or self.member_id
        self.generation = answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms
        self._answered.set()
        if answer.assignment is not None:
            self._target = {
                Uuid(topic.topic_id): tuple(sorted(topic.partitions))
                for topic in answer.assignment.topic_partitions
                if topic.partitions
            }
            if self._target != self._owned:
                self._on_change()

    def _request(self, *, version: int) -> Any:
        """A heartbeat with what changed since the last one that was answered; all to join."""
        from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68

        joins = self.generation == JOIN_EPOCH
        before = None if joins else self._sent
        subscription = self._subscription()
        request = k68.ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id="" if joins and version < _BY_CLIENT_ID else self.member_id,
            member_epoch=self.generation,
            instance_id=self.settings.instance_id,
        )
        if before is None:
            request.rack_id = self.settings.rack or None
            request.rebalance_timeout_ms = self.settings.rebalance_timeout_ms
            request.server_assignor = self.settings.remote_assignor
        if before is None or before[1] != self._owned:
            request.topic_partitions = [
                k68.TopicPartitions(topic_id=topic, partitions=list(indexes))
                for topic, indexes in self._owned.items()
            ]
        if before is None or before[0] != subscription:
            _subscribe(request, subscription, None if before is None else before[0], version)
        return request

    async def _ask(self, request: Any, *, version: int | None = None) -> Any:
        return await self.cluster.ask_coordinator(self.settings.group_id, request, version=version)

    def _on_error(self, error: KafkaError) -> bool:
        """Whether heartbeats continue after `error`."""
        if error.code in _LOST:
            self._lose_all()
            return True
        if error.code in _MOVED:
            self.cluster.forget_coordinator(self.settings.group_id)
        if error.code.is_retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE:
            # An answer may be lost: name everything again.
            self._sent = None
            return True
        self._fatal = error
        self._lost_all = bool(self.assignment)
        self._on_change()
        return False

    def _lose_all(self) -> None:
        self.generation = JOIN_EPOCH
        self._is_member = False
        self._lost_all = bool(self.assignment)
        self._target, self._owned = {}, {}
        self._sent = None
        self._answered.set()
        self._on_change()

    async def _leave_idle(self) -> None:
        """The application has not polled in time: others must not wait for it (KIP-62)."""
        if self._is_member:
            await self._send_leave()
        self._lose_all()

    async def _names(self) -> dict[Uuid, str]:
        """Topic names by id; looked up, but not too often, if the target has unknown ones."""
        names = {topic.id: name for name, topic in self.cluster.view.topics.items()}
        now = asyncio.get_running_loop().time()
        if self._target.keys() <= names.keys() or now < self._looked_up_at + _LOOK_UP_SECONDS:
            return names
        self._looked_up_at = now
        subscription = self._subscription()
        topics = None if subscription.pattern is not None else subscription.topics
        view = await self.cluster.retrying(lambda: self.cluster.refresh(topics))
        return {topic.id: name for name, topic in view.topics.items()}


def _subscribe(
    request: Any, subscription: Subscription, before: Subscription | None, version: int
) -> None:
    """Put the subscription into a heartbeat; an empty pattern takes an earlier one back."""
    if subscription.pattern is not None and version < _BY_CLIENT_ID:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "the group's coordinator evaluates no patterns"
        )
    if subscription.pattern is None or subscription.topics or before is not None:
        request.subscribed_topic_names = sorted(subscription.topics)
    if subscription.pattern is not None:
        request.subscribed_topic_regex = subscription.pattern
    elif before is not None and before.pattern is not None:
        request.subscribed_topic_regex = ""

"""ISR changes and producer ids with an old inter.broker.protocol.version: writes to ZooKeeper.

    below 3.0-IV0   blocks of producer ids in /latest_producer_id_block (`ZkProducerIdManager`)
    below 2.7-IV2   ISRs in the state znodes (`ZkAlterPartitionManager`); the controller learns of
                    them from /isr_change_notification

The parts of the broker that need them make the requests of later versions, AlterPartition and
AllocateProducerIds. Here they are served by writes, and have the same responses. Later versions are
sent to the controller.

A state whose znode has another version: INVALID_UPDATE_VERSION. The leader then waits for the
LeaderAndIsr of the controller, which has written it.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.protocol.messages import k67_allocate_producer_ids as k67
from sparkraft.zookeeper.controller.store import (
    PRODUCER_IDS_PER_BLOCK,
    allocate_producer_ids,
    notify_isr_changes,
    write_isrs,
)
from sparkraft.zookeeper.controller.values import LeaderAndIsr
from sparkraft.zookeeper.driver import execute
from sparkraft.zookeeper.errors import ZooKeeperError

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.base.ids import TopicPartition
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.zookeeper.session import EnsembleSession
    from sparkraft.zookeeper.controller.protocol_version import ProtocolVersion
    from sparkraft.zookeeper.controller.steps import Steps, T

log = logging.getLogger(__name__)

CHECK_MS = 2_500
"""Between checks for changes to notify; this and the next two are Kafka's."""

LINGER_MS = 5_000
"""From the last change to its notification, which then has earlier ones, too."""

DELAY_MS_MAX = 60_000
"""From one notification to the next, if changes do not cease."""

NOTIFIED_AT_ONCE: LoopBound = 3_000
"""Partitions in one notification: with the longest names below 1 MiB, ZooKeeper's limit of data."""

_NAMES_VERSION = 1
"""The last AlterPartition that names topics; all controllers of Kafka 3.9 serve it."""


class ZnodeRequests:
    """A `RequestSender`; see the module docstring."""

    def __init__(
        self,
        protocol: "ProtocolVersion",
        session: "EnsembleSession",
        channel: "ControllerChannel",
        clock: "Clock",
    ) -> None:
        self._protocol = protocol
        self._session = session
        self._channel = channel
        self._clock = clock
        self._changed: dict[TopicPartition, None] = {}
        """Partitions whose ISR changed since the last notification, in order."""
        self._changed_ms = self._notified_ms = 0

    async def send(self, request: Any, key: ApiKey, *, timeout_ms: int) -> Any:
        """Return the response to a request of this broker.

        Raises:
            KafkaError: there was none in time, or the session with the ensemble has ended.
        """
        if key is ApiKey.ALTER_PARTITION:
            if not self._protocol.has_alter_partition:
                return await self._alter_partition(request, timeout_ms)
            by_id = self._protocol.has_topic_ids and all(
                topic.topic_id != Uuid.ZERO for topic in request.topics
            )
            if by_id:
                return await self._channel.send(request, key, timeout_ms=timeout_ms)
            _leave_out_epochs(request)
            return await self._channel.send(
                request, key, timeout_ms=timeout_ms, version=_NAMES_VERSION
            )
        if key is ApiKey.ALLOCATE_PRODUCER_IDS and not self._protocol.has_allocated_producer_ids:
            steps = allocate_producer_ids(request.broker_id)
            first = await self._execute(steps, timeout_ms=timeout_ms)
            return k67.AllocateProducerIdsResponse(
                producer_id_start=first, producer_id_len=PRODUCER_IDS_PER_BLOCK
            )
        return await self._channel.send(request, key, timeout_ms=timeout_ms)

    async def _execute(self, steps: "Steps[T]", *, timeout_ms: int) -> "T":
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await execute(self._session.client, steps, lambda _: None)
        except TimeoutError as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no reply from ZooKeeper") from error
        except ZooKeeperError as error:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"ZooKeeper: {error}") from error

    async def _alter_partition(
        self, request: k56.AlterPartitionRequest, timeout_ms: int
    ) -> k56.AlterPartitionResponse:
        wanted = {
            (topic.topic_name, each.partition_index): LeaderAndIsr(
                leader=request.broker_id,
                isr=tuple(member.broker_id for member in each.new_isr_with_epochs),
                leader_epoch=each.leader_epoch,
                partition_epoch=each.partition_epoch,
            )
            for topic in request.topics
            for each in topic.partitions
        }
        written = await self._execute(write_isrs(wanted), timeout_ms=timeout_ms)
        if written:
            self._changed.update(dict.fromkeys(written))
            self._changed_ms = self._clock.mono_ms()
        return k56.AlterPartitionResponse(
            topics=[
                k56.AlterPartitionResponseTopicData(
                    topic_name=topic.topic_name,
                    partitions=[
                        _altered(each.partition_index, written.get(at))
                        for each in topic.partitions
                        for at in ((topic.topic_name, each.partition_index),)
                    ],
                )
                for topic in request.topics
            ]
        )

    async def run(self) -> None:
        """Notify the controller of changed ISRs, until cancelled."""
        self._notified_ms = self._clock.mono_ms()
        while True:
            await asyncio.sleep(CHECK_MS / 1000)
            now_ms = self._clock.mono_ms()
            is_quiet = self._changed_ms + LINGER_MS < now_ms
            if self._changed and (is_quiet or self._notified_ms + DELAY_MS_MAX < now_ms):
                await self._notify(now_ms)

    async def _notify(self, now_ms: int) -> None:
        changed = list(self._changed)[:NOTIFIED_AT_ONCE]
        for each in changed:  # before: one that changes meanwhile needs another notification
            del self._changed[each]
        try:
            await self._execute(notify_isr_changes(changed), timeout_ms=DELAY_MS_MAX)
        except KafkaError as error:
            log.warning("The controller was not notified of changed ISRs: %s", error)
            self._changed.update(dict.fromkeys(changed))
            return
        self._notified_ms = now_ms


def _leave_out_epochs(request: k56.AlterPartitionRequest) -> None:
    """Bring the ISRs into the form of v0-2, without the epochs of brokers."""
    for topic in request.topics:
        for each in topic.partitions:
            each.new_isr = [member.broker_id for member in each.new_isr_with_epochs]
            each.new_isr_with_epochs = []


def _altered(index: int, state: LeaderAndIsr | None) -> k56.AlterPartitionResponsePartitionData:
    if state is None:
        return k56.AlterPartitionResponsePartitionData(
            partition_index=index, error_code=ErrorCode.INVALID_UPDATE_VERSION
        )
    return k56.AlterPartitionResponsePartitionData(
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
    )

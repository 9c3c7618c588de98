"""Write the markers of decided transactions to the leaders of their partitions.

    partition led here        appended at once
    led by another broker     WriteTxnMarkers, one request in flight per broker
    without a leader          looked up again
    deleted                   done: nothing is left of the transaction there

Markers are repeated until every partition has one; leaders accept a repeated marker. A marker that
a newer coordinator or producer has overtaken ends the attempt: the newer one completes the
transaction.

If all partitions are led here and not replicated, a transaction is complete before the response to
its end is sent. Its producer then does not get CONCURRENT_TRANSACTIONS for its next transaction,
after which librdkafka waits 20 ms.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.base.loop_work import LoopBound
from sparkraft.base.ordering import in_order
from sparkraft.coordinator.transaction.states import TransactionState
from sparkraft.server.coordinator.broker_batches import BrokerBatches, BrokerConnections
from sparkraft.server.coordinator.marker_log import (
    Marker,
    MarkerLog,
    MarkerResult,
    MarkerWrite,
    code_of,
)
from sparkraft.server.coordinator.responses import Response

if TYPE_CHECKING:
    from sparkraft.coordinator.transaction.decision import WriteMarkers
    from sparkraft.protocol.messages import k27_write_txn_markers as k27
    from sparkraft.server.broker.inter_broker_versions import InterBrokerVersions
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.coordinator.host import ImageSource
    from sparkraft.server.env import Env
    from sparkraft.server.loop_turns import Turn

log = logging.getLogger(__name__)

RETRY_MS_MIN = 20
RETRY_MS_MAX = 1_000
"""Between two attempts; longer for partitions that stay without a leader."""

MARKERS_AT_ONCE: LoopBound = 25
"""Markers of one transaction that are appended before the response to its end: half a ms."""

PARTITIONS_AT_ONCE: LoopBound = 1_000
"""Partitions of one transaction that are sent or appended together."""

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_DONE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)

T = TypeVar("T")

Results = dict[TopicPartition, ErrorCode]


class _Entry(NamedTuple):
    marker: Marker
    partitions: tuple[TopicPartition, ...]


class MarkerSender:
    """See the module docstring."""

    def __init__(  # noqa: PLR0913 (every collaborator, by name)
        self,
        config: "NodeConfig",
        metadata: "ImageSource",
        connections: BrokerConnections,
        marker_log: MarkerLog,
        env: "Env",
        spawn: "Callable[[Coroutine[Any, Any, Any], str], Any]",
        *,
        versions: "Callable[[], InterBrokerVersions]",
    ) -> None:
        """Send nothing yet.

        Args:
            config: static configs of this node.
            metadata: has the leaders.
            connections: to other brokers.
            marker_log: writes the markers of partitions that this broker leads.
            env: for pauses between pieces of work.
            spawn: runs a coroutine under the node's task group, with a name.
            versions: the highest versions that all brokers of the cluster support now.
        """
        self._versions = versions
        self._node_id = config.node_id
        self._timeout_ms = config.number("request.timeout.ms")
        self._metadata = metadata
        self._connections = connections
        self._marker_log = marker_log
        self._env = env
        self._batches: BrokerBatches[_Entry, Results] = BrokerBatches(
            self._request,
            spawn,
            "transaction markers",
            size_of=lambda entry: len(entry.partitions),
        )

    def write(
        self, effect: "WriteMarkers", is_current: Callable[["WriteMarkers"], bool]
    ) -> Response[None]:
        """Write all markers: None if every partition has one at once, else an awaitable of that.

        Args:
            effect: the decided transaction.
            is_current: whether this broker still coordinates it.

        Raises:
            KafkaError: fenced; or NOT_COORDINATOR once it is not current.
        """
        marker = _marker_of(effect)
        if not self._are_few_and_led_here(effect.partitions):
            return self._write_all(effect, marker, is_current)
        begun = {one: self._marker_log.write(marker, *one) for one in sorted(effect.partitions)}
        if all(code in _DONE for code in begun.values()):
            return None
        return self._write_all(effect, marker, is_current, begun)

    def _are_few_and_led_here(self, partitions: frozenset[TopicPartition]) -> bool:
        return len(partitions) <= MARKERS_AT_ONCE and all(
            self._leader_of(one) == self._node_id for one in partitions
        )

    async def _write_all(
        self,
        effect: "WriteMarkers",
        marker: Marker,
        is_current: Callable[["WriteMarkers"], bool],
        begun: dict[TopicPartition, MarkerResult] | None = None,
    ) -> None:
        """Return once all partitions have the marker; `begun`: the first attempt, if it has."""
        turn = self._env.turn(self._env.work_max.partitions)
        missing = await _in_order(effect.partitions, turn)
        delay_ms = RETRY_MS_MIN
        while missing:
            if begun is None:
                results = await self._write_once(marker, missing, turn)
            else:
                results = {one: await code_of(result) for one, result in begun.items()}
                begun = None
            missing = await _not_done(missing, results, turn)
            _check_fenced(effect, marker, missing, results)
            if missing:
                await asyncio.sleep(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, RETRY_MS_MAX)
            if not is_current(effect):
                raise KafkaError(ErrorCode.NOT_COORDINATOR)

    async def _write_once(
        self, marker: Marker, partitions: list[TopicPartition], turn: "Turn"
    ) -> Results:
        """The results of the partitions that have a leader, or no longer exist."""
        results: Results = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for one in partitions:
            leader = self._leader_of(one)
            if leader is None:
                results[one] = ErrorCode.NONE
            elif leader >= 0:
                by_leader.setdefault(leader, []).append(one)
            if turn.is_over(1):
                await turn.next()
        await asyncio.gather(
            *(self._write_to(leader, marker, of, results) for leader, of in by_leader.items())
        )
        return results

    def _leader_of(self, partition: TopicPartition) -> int | None:
        """-1 without a leader; None if the partition does not exist."""
        topic = self._metadata.image.topic(partition[0])
        found = None if topic is None else topic.partitions.get(partition[1])
        return None if found is None else found.leader

    async def _write_to(
        self, broker_id: int, marker: Marker, partitions: list[TopicPartition], results: Results
    ) -> None:
        """Add the results of the partitions that a broker leads."""
        if broker_id == self._node_id:
            writes = (MarkerWrite(marker, topic, index) for topic, index in partitions)
            codes = await self._marker_log.write_all(writes)
            for at in range(0, len(codes), PARTITIONS_AT_ONCE):
                await _add(results, zip(_part(partitions, at), _part(codes, at), strict=True))
            return
        parts = [_part(partitions, at) for at in range(0, len(partitions), PARTITIONS_AT_ONCE)]
        for found in await asyncio.gather(*(self._send(broker_id, marker, each) for each in parts)):
            await _add(results, found.items())

    async def _send(
        self, broker_id: int, marker: Marker, partitions: list[TopicPartition]
    ) -> Results:
        try:
            return await self._batches.submit(broker_id, _Entry(marker, tuple(partitions)))
        except KafkaError as error:
            log.info("Failed to send markers to broker %d: %s", broker_id, error)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)

    async def _request(self, broker_id: int, entries: list[_Entry]) -> list[Results]:
        from sparkraft.protocol.messages import k27_write_txn_markers as k27

        request = k27.WriteTxnMarkersRequest(markers=[_writable(entry) for entry in entries])
        response = await self._connections.send(
            broker_id,
            request,
            timeout_ms=self._timeout_ms,
            at_most=self._versions().write_txn_markers,
        )
        found = _codes(response)
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return [
            {one: found.get((entry.marker.producer_id, *one), missing) for one in entry.partitions}
            for entry in entries
        ]


def _check_fenced(
    effect: "WriteMarkers", marker: Marker, missing: list[TopicPartition], results: Results
) -> None:
    fenced = next((one for one in missing if results.get(one) in _FENCED), None)
    if fenced is not None:
        log.warning(
            "Markers of %s in epoch %d are fenced by %s-%d: %s",
            effect.metadata.transactional_id,
            marker.producer_epoch,
            *fenced,
            results[fenced].name,
        )
        raise KafkaError(results[fenced])


async def _in_order(partitions: Iterable[TopicPartition], turn: "Turn") -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for one in await turn.carry_out(in_order(partitions)):
        found.append(one)
        if turn.is_over(1):
            await turn.next()
    return found


async def _not_done(
    partitions: list[TopicPartition], results: Results, turn: "Turn"
) -> list[TopicPartition]:
    left: list[TopicPartition] = []
    for one in partitions:
        if results.get(one) not in _DONE:
            left.append(one)
        if turn.is_over(1):
            await turn.next()
    return left


def _part(items: list[T], at: int) -> list[T]:
    return items[at : at + PARTITIONS_AT_ONCE]


async def _add(results: Results, found: Iterable[tuple[TopicPartition, ErrorCode]]) -> None:
    """Add one part; the loop runs everything else before the next one."""
    before = len(results)
    results.update(found)
    if len(results) - before == PARTITIONS_AT_ONCE:
        await asyncio.sleep(0)


def _marker_of(effect: "WriteMarkers") -> Marker:
    decided = effect.metadata
    return Marker(
        producer_id=decided.producer_id,
        producer_epoch=decided.producer_epoch,
        committed=decided.state is TransactionState.PREPARE_COMMIT,
        coordinator_epoch=effect.coordinator_epoch,
        transaction_version=decided.client_version,
    )


def _writable(entry: _Entry) -> "k27.WritableTxnMarker":
    from sparkraft.protocol.messages import k27_write_txn_markers as k27

    topics: dict[str, k27.WritableTxnMarkerTopic] = {}
    for name, index in entry.partitions:
        topic = topics.setdefault(name, k27.WritableTxnMarkerTopic(name=name))
        topic.partition_indexes.append(index)
    marker = entry.marker
    return k27.WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.committed,
        topics=list(topics.values()),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _codes(response: "k27.WriteTxnMarkersResponse") -> dict[tuple[int, str, int], ErrorCode]:
    """Error code by producer id, topic and partition."""
    return {
        (marker.producer_id, topic.name, one.partition_index): ErrorCode(one.error_code)
        for marker in response.markers
        for topic in marker.topics
        for one in topic.partitions
    }

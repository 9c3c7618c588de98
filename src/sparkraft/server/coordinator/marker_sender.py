"""Write the markers of decided transactions to the leaders of their partitions.

    partition led here        appended at once
    led by another broker     WriteTxnMarkers, one request in flight per broker
    without a leader          looked up again
    deleted                   done: nothing is left of the transaction there

Markers are repeated until every partition has one; leaders accept a repeated marker. A marker that
a newer coordinator or producer has overtaken ends the attempt: the newer one completes the
transaction.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import TopicPartition
from sparkraft.coordinator.transaction.states import TransactionState
from sparkraft.server.coordinator.broker_batches import BrokerBatches, BrokerConnections
from sparkraft.server.coordinator.marker_log import Marker, MarkerLog

if TYPE_CHECKING:
    from sparkraft.coordinator.transaction.decision import WriteMarkers
    from sparkraft.protocol.messages import k27_write_txn_markers as k27
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.coordinator.host import ImageSource

log = logging.getLogger(__name__)

RETRY_MS_MIN = 20
RETRY_MS_MAX = 1_000
"""Between two attempts; longer for partitions that stay without a leader."""

_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_DONE = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)

Results = dict[TopicPartition, ErrorCode]


class _Entry(NamedTuple):
    marker: Marker
    partitions: tuple[TopicPartition, ...]


class MarkerSender:
    """See the module docstring."""

    def __init__(
        self,
        config: "NodeConfig",
        metadata: "ImageSource",
        connections: BrokerConnections,
        marker_log: MarkerLog,
        spawn: "Callable[[Coroutine[Any, Any, Any], str], Any]",
    ) -> None:
        """Send nothing yet."""
        self._node_id = config.node_id
        self._timeout_ms = config.number("request.timeout.ms")
        self._metadata = metadata
        self._connections = connections
        self._marker_log = marker_log
        self._batches: BrokerBatches[_Entry, Results] = BrokerBatches(
            self._request, spawn, "transaction markers"
        )

    async def write(
        self, effect: "WriteMarkers", is_current: Callable[["WriteMarkers"], bool]
    ) -> None:
        """Return once all partitions have the marker.

        Args:
            effect: the decided transaction.
            is_current: whether this broker still coordinates it.

        Raises:
            KafkaError: fenced; or NOT_COORDINATOR once it is not current.
        """
        marker = _marker_of(effect)
        missing = set(effect.partitions)
        delay_ms = RETRY_MS_MIN
        while missing:
            results = await self._write_once(marker, sorted(missing))
            missing -= {one for one, code in results.items() if code in _DONE}
            fenced = sorted(one for one, code in results.items() if code in _FENCED)
            if fenced:
                code = results[fenced[0]]
                log.warning("Markers of %s are fenced: %s", effect.metadata, code.name)
                raise KafkaError(code)
            if missing:
                await asyncio.sleep(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, RETRY_MS_MAX)
            if not is_current(effect):
                raise KafkaError(ErrorCode.NOT_COORDINATOR)

    async def _write_once(self, marker: Marker, partitions: list[TopicPartition]) -> Results:
        """The results of the partitions that have a leader, or no longer exist."""
        results: Results = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for one in partitions:
            leader = self._leader_of(one)
            if leader is None:
                results[one] = ErrorCode.NONE
            elif leader >= 0:
                by_leader.setdefault(leader, []).append(one)
        for found in await asyncio.gather(
            *(self._write_to(leader, marker, of) for leader, of in by_leader.items())
        ):
            results |= found
        return results

    def _leader_of(self, partition: TopicPartition) -> int | None:
        """-1 without a leader; None if the partition does not exist."""
        topic = self._metadata.image.topic(partition[0])
        found = None if topic is None else topic.partitions.get(partition[1])
        return None if found is None else found.leader

    async def _write_to(
        self, broker_id: int, marker: Marker, partitions: list[TopicPartition]
    ) -> Results:
        if broker_id == self._node_id:
            codes = await asyncio.gather(
                *(self._marker_log.write(marker, topic, index) for topic, index in partitions)
            )
            return dict(zip(partitions, codes, strict=True))
        try:
            return await self._batches.submit(broker_id, _Entry(marker, tuple(partitions)))
        except KafkaError as error:
            log.info("Failed to send markers to broker %d: %s", broker_id, error)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)

    async def _request(self, broker_id: int, entries: list[_Entry]) -> list[Results]:
        from sparkraft.protocol.messages import k27_write_txn_markers as k27

        request = k27.WriteTxnMarkersRequest(markers=[_writable(entry) for entry in entries])
        response = await self._connections.send(broker_id, request, timeout_ms=self._timeout_ms)
        found = _codes(response)
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        return [
            {one: found.get((entry.marker.producer_id, *one), missing) for one in entry.partitions}
            for entry in entries
        ]


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

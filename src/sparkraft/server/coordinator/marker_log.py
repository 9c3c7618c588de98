"""Append transaction markers to partitions led by this broker (KIP-98, KIP-890, KIP-1228).

For WriteTxnMarkers of other coordinators, and for the coordinator on this broker. A transaction may
have very many partitions, so that markers are appended in slices.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.loop_work import LoopBound
from sparkraft.coordinator.internal_topics import GROUP_METADATA_TOPIC
from sparkraft.records.control import ControlType, EndTransaction, end_transaction_batch
from sparkraft.records.validate import Origin
from sparkraft.server.coordinator.responses import Response

if TYPE_CHECKING:
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.server.coordinator.group_service import GroupCoordinatorService
    from sparkraft.server.env import Env

MARKERS_PER_SLICE: LoopBound = 100
"""Markers whose appends begin in one event-loop iteration: about 4 ms."""

IN_FLIGHT_MAX = 5_000
"""Markers that wait at once, a kilobyte each."""

RESULTS_PER_MARKER = 32
"""Results collected in the time of one append."""

_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a group coordinator that a transaction coordinator does not expect."""


class Marker(NamedTuple):
    """The end of a transaction; `coordinator_epoch` fences older coordinators of its id."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int


MarkerResult = ErrorCode | asyncio.Future[None]
"""Of one partition; see `code_of`."""


class MarkerWrite(NamedTuple):
    """A marker and the partition it belongs to."""

    marker: Marker
    topic: str
    partition: int


class MarkerLog:
    """See the module docstring."""

    def __init__(
        self, replicas: "ReplicaManager", groups: "GroupCoordinatorService", env: "Env"
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._env = env
        self._clock = env.clock

    async def write_all(self, writes: Iterable[MarkerWrite]) -> list[ErrorCode]:
        """Append markers in slices; the results in the same order once all are committed."""
        turn = self._env.turn(MARKERS_PER_SLICE)
        running: deque[MarkerResult] = deque()
        codes: list[ErrorCode] = []
        try:
            for one in writes:
                running.append(self.write(*one))
                if turn.is_over(1):
                    await turn.next()
                if len(running) > IN_FLIGHT_MAX:
                    codes.append(await code_of(running[0]))
                    running.popleft()
            while running:
                codes.append(await code_of(running[0]))
                running.popleft()
                if turn.is_over(len(codes) % RESULTS_PER_MARKER == 0):
                    await turn.next()
        except BaseException:
            for each in running:
                if isinstance(each, asyncio.Task):
                    each.cancel()
            raise
        return codes

    def write(self, marker: Marker, topic: str, index: int) -> MarkerResult:
        """Append a marker; the result of its partition, a future unless it is committed at once."""
        try:
            committed = self._append(marker, topic, index)
        except KafkaError as error:
            return _translated(error)
        return ErrorCode.NONE if committed is None else asyncio.ensure_future(committed)

    def _append(self, marker: Marker, topic: str, index: int) -> Response[None]:
        hosted = self._replicas.hosted(topic, index)
        if hosted is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
        producer_id, epoch = marker.producer_id, marker.producer_epoch
        if producer_id < 0 or epoch < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"a marker of producer {producer_id} in epoch {epoch}"
            )
        end = EndTransaction(kind, marker.coordinator_epoch)

        def check() -> None:
            if hosted.is_leader:
                version = marker.transaction_version
                hosted.log.check_marker(producer_id, epoch, end, transaction_version=version)

        batch = end_transaction_batch(
            end, timestamp=self._clock.wall_ms(), producer_id=producer_id, producer_epoch=epoch
        )
        if topic == GROUP_METADATA_TOPIC:
            return self._groups.end_transaction(
                index, batch, producer_id, committed=marker.committed, check=check
            )
        check()
        partition = self._replicas.leader(topic, index)
        info = self._replicas.append_to(partition, batch, acks=-1, origin=Origin.COORDINATOR)
        return partition.durable(info, acks=-1)


async def code_of(result: MarkerResult) -> ErrorCode:
    """The result of a partition, once its marker is committed or refused."""
    if not isinstance(result, asyncio.Future):
        return result
    try:
        await asyncio.shield(result)  # one fsync may serve several appends
    except KafkaError as error:
        return _translated(error)
    return ErrorCode.NONE


def _translated(error: KafkaError) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in _NOT_READY else error.code

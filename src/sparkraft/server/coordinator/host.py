"""The interface between a shard's runtime and the broker, implemented on a hosted partition."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.records.validate import Origin

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from sparkraft.base.env import Clock
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.server.loop_turns import Turn


class ImageSource(Protocol):
    """Holds the current cluster image."""

    @property
    def image(self) -> "ClusterImage":
        """The cluster as of the last published record."""


class Appended(Protocol):
    """An appended batch."""

    @property
    def base_offset(self) -> int:
        """Offset of its first record."""


class LogRange(NamedTuple):
    """Offsets of a log: `start` inclusive, `end` exclusive."""

    start: int
    end: int


class ShardHost(Protocol):
    """The partition of one shard, led by this broker in one leader epoch.

    All methods but `spawn` raise KafkaError (NOT_COORDINATOR, NOT_LEADER_OR_FOLLOWER, …) if this
    broker does not lead the partition in that epoch.
    """

    @property
    def clock(self) -> "Clock":
        """For timers and record timestamps."""

    @property
    def metadata(self) -> ImageSource:
        """Holds the current image."""

    def turn(self) -> "Turn":
        """For long work on the event loop."""

    def append(self, batch: bytes) -> Appended:
        """Append a batch, which is neither on disk nor replicated yet."""

    def committed(self, appended: Appended) -> "asyncio.Future[None] | None":
        """A future that ends when the batch is committed; None if it is.

        It fails with a KafkaError if the batch cannot be committed here.
        """

    def committed_up_to(self, offset: int) -> "asyncio.Future[None] | None":
        """The same for everything below `offset`."""

    def log_range(self) -> LogRange:
        """The log to load, which includes records that are not committed."""

    def read(self, offset: int, *, end: int, max_bytes: int) -> bytes:
        """Whole batches from `offset` up to `end`; empty if there are none."""

    def spawn(self, work: Coroutine[Any, Any, None], name: str, /) -> Any:
        """Run a task of the broker."""


class LedPartition:
    """The `ShardHost` of a broker."""

    def __init__(
        self,
        replica_manager: "ReplicaManager",
        metadata: ImageSource,
        spawn: "Callable[[Coroutine[Any, Any, Any], str], Any]",
        topic: str,
        index: int,
        leader_epoch: int,
    ) -> None:
        self.clock = replica_manager.clock
        self.metadata = metadata
        self.spawn = spawn
        self._env = replica_manager.env
        self._replica_manager = replica_manager
        self._topic = topic
        self._index = index
        self._leader_epoch = leader_epoch

    def _partition(self) -> "HostedPartition":
        partition = self._replica_manager.leader(self._topic, self._index)
        if partition.leader_epoch != self._leader_epoch:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition

    def turn(self) -> "Turn":
        return self._env.turn(self._env.work_max.partitions)

    def append(self, batch: bytes) -> Appended:
        return self._replica_manager.append_to(
            self._partition(), batch, acks=-1, origin=Origin.COORDINATOR
        )

    def committed(self, appended: Any) -> "asyncio.Future[None] | None":
        return self._partition().durable(appended, acks=-1)

    def committed_up_to(self, offset: int) -> "asyncio.Future[None] | None":
        return self._partition().committed(offset)

    def log_range(self) -> LogRange:
        log = self._partition().log
        return LogRange(log.log_start_offset, log.log_end_offset)

    def read(self, offset: int, *, end: int, max_bytes: int) -> bytes:
        found = self._partition().log.read(offset, max_bytes=max_bytes, up_to=end)
        return b"".join(found.pieces) if found.size else b""

"""One kind of coordinator on this broker: a shard for every partition of its topic led here.

A shard loads its log when leadership begins and is dropped when it ends. Requests for a shard that
is loading or led elsewhere are rejected with the error that makes clients retry or look again.

Invariant: a shard is served only by the leader of its partition, and only once it is loaded.
Not here: the execution of one shard (`shard_runtime.py`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.runtime import CoordinatorShard, MetadataDelta
from sparkraft.server.coordinator.key_partitions import KeyPartitions
from sparkraft.server.coordinator.responses import Response
from sparkraft.server.coordinator.shard_runtime import ShardRuntime
from sparkraft.server.coordinator.shard_spec import ShardSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.coordinator.host import ImageSource, ShardHost

LOADS_AT_ONCE_MAX = 1
"""Shards load in sequence: they share one event loop, and clients wait for whole shards."""

S = TypeVar("S", bound=CoordinatorShard[Any])
R = TypeVar("R")

HostFactory = Callable[[str, int, int], "ShardHost"]
"""(topic, partition, leader epoch) → the partition that this broker leads in that epoch."""


class CoordinatorService(ABC, Generic[S, R]):
    """The shards whose partitions this broker leads.

    Attributes:
        topic: the internal topic.
    """

    def __init__(
        self, topic: str, *, metadata: "ImageSource", host_of: HostFactory, partition_count: int
    ) -> None:
        """Lead no partition yet.

        Args:
            topic: the internal topic.
            metadata: holds the current image.
            host_of: opens a partition that this broker leads.
            partition_count: of the topic, until it exists.
        """
        self.topic = topic
        self._metadata = metadata
        self._host_of = host_of
        self._partitions = KeyPartitions(topic, metadata, partition_count)
        self._spec: ShardSpec[S, R] | None = None
        self._runtimes: dict[int, ShardRuntime[S, R]] = {}
        self._loads = asyncio.Semaphore(LOADS_AT_ONCE_MAX)

    @abstractmethod
    def new_spec(self) -> ShardSpec[S, R]:
        """The kind of shard. Called when the first partition is led, not at startup."""

    # Leadership and metadata

    def on_leadership(self, topic: str, index: int, epoch: int | None) -> None:
        """Load a partition led here from `epoch` on; None: resign.

        An election with an epoch older than the current one is ignored.
        """
        if topic != self.topic:
            return
        running = self._runtimes.get(index)
        if running is not None:
            if epoch is not None and epoch < running.leader_epoch:
                return
            del self._runtimes[index]
            running.close()
        if epoch is not None:
            self._lead(index, epoch)

    def _lead(self, index: int, epoch: int) -> None:
        if self._spec is None:
            self._spec = self.new_spec()
        host = self._host_of(self.topic, index, epoch)
        runtime = self._runtimes[index] = ShardRuntime(self._spec, host, index, epoch)
        if runtime.must_load:
            host.spawn(self._load(runtime), f"load of {self.topic}-{index}")
        else:
            runtime.start()

    async def _load(self, runtime: ShardRuntime[S, R]) -> None:
        async with self._loads:
            await runtime.load()

    def on_image(
        self, before: "ClusterImage", image: "ClusterImage", changed: "Iterable[Uuid] | None"
    ) -> None:
        """Pass new metadata to every shard.

        Args:
            before: the previous image.
            image: the current image.
            changed: ids of topics changed since `before`; None if any may have.
        """
        _ = self._partitions.count  # as of the first image: partitions added later do not count
        if not self._runtimes:
            return
        delta = MetadataDelta(before, image, changed)
        for index in sorted(self._runtimes):
            self._runtimes[index].on_image(delta)

    def close(self) -> None:
        """Resign from all partitions: the node stops."""
        for index in sorted(self._runtimes):
            self._runtimes[index].close()
        self._runtimes.clear()

    # Routing

    def partition_for(self, key: str) -> int:
        """The partition of `key` (a group id, a transactional id); see `key_partitions`."""
        return self._partitions.of(key)

    def shard_for(self, key: str) -> ShardRuntime[S, R]:
        """The loaded shard of `key`.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._loaded(self.partition_for(key))

    def loaded_shards(self) -> "Iterator[ShardRuntime[S, R]]":
        """Every shard led here, by partition.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, on reaching one that is loading.
        """
        for index in sorted(self._runtimes):
            yield self._loaded(index)

    @property
    def runtimes(self) -> "Mapping[int, ShardRuntime[S, R]]":
        """By partition, loaded or not; read only."""
        return self._runtimes

    def end_transaction(
        self,
        index: int,
        marker: bytes,
        producer_id: int,
        *,
        committed: bool,
        check: Callable[[], None],
    ) -> Response[None]:
        """Append a transaction marker to partition `index`; an awaitable unless it is committed.

        Raises:
            KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, `check` refused it right
                before the append, or the append failed.
        """
        runtime = self._loaded(index)
        return runtime.end_transaction(marker, producer_id, committed=committed, check=check)

    def _loaded(self, index: int) -> ShardRuntime[S, R]:
        runtime = self._runtimes.get(index)
        if runtime is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"{self.topic}-{index} is not led by this broker"
            )
        runtime.check_loaded()
        return runtime

"""The broker as its hosted partitions see it; `hosted` and `partition` are `HostedPartition`s."""

from typing import TYPE_CHECKING, Any, Protocol

from sparkraft.base.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from sparkraft.base.env import Clock
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.replication.in_sync import Pending
    from sparkraft.replication.leader import Brokers
    from sparkraft.server.broker.timing_wheel import TimingWheel


class IsrSubmitter(Protocol):
    """Sends ISR changes to the controller."""

    def submit(self, hosted: Any, pending: "Pending") -> None:
        """Queue a change that the leader of `hosted` made pending."""


class PartitionHost(Protocol):
    """The part of its broker that a partition uses.

    Attributes:
        clock: the node's.
        wheel: deadlines of parked requests.
        lag_ms_max: replica.lag.time.max.ms.
        brokers: the leaders' view of other brokers.
        isr_changes: takes the leaders' ISR changes.
    """

    clock: "Clock"
    wheel: "TimingWheel"
    lag_ms_max: int
    brokers: "Brokers"
    isr_changes: IsrSubmitter

    @property
    def spawn(self) -> "Callable[[Coroutine[Any, Any, Any], str], Any]":
        """Runs a coroutine under the node's task group, with a name."""

    @property
    def image(self) -> "ClusterImage":
        """The one its partitions follow."""

    def off_loop(self, work: "Callable[..., Any]", *arguments: Any) -> "Awaitable[Any]":
        """Run blocking disk work in the executor."""

    def on_disk_error(self, error: Exception, partition: Any) -> KafkaError:
        """Take the log dir offline; returns the error for the client."""

    def replicas_offline(self, partition: "PartitionState") -> list[int]:
        """Replicas in an offline log directory of a live broker."""

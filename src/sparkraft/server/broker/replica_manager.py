"""The partitions hosted here: made and removed as the image says, found by name or id.

For request handlers:
    leader(topic, index)       the partition, or KafkaError if it isn't led here
    append(...)                appends now; `append_and_wait` returns when it may be acknowledged
    get_log(topic, index)      the log, or None

Other services learn of leadership through `leadership_listeners`: called with (topic, index,
leader_epoch) when leadership here begins or its epoch moves, with None when it ends; the log is
there before the first call.

Fetchers learn whom to follow through `fetcher_listeners`: called with (partition, leader id, leader
epoch) when following a leader begins or moves to another leader or epoch, with None as the leader
when it ends (we lead, nobody leads, the replica is gone, its disk failed). The log is there before
the first call; `HostedPartition` says how a follower is written.

The image changes at once, logs follow in small steps between the loop's rounds: a topic of 10,000
partitions stalls nobody.

Not here: fetching from leaders (`fetchers`), bytes of logs (`sparkraft.storage`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.records.validate import Origin
from sparkraft.server.broker.partition import HostedPartition
from sparkraft.server.broker.timing_wheel import TimingWheel
from sparkraft.server.broker.topic_configs import TopicConfigs
from sparkraft.storage.disk import StorageFault

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage, Topic
    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.server.broker.isr_changes import IsrChanges
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.storage.log import AppendInfo, PartitionLog
    from sparkraft.storage.log_manager import LogManager

log = logging.getLogger(__name__)

STEP_MS_MAX = 10
"""Work on logs in one round of the loop: short beside a heartbeat, long beside a mkdir."""

LeadershipListener = Callable[[str, int, int | None], None]
FetcherListener = Callable[[HostedPartition, int | None, int], None]
Result = TypeVar("Result")


class ReplicaManager:
    """See the module docstring.

    Attributes:
        isr_changes: where leaders send ISR changes; put in place before the first image.
        wheel: deadlines of requests that wait.
        lag_ms_max: replica.lag.time.max.ms.
    """

    isr_changes: "IsrChanges"

    def __init__(
        self,
        config: "NodeConfig",
        env: "Env",
        log_manager: "LogManager",
        *,
        spawn: Callable[[Coroutine[Any, Any, Any], str], Any],
        on_storage_fault: Callable[[StorageFault], None],
    ) -> None:
        """Host nothing yet.

        Args:
            config: the node's.
            env: clock, executor.
            log_manager: has loaded the logs of earlier runs.
            spawn: runs a coroutine under the node's task group, with a name.
            on_storage_fault: told once of every disk failure; takes the log dir offline.
        """
        self.config = config
        self.env = env
        self.clock = env.clock
        self.log_manager = log_manager
        self.wheel = TimingWheel(env.clock)
        self.lag_ms_max = config.number("replica.lag.time.max.ms")
        self.topic_configs = TopicConfigs(config)
        self.spawn = spawn
        self.leadership_listeners: list[LeadershipListener] = []
        self.fetcher_listeners: list[FetcherListener] = []
        self.placement_listeners: list[Callable[[HostedPartition, bytes], None]] = []
        """Called with a hosted partition and the directory the image puts it in."""
        self.given_up_listeners: list[Callable[[HostedPartition], None]] = []
        """Called with a follower whose log turned out to be damaged, once it is hosted no more."""
        self.image: ClusterImage = EMPTY_IMAGE
        self._on_storage_fault = on_storage_fault
        log_manager.damage.listeners.append(self.on_damaged)
        self._node_id = config.node_id
        self._hosted: dict[tuple[str, int], HostedPartition] = {}
        self._by_id: dict[tuple[bytes, int], HostedPartition] = {}
        self._lost: set[tuple[bytes, int]] = set()
        """Partitions whose log directory is offline."""
        self._work: deque[Iterator[None]] = deque()
        self._working = False
        self._settled: list[asyncio.Future[None]] = []

    # ---- finding

    def hosted(self, topic: str, index: int) -> HostedPartition | None:
        """The partition, led here or not; None where it isn't hosted."""
        return self._hosted.get((topic, index))

    def hosted_by_id(self, topic_id: bytes, index: int) -> HostedPartition | None:
        """The same, by topic id."""
        return self._by_id.get((topic_id, index))

    def all_hosted(self) -> Iterable[HostedPartition]:
        """Every partition hosted here, in no particular order."""
        return self._hosted.values()

    def get_log(self, topic: str, index: int) -> "PartitionLog | None":
        """The log of a hosted partition."""
        partition = self._hosted.get((topic, index))
        return None if partition is None else partition.log

    def leader(self, topic: str, index: int) -> HostedPartition:
        """The partition, which is led here.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        partition = self._hosted.get((topic, index))
        if partition is not None and partition.is_leader:
            return partition
        raise self._why_not_led(topic, index)

    def replica(self, topic: str, index: int) -> HostedPartition:
        """The partition, led here or followed.

        Raises:
            KafkaError: as `leader`.
        """
        partition = self._hosted.get((topic, index))
        if partition is not None:
            return partition
        raise self._why_not_led(topic, index)

    def _why_not_led(self, topic: str, index: int) -> KafkaError:
        image = self.image
        topic_id = image.topics_by_name.get(topic)
        known = None if topic_id is None else image.partition(topic_id, index)
        name = f"{topic}-{index}"
        if known is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}")
        if self.log_manager.is_offline(topic, index) or (topic_id, index) in self._lost:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {name} failed")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is not led here")

    def replicas_offline(self, partition: "PartitionState") -> list[int]:
        """Replicas on a log directory that is offline, of brokers that live."""
        brokers = self.image.brokers
        return [
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=False)
            if (broker := brokers.get(replica)) and not broker.has_online_directory(directory)
        ]

    # ---- appending

    def append(
        self, topic: str, index: int, records: Any, *, acks: int = -1,
        origin: Origin = Origin.COORDINATOR,
    ) -> "AppendInfo":  # fmt: skip
        """Append one batch now; whether it may be acknowledged is `append_and_wait`'s to know.

        Raises:
            KafkaError: see `leader` and `HostedPartition.append`.
        """
        partition = self.leader(topic, index)
        return self.append_to(partition, records, acks=acks, origin=origin)

    def append_to(
        self, partition: HostedPartition, records: Any, *, acks: int, origin: Origin
    ) -> "AppendInfo":
        """The same for a partition already found; a disk failure is KAFKA_STORAGE_ERROR."""
        try:
            return partition.append(records, acks=acks, now_ms=self.clock.wall_ms(), origin=origin)
        except StorageFault as fault:
            raise self.on_disk_error(fault, partition) from fault

    async def append_and_wait(
        self, topic: str, index: int, records: Any, *, acks: int = -1,
        origin: Origin = Origin.COORDINATOR,
    ) -> "AppendInfo":  # fmt: skip
        """Append one batch; returns when it is below the high watermark (and on disk if asked)."""
        partition = self.leader(topic, index)
        info = self.append_to(partition, records, acks=acks, origin=origin)
        durable = partition.durable(info, acks=acks)
        if durable is not None:
            await durable
        return info

    # ---- following the image

    def on_image(self, image: "ClusterImage", changed_topics: "Iterable[Uuid] | None") -> None:
        """Follow a new image.

        Args:
            image: what holds from now on.
            changed_topics: ids of topics that were made, changed, removed or configured since the
                last image; None: any of them (a snapshot, a change of defaults).
        """
        before, self.image = self.image, image
        if changed_topics is None:
            ids = {*dict(before.topics_by_id), *dict(image.topics_by_id)}
            changed_topics = sorted(ids)
        # What is gone first: a topic made again has its predecessor's name, and its directory.
        for topic_id in sorted(changed_topics, key=lambda each: each in image.topics_by_id):
            self._work.append(self._follow(topic_id, before.topics_by_id.get(topic_id)))
        self._step()

    async def settle(self) -> None:
        """Return when every image given so far is followed."""
        while self._work:
            done = asyncio.get_running_loop().create_future()
            self._settled.append(done)
            await done

    def _step(self) -> None:
        """Work for a while; go on in the next round if there is more."""
        if self._working:
            return
        self._working = True
        started = self.clock.mono_ms()
        try:
            while self._work and self.clock.mono_ms() - started < STEP_MS_MAX:
                if next(self._work[0], self) is self:
                    self._work.popleft()
        finally:
            self._working = False
        if self._work:
            asyncio.get_running_loop().call_soon(self._step)
            return
        for done in self._settled:
            if not done.done():
                done.set_result(None)
        self._settled.clear()

    def _follow(self, topic_id: "Uuid", before: "Topic | None") -> Iterator[None]:
        """Bring one topic's logs to what the newest image says, one partition a step."""
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            yield from self._remove(topic_id, before)
            return
        values = None
        for index, partition in topic.in_order():
            if self._node_id in partition.replicas:
                if values is None:
                    values = self.topic_configs.of(self.image, topic.name)
                self._host(topic, index, partition, values)
            elif (topic_id, index) in self._by_id:
                self._drop(self._by_id[topic_id, index])
            yield

    def _remove(self, topic_id: "Uuid", before: "Topic | None") -> Iterator[None]:
        if before is None:
            return
        for index in sorted(before.partitions):
            hosted = self._by_id.get((topic_id, index))
            if hosted is not None:
                self._drop(hosted)
            yield

    def _host(
        self, topic: "Topic", index: int, partition: "PartitionState", values: dict[str, Any]
    ) -> None:
        hosted = self._by_id.get((topic.id, index))
        try:
            config = self.log_manager.log_config(values)
            if hosted is None:
                hosted = self._make(topic, index, partition, config)
            else:
                hosted.log.config = config
        except StorageFault as fault:
            self._lost.add((topic.id, index))
            self._on_storage_fault(fault)
            return
        except KafkaError as error:
            if (topic.id, index) not in self._lost:
                log.warning("Can't host %s-%d: %s", topic.name, index, error)
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._lost.add((topic.id, index))
            return
        self._lost.discard((topic.id, index))
        for listener in self.placement_listeners:
            listener(hosted, partition.directory(self._node_id))
        hosted.min_insync = values["min.insync.replicas"]
        was_leader, was_follower = hosted.is_leader, hosted.is_follower
        if hosted.apply(partition, local_id=self._node_id):
            self._on_new_role(hosted, was_leader=was_leader, was_follower=was_follower)

    def _on_new_role(
        self, hosted: HostedPartition, *, was_leader: bool, was_follower: bool
    ) -> None:
        if was_follower or hosted.is_follower:
            self._tell_fetchers(hosted, hosted.leader_id if hosted.is_follower else None)
        if was_leader or hosted.is_leader:
            self._tell(hosted, hosted.leader_epoch if hosted.is_leader else None)
        if hosted.is_follower and (hosted.topic, hosted.index) in self.log_manager.damage.reads:
            self._give_up(hosted)  # the damage was met while it led

    def _make(
        self, topic: "Topic", index: int, partition: "PartitionState", config: Any
    ) -> HostedPartition:
        known = self.log_manager.get(topic.name, index)
        if known is not None and known.topic_id not in {None, topic.id}:
            log.warning("%s is of an older topic of that name: setting it aside", known)
            self.log_manager.mark_stray(topic.name, index)
        if (topic.name, index) in self.log_manager.damaged and self._is_spare(partition):
            log.warning(
                "%s-%d is damaged: it is set aside, and fetched anew from node %d",
                topic.name,
                index,
                partition.leader,
            )
            self.log_manager.damage.set_aside(topic.name, index)
        made = self.log_manager.get_or_create(
            topic.name,
            index,
            topic.id,
            config,
            directory_id=partition.directory(self._node_id),
        )
        _sync_leftovers(made, config.flush_messages)
        hosted = HostedPartition(self, topic.name, topic.id, index, made)
        self._hosted[topic.name, index] = hosted
        self._by_id[topic.id, index] = hosted
        return hosted

    def _is_spare(self, partition: "PartitionState") -> bool:
        """Whether somebody else leads, and neither ISR nor ELR count on the replica here."""
        here = self._node_id
        counted = here in partition.isr or here in partition.elr
        return partition.leader not in {-1, here} and not counted

    def on_damaged(self, damaged: "PartitionLog") -> None:
        """A reader met damage in a log in use: told of; a follower is given up, to be made anew.

        It leaves the ISR (`given_up_listeners` see to that); then it starts over.
        A leader goes on with what is whole, as nobody else may have it all, until it follows.
        """
        detail = self.log_manager.damage.reads[damaged.topic, damaged.partition]
        hosted = self._hosted.get((damaged.topic, damaged.partition))
        log.error("The replica of %s is damaged: %s", damaged.name, detail)
        if hosted is not None and hosted.log is damaged and hosted.is_follower:
            self._give_up(hosted)

    def _give_up(self, hosted: HostedPartition) -> None:
        """Serve a follower no more that is known to be damaged."""
        self.forget(hosted)
        self._lost.add((hosted.topic_id, hosted.index))
        self.log_manager.damage.give_up(hosted.log)
        for listener in self.given_up_listeners:
            listener(hosted)

    def set_strays_aside(self) -> None:
        """Rename the logs of earlier runs that the cluster doesn't assign to us; when caught up.

        What is assigned and could not be hosted, as a disk failed just now, stays where it is.
        """
        for known in self.log_manager.logs():
            if not self._is_assigned(known):
                log.warning(
                    "%s is of no partition that this broker is a replica of: setting it aside",
                    known,
                )
                try:
                    self.log_manager.mark_stray(known.topic, known.partition)
                except StorageFault as fault:
                    self._on_storage_fault(fault)
        for copy in self.log_manager.futures.all():
            self._drop_stray_copy(copy)

    def _is_assigned(self, known: "PartitionLog") -> bool:
        """Whether the cluster has a replica here whose log this is."""
        topic_id = self.image.topics_by_name.get(known.topic)
        if topic_id is None or known.topic_id not in {None, topic_id}:
            return False
        partition = self.image.partition(topic_id, known.partition)
        return partition is not None and self._node_id in partition.replicas

    def _drop_stray_copy(self, copy: "PartitionLog") -> None:
        """Remove a copy on its way to another directory whose replica isn't ours any more."""
        known = self.image.partition(copy.topic_id, copy.partition) if copy.topic_id else None
        if known is None or self._node_id not in known.replicas:
            try:
                self.log_manager.futures.drop(copy.topic, copy.partition)
            except StorageFault as fault:
                self._on_storage_fault(fault)

    def _drop(self, hosted: HostedPartition) -> None:
        """Stop serving a partition and remove its log."""
        self.forget(hosted)
        if self.log_manager.get(hosted.topic, hosted.index) is not hosted.log:
            return  # set aside already, and the name is another topic's
        try:
            self.log_manager.delete(hosted.topic, hosted.index)
        except StorageFault as fault:
            self._on_storage_fault(fault)

    def forget(self, hosted: HostedPartition) -> None:
        """Stop serving a partition; its files stay."""
        self._by_id.pop((hosted.topic_id, hosted.index), None)
        if self._hosted.get((hosted.topic, hosted.index)) is hosted:
            del self._hosted[hosted.topic, hosted.index]
        was_leader, was_follower = hosted.is_leader, hosted.is_follower
        hosted.end()
        if was_follower:
            self._tell_fetchers(hosted, None)
        if was_leader:
            self._tell(hosted, None)

    def _tell_fetchers(self, hosted: HostedPartition, leader_id: int | None) -> None:
        for listener in self.fetcher_listeners:
            listener(hosted, leader_id, hosted.leader_epoch)

    def _tell(self, hosted: HostedPartition, epoch: int | None) -> None:
        for listener in self.leadership_listeners:
            listener(hosted.topic, hosted.index, epoch)

    # ---- disks

    def off_loop(self, work: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        """Run blocking disk work in the executor."""
        return asyncio.get_running_loop().run_in_executor(self.env.executor, work, *arguments)

    def on_disk_error(self, error: Exception, partition: HostedPartition) -> KafkaError:
        """What a client hears of a failed disk operation; the log dir goes offline."""
        if isinstance(error, StorageFault):
            self._on_storage_fault(error)
        else:
            log.error("A disk operation on %s failed", partition, exc_info=error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {partition} failed")

    def drop_log_dir(self, log_dir: str) -> None:
        """Stop serving every partition of a log dir that went offline."""
        for hosted in [h for h in self._hosted.values() if h.log.log_dir == log_dir]:
            self._lost.add((hosted.topic_id, hosted.index))
            self.forget(hosted)


def _sync_leftovers(log: "PartitionLog", flush_messages: int) -> None:
    """Sync what a killed process left in the page cache, where records must be on disk to count.

    A follower acknowledges its log's end with its first fetch, a leader counts its own.
    """
    if log.unflushed_messages >= flush_messages:
        log.flush()

"""The partitions hosted by this broker, created and removed as the image changes.

For request handlers:
    leader(topic, index)       the partition, or KafkaError if it is not led here
    append_to(partition, ...)  appends now; `HostedPartition.durable`: when it may be acknowledged
    get_log(topic, index)      the log, or None

Listeners, called on the event loop once the log exists:
    LeadershipListener         (topic, index, leader epoch) when leadership here begins or its epoch
                               changes, with None when it ends
    FetcherListener            (partition, leader id, leader epoch) when following begins or moves
                               to another leader or epoch, with None as the leader when it ends (we
                               lead, there is no leader, the replica was removed, its disk failed)
    PlacementListener          (partition, directory id in the image) on every change of a partition
    DamageListener             (partition) for a damaged follower that is no longer hosted

The image changes at once; logs follow in small steps over several event-loop iterations, so that a
topic of 10,000 partitions does not block the loop. Folders are created and renamed by threads
(`folder_queue`): a new partition is hosted, with the role of the then newest image, once its folder
exists; until then it is NOT_LEADER_OR_FOLLOWER. A dropped one is not hosted from the moment on at
which its folder may be renamed.

Not here: fetching from leaders (`fetchers`), bytes of logs (`sparkraft.storage`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ordering import in_order
from sparkraft.base.placeholder_ids import is_same_topic, known_id
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.records.validate import Origin, is_heavy
from sparkraft.server.broker.append_queue import AppendQueues, QueuedAppend
from sparkraft.server.broker.disk_steps import DiskSteps
from sparkraft.server.broker.folder_queue import SLICES_PER_BATCH, FolderQueue
from sparkraft.server.broker.partition import HostedPartition
from sparkraft.server.broker.stray_logs import assigned_in_image, set_strays_aside
from sparkraft.server.broker.timing_wheel import TimingWheel
from sparkraft.server.broker.topic_configs import TopicConfigs
from sparkraft.server.broker.topic_traffic import BrokerTraffic
from sparkraft.server.thread_share import run_with_share
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.log_dir import DiskJob

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import ClusterImage, Topic
    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.records.validate import Prepared
    from sparkraft.replication.leader import Brokers
    from sparkraft.server.broker.partition_host import IsrSubmitter
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.server.loop_turns import Turn
    from sparkraft.server.supervisor import Supervisor
    from sparkraft.storage.config import LogConfig
    from sparkraft.storage.log import AppendInfo, PartitionLog
    from sparkraft.storage.log_dir import Steps
    from sparkraft.storage.log_manager import LogManager

log = logging.getLogger(__name__)

LeadershipListener = Callable[[str, int, int | None], None]
FetcherListener = Callable[[HostedPartition, int | None, int], None]
PlacementListener = Callable[[HostedPartition, bytes], None]
DamageListener = Callable[[HostedPartition], None]
Result = TypeVar("Result")


class ReplicaManager:
    """See the module docstring. It is the `PartitionHost` of its partitions.

    Attributes:
        wheel: deadlines of parked requests.
        lag_ms_max: replica.lag.time.max.ms.
        brokers: the leaders' view of other brokers.
        isr_changes: takes the leaders' ISR changes.
        traffic: counters of what is written and read.
    """

    def __init__(  # noqa: PLR0913 (made in one place)
        self,
        config: "NodeConfig",
        env: "Env",
        log_manager: "LogManager",
        *,
        brokers: "Brokers",
        isr_changes: "IsrSubmitter",
        supervisor: "Supervisor",
        cluster: "Callable[[], ClusterImage] | None" = None,
    ) -> None:
        """Host nothing yet.

        Args:
            config: static configs of this node.
            env: clock, executor.
            log_manager: has loaded the logs of earlier runs.
            brokers: passed to partition leaders.
            isr_changes: passed to partition leaders.
            supervisor: runs background work and takes failed log dirs offline.
            cluster: returns the image of all partitions; by default the one that is followed.
        """
        self.config = config
        self.env = env
        self.clock = env.clock
        self.log_manager = log_manager
        self.wheel = TimingWheel(env.clock)
        self.traffic = BrokerTraffic()
        self.lag_ms_max = config.number("replica.lag.time.max.ms")
        self.topic_configs = TopicConfigs(config)
        self.brokers = brokers
        self.isr_changes = isr_changes
        self.spawn: Callable[[Coroutine[Any, Any, Any], str], Any] = supervisor.spawn
        self.leadership_listeners: list[LeadershipListener] = []
        self.fetcher_listeners: list[FetcherListener] = []
        self.placement_listeners: list[PlacementListener] = []
        self.damage_listeners: list[DamageListener] = []
        self.image: ClusterImage = EMPTY_IMAGE
        self._cluster = cluster or (lambda: self.image)
        self._on_storage_fault = supervisor.on_storage_fault
        log_manager.damage.listeners.append(self.on_damaged)
        self._node_id = config.node_id
        self._hosted: dict[tuple[str, int], HostedPartition] = {}
        self._by_id: dict[tuple[bytes, int], HostedPartition] = {}
        self._lost: set[tuple[bytes, int]] = set()
        """Partitions whose log directory is offline."""
        self._appends = AppendQueues(env, self._append_prepared)
        self._making: set[tuple[bytes, int]] = set()
        """Partitions whose log is being created."""
        self._folders = FolderQueue(
            log_manager.dirs,
            off_loop=self._in_folder_thread,
            new_turn=lambda: env.turn(env.work_max.folders),
            batch_max=SLICES_PER_BATCH * env.work_max.folders,
            spawn=supervisor.spawn,
            on_idle=self._maybe_settled,
        )
        self._disk_steps = DiskSteps(
            log_manager.dirs,
            off_loop=self.off_loop,
            new_turn=lambda: env.turn(env.work_max.partitions),
        )
        self._work: deque[Iterator[object]] = deque()
        self._working = False
        self._turn: Turn | None = None
        """The work on logs in this event-loop iteration."""
        self._settled: list[asyncio.Future[None]] = []

    # ---- finding

    def hosted(self, topic: str, index: int) -> HostedPartition | None:
        """The partition, led here or not; None if it is not hosted."""
        return self._hosted.get((topic, index))

    def all_hosted(self) -> Iterable[HostedPartition]:
        """Every partition hosted here, in no particular order."""
        return self._hosted.values()

    def get_log(self, topic: str, index: int) -> "PartitionLog | None":
        """The log of a hosted partition; None if it is not hosted."""
        partition = self._hosted.get((topic, index))
        return None if partition is None else partition.log

    def leader(self, topic: str, index: int) -> HostedPartition:
        """The partition, if it is led here.

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
        image = self._cluster()
        topic_id = image.topics_by_name.get(topic)
        known = None if topic_id is None else image.partition(topic_id, index)
        name = f"{topic}-{index}"
        if known is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {name}")
        if self.log_manager.is_offline(topic, index) or (topic_id, index) in self._lost:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {name} failed")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is not led here")

    def is_lost(self, topic_id: "Uuid", index: int) -> bool:
        """Whether the partition cannot be hosted because its log directory is offline."""
        return (topic_id, index) in self._lost

    @property
    def lost_count(self) -> int:
        """How many partitions cannot be hosted because their log directory is offline."""
        return len(self._lost)

    def replicas_offline(self, partition: "PartitionState") -> list[int]:
        """Replicas in an offline log directory of a registered broker."""
        brokers = self.image.brokers
        return [
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=False)
            if (broker := brokers.get(replica)) and not broker.has_online_directory(directory)
        ]

    # ---- appending

    def append_to(
        self,
        partition: HostedPartition,
        records: Any,
        *,
        acks: int,
        origin: Origin,
        prepared: "Prepared | None" = None,
    ) -> "AppendInfo":
        """Append one batch now; it may not be acknowledged yet (`HostedPartition.durable`).

        Raises:
            KafkaError: see `HostedPartition.append`; a disk failure is KAFKA_STORAGE_ERROR.
        """
        try:
            return partition.append(
                records, acks=acks, now_ms=self.clock.wall_ms(), origin=origin, prepared=prepared
            )
        except StorageFault as fault:
            raise self.on_disk_error(fault, partition) from fault

    def must_queue(self, partition: HostedPartition, records: Any) -> bool:
        """Whether a client's batch must go through `append_in_order`."""
        queues = self._appends.waiting
        return (queues and partition in queues) or is_heavy(
            records, partition.log.rules, self.env.work_max
        )

    def append_in_order(self, partition: HostedPartition, one: QueuedAppend) -> None:
        """Append a client's batch after those of its partition that wait (`append_queue`)."""
        self._appends.submit(partition, one)

    def _append_prepared(self, partition: HostedPartition, one: QueuedAppend) -> "AppendInfo":
        return self.append_to(
            partition, one.records, acks=one.acks, origin=Origin.CLIENT, prepared=one.prepared
        )

    # ---- following the image

    def on_image(self, image: "ClusterImage", changed_topics: "Iterable[Uuid] | None") -> None:
        """Follow a new image.

        Args:
            image: the new one.
            changed_topics: ids of topics that were created, changed, deleted or configured since
                the last image; None: any of them (a snapshot, a change of defaults).
        """
        before, self.image = self.image, image
        # Deleted topics first: a topic created again has the same name and directory.
        if changed_topics is None:
            self._work.append(self._follow_all(before, image))
        else:
            for topic_id in sorted(changed_topics, key=lambda each: each in image.topics_by_id):
                self._work.append(self._follow(topic_id, before.topics_by_id.get(topic_id)))
        self._step()

    @property
    def is_settled(self) -> bool:
        """Whether the logs match every image so far."""
        return not self._work and self._folders.is_idle

    async def settle(self) -> None:
        """Return when the logs match every image so far."""
        while not self.is_settled:
            done = asyncio.get_running_loop().create_future()
            self._settled.append(done)
            await done

    def _step(self) -> None:
        """Work for what is left of this iteration's slice; the next one continues."""
        if self._working:
            return
        self._working = True
        turn = self._turn
        if turn is None:  # the first in this iteration
            turn = self._turn = self.env.turn(self.env.work_max.folders)
            asyncio.get_running_loop().call_soon(self._next_iteration)
        try:
            while self._work and not turn.is_over(0):
                if next(self._work[0], self) is self:
                    self._work.popleft()
                turn.is_over(1)
        finally:
            self._working = False
        self._maybe_settled()

    def _maybe_settled(self) -> None:
        if not self.is_settled:
            return
        for done in self._settled:
            if not done.done():
                done.set_result(None)
        self._settled.clear()

    def _next_iteration(self) -> None:
        """Continue with the work that is left."""
        self._turn = None
        if self._work:
            self._step()

    def _follow_all(
        self, before: "ClusterImage", image: "ClusterImage"
    ) -> "Generator[object, None, None]":
        """Bring the logs of all topics up to the newest image; a topic is a step, too."""
        was, now = before.topics_by_id, image.topics_by_id
        for topic_id in (yield from in_order(each for each in was if each not in now)):
            yield from self._follow(topic_id, was[topic_id])
            yield 1
        for topic_id in (yield from in_order(now)):
            yield from self._follow(topic_id, was.get(topic_id))
            yield 1

    def _follow(self, topic_id: "Uuid", before: "Topic | None") -> Iterator[None]:
        """Bring one topic's logs up to the newest image, one partition per step."""
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
        """Give a partition the role of the image, now or as soon as its log exists."""
        hosted = self._by_id.get((topic.id, index))
        if hosted is None:
            key = (topic.name, index)
            ready = None
            if not self._folders.is_busy(key):
                ready = self.log_manager.ready(*key, known_id(topic.id))
            if ready is None or _has_leftovers(ready, self.log_manager.log_config(values)):
                self._submit_creation(topic, index)
                return
            hosted = self._register(topic, index, ready)
        self._give_role(hosted, partition, values)

    def _give_role(
        self, hosted: HostedPartition, partition: "PartitionState", values: dict[str, Any]
    ) -> None:
        self._lost.discard((hosted.topic_id, hosted.index))
        config = self.log_manager.log_config(values)
        hosted.configure(config, min_insync=values["min.insync.replicas"])
        for listener in self.placement_listeners:
            listener(hosted, partition.directory(self._node_id))
        was_leader, was_follower = hosted.is_leader, hosted.is_follower
        if hosted.apply(partition, local_id=self._node_id):
            self._on_new_role(hosted, was_leader=was_leader, was_follower=was_follower)

    def _on_new_role(
        self, hosted: HostedPartition, *, was_leader: bool, was_follower: bool
    ) -> None:
        if was_follower or hosted.is_follower:
            self._notify_fetchers(hosted, hosted.leader_id if hosted.is_follower else None)
        if was_leader or hosted.is_leader:
            self._notify_leadership(hosted, hosted.leader_epoch if hosted.is_leader else None)
        if hosted.is_follower and (hosted.topic, hosted.index) in self.log_manager.damage.reads:
            self._drop_damaged(hosted)  # the damage was found while it led

    def _register(self, topic: "Topic", index: int, made: "PartitionLog") -> HostedPartition:
        traffic = self.traffic.join(topic.name)
        hosted = HostedPartition(self, topic.name, topic.id, index, made, traffic)
        self._hosted[topic.name, index] = hosted
        self._by_id[topic.id, index] = hosted
        return hosted

    def _submit_creation(self, topic: "Topic", index: int) -> None:
        if (topic.id, index) not in self._making:
            self._making.add((topic.id, index))
            self._folders.submit((topic.name, index), self._create(topic.id, topic.name, index))

    def _create(self, topic_id: "Uuid", name: str, index: int) -> "Steps[None]":
        """Create a partition's log, and host it if the image still assigns it here."""
        try:
            yield from self._make(topic_id, name, index)
        except StorageFault as fault:
            self._lost.add((topic_id, index))
            self._on_storage_fault(fault)
        except KafkaError as error:
            if (topic_id, index) not in self._lost:
                log.warning("Cannot host %s-%d: %s", name, index, error)
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._lost.add((topic_id, index))
        finally:
            self._making.discard((topic_id, index))

    def _make(self, topic_id: "Uuid", name: str, index: int) -> "Steps[None]":
        topic, partition = self._assigned(topic_id, index)
        if topic is None or partition is None:
            return
        made = yield from self._make_log(topic, index, partition)
        # Meanwhile the topic may have been deleted, reassigned, elected or configured.
        topic, partition = self._assigned(topic_id, index)
        if topic is None or partition is None:
            yield from self.log_manager.deletion(name, index)
            return
        if made.fault is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(made.fault))
        values = self.topic_configs.of(self.image, name)
        self._give_role(self._register(topic, index, made), partition, values)

    def is_assigned(self, topic_id: "Uuid", index: int) -> bool:
        """Whether the newest image has a replica of the partition here."""
        return self._assigned(topic_id, index)[0] is not None

    def _assigned(
        self, topic_id: "Uuid", index: int
    ) -> "tuple[Topic, PartitionState] | tuple[None, None]":
        """The topic and the partition in the newest image, if it has a replica here."""
        topic = self.image.topics_by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        if topic is None or partition is None or self._node_id not in partition.replicas:
            return None, None
        return topic, partition

    def _make_log(
        self, topic: "Topic", index: int, partition: "PartitionState"
    ) -> "Steps[PartitionLog]":
        known = self.log_manager.get(topic.name, index)
        if known is not None and not is_same_topic(known.topic_id or topic.id, topic.id):
            log.warning("Setting %s aside: it belongs to a deleted topic of the same name", known)
            yield from self.log_manager.mark_stray(topic.name, index)
        if (topic.name, index) in self.log_manager.damaged and self._is_spare(partition):
            log.warning(
                "Setting damaged %s-%d aside; fetching it again from node %d",
                topic.name,
                index,
                partition.leader,
            )
            yield from self.log_manager.damage.set_aside(topic.name, index)
        config = self.log_manager.log_config(self.topic_configs.of(self.image, topic.name))
        made = yield from self.log_manager.creation(
            topic.name,
            index,
            known_id(topic.id),
            config,
            directory_id=partition.directory(self._node_id),
        )
        if _has_leftovers(made, config):
            log_dir = self.log_manager.dirs.of(made)
            yield DiskJob(log_dir, f"sync {made.name}", made.flush)
            log_dir.require_online()
        return made

    def _is_spare(self, partition: "PartitionState") -> bool:
        """Whether another broker leads, and this replica is in neither the ISR nor the ELR."""
        here = self._node_id
        counted = here in partition.isr or here in partition.elr
        return partition.leader not in {-1, here} and not counted

    def on_damaged(self, damaged: "PartitionLog") -> None:
        """Report damage that a reader found; drop a damaged follower, to be created again.

        It is withdrawn from the ISR first (by a `DamageListener`). A damaged leader keeps serving
        its intact records until it becomes a follower: other replicas may lack some of them.
        """
        detail = self.log_manager.damage.reads[damaged.topic, damaged.partition]
        hosted = self._hosted.get((damaged.topic, damaged.partition))
        log.error("The replica of %s is damaged: %s", damaged.name, detail)
        if hosted is not None and hosted.log is damaged and hosted.is_follower:
            self._drop_damaged(hosted)

    def _drop_damaged(self, hosted: HostedPartition) -> None:
        """Stop hosting a damaged follower."""
        self.forget(hosted)
        self._lost.add((hosted.topic_id, hosted.index))
        self.log_manager.damage.give_up(hosted.log)
        for listener in self.damage_listeners:
            listener(hosted)

    def maybe_shrink_isrs(self) -> None:
        """Let leaders remove followers that have fallen behind (Kafka's `maybeShrinkIsr`)."""
        now_ms = self.clock.mono_ms()
        for hosted in list(self.all_hosted()):
            hosted.maybe_shrink_isr(now_ms)

    async def set_strays_aside(self) -> None:
        """Rename logs of earlier runs that are not assigned to this broker; once caught up."""
        await set_strays_aside(self, assigned_in_image(self))

    def _drop(self, hosted: HostedPartition) -> None:
        """Stop hosting a partition and delete its log."""
        self.forget(hosted)
        self.in_folders(hosted.topic, hosted.index, self._delete(hosted))

    def _delete(self, hosted: HostedPartition) -> "Steps[None]":
        # Else it was set aside already, and the name belongs to a new topic.
        if self.log_manager.get(hosted.topic, hosted.index) is hosted.log:
            yield from self.log_manager.deletion(hosted.topic, hosted.index)

    def delete(self, topic: str, index: int) -> "asyncio.Future[bool]":
        """Stop hosting a partition and delete its log, hosted or not; False if the disk failed."""
        hosted = self._hosted.get((topic, index))
        if hosted is not None:
            self.forget(hosted)
        return self.in_folders(topic, index, self._delete_all(topic, index))

    def _delete_all(self, topic: str, index: int) -> "Steps[None]":
        hosted = self._hosted.get((topic, index))
        if hosted is not None:  # its log was being created
            self.forget(hosted)
        yield from self.log_manager.deletion(topic, index)

    def in_folders(self, topic: str, index: int, steps: "Steps[Any]") -> "asyncio.Future[bool]":
        """Carry out work on the folders of a partition, after all that was submitted before.

        The result is False if a disk failed, whose directory is offline then.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._folders.submit((topic, index), self._guarded(steps, done))
        return done

    def _guarded(self, steps: "Steps[Any]", done: "asyncio.Future[bool]") -> "Steps[None]":
        is_done = False
        try:
            yield from steps
            is_done = True
        except StorageFault as fault:
            self._on_storage_fault(fault)
        if not done.done():
            done.set_result(is_done)

    async def close_folders(self) -> None:
        """Return when no thread works on folders; nothing is created or deleted any more."""
        await self._folders.close()

    def forget(self, hosted: HostedPartition) -> None:
        """Stop hosting a partition; its files stay."""
        if self._by_id.pop((hosted.topic_id, hosted.index), None) is not None:
            self.traffic.leave(hosted.topic, hosted)
        if self._hosted.get((hosted.topic, hosted.index)) is hosted:
            del self._hosted[hosted.topic, hosted.index]
        was_leader, was_follower = hosted.is_leader, hosted.is_follower
        hosted.end()
        if was_follower:
            self._notify_fetchers(hosted, None)
        if was_leader:
            self._notify_leadership(hosted, None)

    def identify(self, topic: str, index: int, topic_id: "Uuid") -> bool:
        """Host a partition under another id of its topic; its role stays (KIP-516).

        In ZooKeeper mode a topic may get an id that it did not have. Returns whether the log did.
        """
        hosted = self._hosted.get((topic, index))
        if hosted is None:
            return False
        if hosted.is_follower:
            self._notify_fetchers(hosted, None)
        del self._by_id[hosted.topic_id, index]
        hosted.identify(topic_id)
        self._by_id[topic_id, index] = hosted
        if hosted.is_follower:
            self._notify_fetchers(hosted, hosted.leader_id)
        own_id = known_id(topic_id)
        if own_id is None or hosted.log.topic_id is not None:
            return False
        hosted.log.set_topic_id(own_id)
        self.in_folders(topic, index, self._write_metadata(hosted.log))
        return True

    def _write_metadata(self, known: "PartitionLog") -> "Steps[None]":
        operation = f"write partition.metadata of {known.name}"
        yield DiskJob(self.log_manager.dirs.of(known), operation, known.write_metadata)

    def _notify_fetchers(self, hosted: HostedPartition, leader_id: int | None) -> None:
        for listener in self.fetcher_listeners:
            listener(hosted, leader_id, hosted.leader_epoch)

    def _notify_leadership(self, hosted: HostedPartition, epoch: int | None) -> None:
        for listener in self.leadership_listeners:
            listener(hosted.topic, hosted.index, epoch)

    # ---- disks

    async def keep_log_starts(self) -> None:
        """Write the log start offsets that moved; a directory whose disk fails goes offline."""
        await self._disk_steps.carry_out(self.log_manager.moved_starts_steps())

    def off_loop(self, work: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        """Run blocking disk work in the executor."""
        return asyncio.get_running_loop().run_in_executor(self.env.executor, work, *arguments)

    def _in_folder_thread(self, work: Callable[..., Result], *arguments: Any) -> Awaitable[Result]:
        executor = self.env.folder_executor or self.env.executor
        if self.env.shares_time:
            return run_with_share(executor, work, *arguments)
        return asyncio.get_running_loop().run_in_executor(executor, work, *arguments)

    def on_disk_error(self, error: Exception, partition: HostedPartition) -> KafkaError:
        """Take the log dir offline; returns the error for the client."""
        if isinstance(error, StorageFault):
            self._on_storage_fault(error)
        else:
            log.error("A disk operation on %s failed", partition, exc_info=error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {partition} failed")

    def drop_log_dir(self, log_dir: str) -> None:
        """Stop hosting every partition of a log dir that went offline."""
        for hosted in [h for h in self._hosted.values() if h.log.log_dir == log_dir]:
            self._lost.add((hosted.topic_id, hosted.index))
            self.forget(hosted)


def _has_leftovers(log: "PartitionLog", config: "LogConfig") -> bool:
    """Whether a killed process left records in the page cache that must be synced before use.

    If the topic's configs require fsyncs: a follower acknowledges its log end offset with its first
    fetch, and a leader counts its own.
    """
    return log.unflushed_messages >= config.flush_messages

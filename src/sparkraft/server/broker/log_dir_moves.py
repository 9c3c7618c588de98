"""Moves replicas between this broker's log directories (AlterReplicaLogDirs, KIP-113, KIP-858).

    alter → create copy → steps of replica.fetch.max.bytes → caught up → AssignReplicasToDirs
          → the image shows the new directory → caught up again → the copy's folder gets its final
          name → caught up again → swap, in one event-loop iteration → the old folder goes

One replica at a time is copied, in the order of topic and partition, as in Kafka: it finishes
sooner, and the disks read sequentially. Others may meanwhile wait for the controller. Copying
continues while the replica is written, truncated or elected, and after a restart.

In ZooKeeper mode the controller knows no directories, and a copy that has caught up is swapped in
at once, as in Kafka 3.9 (`ReplicaAlterLogDirsThread`).

A move is abandoned when its copy's directory fails, the replica is assigned another directory, or
is removed. If the controller may know the new directory already, the old one is reported again.

The rules are in `sparkraft.replication.directory_move`, the files are
`sparkraft.storage.future_logs`'s.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.placeholder_ids import is_same_topic
from sparkraft.metadata.features import DIRECTORIES_LEVEL
from sparkraft.metadata.image import ResourceType
from sparkraft.replication.directory_move import DirectoryMove, Next
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.names import FUTURE_MARK, marked_dir

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.server.broker.directory_assignments import DirectoryAssignments
    from sparkraft.server.broker.metadata_cache import MetadataCache
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.replica_manager import ReplicaManager
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.storage.log import PartitionLog
    from sparkraft.storage.log_dir import Steps
    from sparkraft.storage.log_manager import LogManager

log = logging.getLogger(__name__)

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
"""A dynamic config only, of this broker or of all."""

RATE_CHECK_MS = 500
"""How often a throttled copy checks for a new rate: at a low rate it would sleep long."""

STEPS_BEFORE_SWAP_MAX = 16
"""Chunks copied in the iteration of the swap; a copy that lacks more is not caught up."""

NAME_MAX = 255
"""Of a file name: a topic's name may be too long for a directory with a suffix (KAFKA-4893)."""

WAIT_MS_MAX = 60_000
"""The longest sleep without being woken; a safety net."""


class Move:
    """One replica being moved."""

    __slots__ = ("core", "hosted", "retry_at_ms", "target")

    def __init__(
        self, hosted: "HostedPartition", core: DirectoryMove, target: "Uuid | None"
    ) -> None:
        """Move `hosted` to the directory with the id `target`; None in ZooKeeper mode."""
        self.hosted = hosted
        self.core = core
        self.target = target
        self.retry_at_ms = 0

    def retry_at(self, at_ms: int) -> None:
        self.retry_at_ms = at_ms


class LogDirMoves:
    """Every move of this broker; `run` is one task."""

    def __init__(  # noqa: PLR0913 (every collaborator, by name)
        self,
        config: "NodeConfig",
        env: "Env",
        *,
        metadata: "MetadataCache",
        log_manager: "LogManager",
        replica_manager: "ReplicaManager",
        assignments: "DirectoryAssignments",
        reports_directories: bool = True,
    ) -> None:
        """Move nothing yet.

        Args:
            config: static configs of the node.
            env: clock, entropy.
            metadata: has the newest image.
            log_manager: of the node.
            replica_manager: hosts the replicas.
            assignments: reports directories to the controller.
            reports_directories: whether the controller knows the directories of replicas.
        """
        self._reports_directories = reports_directories
        self._node_id = config.node_id
        self._clock = env.clock
        self._entropy = env.entropy
        self._metadata = metadata
        self._log_manager = log_manager
        self._replicas = replica_manager
        self._assignments = assignments
        self._moves: dict[tuple[str, int], Move] = {}
        self._wake = asyncio.Event()
        self._chunk = config.number("replica.fetch.max.bytes")
        self._backoff_ms = config.number("replica.fetch.backoff.ms")
        self._free_at_ms = 0.0
        """When the bytes copied so far are within the rate."""

    # ---- requests

    async def alter(self, topic: str, index: int, path: str) -> None:
        """Start to move a replica to a directory, or remember it for a replica not created yet.

        Returns once the copy exists.

        Raises:
            KafkaError: LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR if the directory, another one or
                the replica is offline; INVALID_REPLICA_ASSIGNMENT if the directory is cordoned;
                INVALID_TOPIC_EXCEPTION if the topic's name is too long for a suffix;
                REPLICA_NOT_AVAILABLE if the replica is not here (yet);
                UNKNOWN_TOPIC_OR_PARTITION if no broker has one.
        """
        self._check_path(topic, index, path)
        if self._replicas.hosted(topic, index) is None:
            if self._log_manager.is_offline(topic, index):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is offline")
            self._log_manager.prefer_directory(topic, index, path)
            image = self._metadata.image
            topic_id = image.topics_by_name.get(topic)
            if topic_id is None or image.partition(topic_id, index) is None:
                unknown = f"there is no {topic}-{index}"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown)
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic}-{index} is not here")
        refusals: list[KafkaError] = []
        steps = self._alter(topic, index, path, refusals)
        if not await self._replicas.in_folders(topic, index, steps):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {path} failed")
        if refusals:
            raise refusals[0]

    def _alter(
        self, topic: str, index: int, path: str, refusals: list[KafkaError]
    ) -> "Steps[None]":
        """Create the copy, and begin the move if nothing has changed meanwhile."""
        key = (topic, index)
        move = self._moves.get(key)
        if move is not None and self._directory_of(move).log_dir != path:
            self.end(key, "it is moved to another directory", drop=True)
        hosted = self._replicas.hosted(*key)
        if hosted is not None and (hosted.log.log_dir == path or key in self._moves):
            return
        if hosted is not None and not self._log_manager.offline_directories:
            copy = yield from self._log_manager.futures.create(hosted.log, path)
            if self._replicas.hosted(*key) is hosted:
                self._begin(hosted, copy)
                return
            yield from self._log_manager.futures.drop(*key)
        if self._log_manager.offline_directories:
            # One of them may have an older copy; there must not be two.
            why = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a log directory is offline")
        else:
            why = KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic}-{index} was removed")
        refusals.append(why)

    def _check_path(self, topic: str, index: int, path: str) -> None:
        unique = random_uuid(self._entropy)
        if len(marked_dir("", index, unique, FUTURE_MARK)) + len(topic) > NAME_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long")
        manager = self._log_manager
        found = [directory for directory in manager.directories if directory.path == path]
        if not found:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not a log directory")
        if found[0].fault is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        if path in manager.cordoned:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned")

    def _begin(self, hosted: "HostedPartition", copy: "PartitionLog") -> Move:
        target = self._log_manager.directory(copy.log_dir).directory_id
        level = self._metadata.image.metadata_version
        reports = self._reports_directories and level >= DIRECTORIES_LEVEL
        core = DirectoryMove(hosted.log, copy, tell_cluster=reports)
        self._moves[hosted.topic, hosted.index] = move = Move(hosted, core, target)
        log.info("Moving %s from %s to %s", hosted, hosted.log.log_dir, copy.log_dir)
        self._wake.set()
        return move

    # ---- events

    def on_placement(self, hosted: "HostedPartition", known: bytes) -> None:
        """A `PlacementListener`: the image has `hosted` in the directory `known`."""
        self._follow_placement(hosted, known)
        if self._reports_directories:
            self._assignments.note(hosted, known, self._actual_directory(hosted))

    def _follow_placement(self, hosted: "HostedPartition", known: bytes) -> None:
        key = (hosted.topic, hosted.index)
        move = self._moves.get(key)
        if move is not None and move.hosted is not hosted:
            self.end(key, "the replica was recreated", drop=False)
            move = None
        if move is None:
            copy = self._log_manager.futures.get(*key)
            if copy is None or copy.fault is not None:
                return
            if not is_same_topic(copy.topic_id or hosted.topic_id, hosted.topic_id):
                self._drop_copy(key)  # of an older topic of that name
                return
            move = self._begin(hosted, copy)
        if known == move.target:
            move.core.on_accepted()
            self._wake.set()

    def on_truncated(self, hosted: "HostedPartition", offset: int) -> None:
        """Truncate a replica's copy too, once the replica's own truncation is final."""
        move = self._moves.get((hosted.topic, hosted.index))
        if move is not None:
            move.core.on_truncated(offset)
            self._wake.set()

    def on_directory_failed(self) -> None:
        """Check every move: a log directory went offline, with replicas or copies."""
        self._wake.set()

    def _actual_directory(self, hosted: "HostedPartition") -> "Uuid | None":
        """The directory to report: a move's target once its copy has caught up, else its own."""
        move = self._moves.get((hosted.topic, hosted.index))
        if move is not None and move.core.may_be_known:
            return move.target
        for directory in self._log_manager.directories:
            if directory.path == hosted.log.log_dir:
                return directory.directory_id
        return None

    def in_order(self) -> list[Move]:
        """Every running move, by topic and partition."""
        return [self._moves[key] for key in sorted(self._moves)]

    def end(self, key: tuple[str, int], why: str, *, drop: bool) -> None:
        """Abandon a move; `drop`: and delete its copy."""
        move = self._moves.pop(key)
        log.info("Abandoned the move of %s: %s", move.hosted, why)
        if drop:
            self._drop_copy(key)
        if move.core.may_be_known:
            self._report_directory(move)

    def _drop_copy(self, key: tuple[str, int]) -> None:
        """Use a copy no more, from now on, and delete its files."""
        futures = self._log_manager.futures
        copy = futures.take_out(*key)
        if copy is not None:
            self._replicas.in_folders(*key, futures.discard(copy))

    def _report_directory(self, move: Move) -> None:
        """Report the replica's directory to the controller, if it does not know it."""
        if not self._reports_directories:
            return
        hosted = move.hosted
        partition = self._metadata.image.partition(hosted.topic_id, hosted.index)
        if partition is not None and self._node_id in partition.replicas:
            known = partition.directory(self._node_id)
            self._assignments.note(hosted, known, self._actual_directory(hosted))

    @staticmethod
    def _directory_of(move: Move) -> "PartitionLog":
        copy: PartitionLog = move.core.copy  # type: ignore[assignment]
        return copy

    # ---- the work

    async def run(self) -> None:
        """Move replicas until cancelled."""
        while True:
            self._wake.clear()
            for key in sorted(self._moves):
                if key in self._moves:
                    await self._advance(key)
            await self._rest()

    async def _rest(self) -> None:
        now = self._clock.mono_ms()
        due = [move.retry_at_ms for move in self._moves.values() if move.retry_at_ms > now]
        wait_ms = min(min(due, default=now + WAIT_MS_MAX) - now, WAIT_MS_MAX)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _advance(self, key: tuple[str, int]) -> None:
        """Copy until the replica has caught up, or must wait."""
        clock = self._clock
        while (move := self._moves.get(key)) is not None:
            if move.retry_at_ms > clock.mono_ms() or not self._is_possible(key, move):
                return
            before = move.core.copied_bytes
            after = self._step(key, move)
            if after is None or after is Next.WAIT:
                return
            if after is Next.ASSIGN:
                self._report_directory(move)
            elif after is Next.SWAP:
                await self._swap(key, move)
                return
            await self._pace(move.core.copied_bytes - before)

    def _is_possible(self, key: tuple[str, int], move: Move) -> bool:
        hosted = move.hosted
        if self._directory_of(move).fault is not None:
            self.end(key, "its new directory failed", drop=True)
        elif self._replicas.hosted(*key) is not hosted:
            self.end(key, "the replica was removed", drop=False)
        return key in self._moves

    def _step(self, key: tuple[str, int], move: Move) -> Next | None:
        try:
            return move.core.step(self._chunk)
        except StorageFault as fault:
            self._replicas.on_disk_error(fault, move.hosted)
        except KafkaError as error:
            log.warning("Moving %s failed and will be retried: %s", move.hosted, error)
        move.retry_at(self._clock.mono_ms() + self._backoff_ms)
        return None

    async def _pace(self, copied: int) -> None:
        """Yield to the event loop; sleep to keep within the rate, until the rate changes."""
        clock = self._clock
        rate = self._rate()
        self._free_at_ms = max(self._free_at_ms, clock.mono_ms())
        if rate is not None:
            self._free_at_ms += copied * 1000 / rate
        due_ms = self._free_at_ms  # other copies wait for this one
        while (left_ms := due_ms - clock.mono_ms()) > RATE_CHECK_MS:
            await asyncio.sleep(RATE_CHECK_MS / 1000)
            if self._rate() != rate:
                self._free_at_ms = due_ms = 0.0
        await asyncio.sleep(max(0.0, left_ms) / 1000)

    def _rate(self) -> int | None:
        image = self._metadata.image
        for name in (str(self._node_id), ""):
            text = (image.config(ResourceType.BROKER, name).get(RATE) or "").strip()
            if text.isascii() and text.isdigit():
                return max(int(text), 1)
        return None

    # ---- the swap

    async def _swap(self, key: tuple[str, int], move: Move) -> None:
        """Fsync and rename the copy off the loop, then replace the replica in one iteration."""
        copy = self._directory_of(move)
        try:
            await self._replicas.off_loop(copy.flush)
        except StorageFault as fault:
            self._replicas.on_disk_error(fault, move.hosted)
            return
        except KafkaError:
            return  # its directory is offline: the next step abandons the move
        if not await self._replicas.in_folders(*key, self._rename(key, move)):
            return
        if self._moves.get(key) is not move or not self._is_possible(key, move):
            return
        done = asyncio.get_running_loop().create_future()

        def take_over() -> "PartitionLog":
            swapped = self._take_over(key, move)
            if not done.done():
                done.set_result(None)
            return swapped

        move.hosted.replace_log(take_over)
        await done

    def _rename(self, key: tuple[str, int], move: Move) -> "Steps[None]":
        """Give the copy its final name; it is still a copy, and this task alone uses it."""
        if self._moves.get(key) is not move or not self._is_possible(key, move):
            return
        copy, topic_id = self._directory_of(move), move.hosted.log.topic_id
        if copy.topic_id is None and topic_id is not None:
            yield from self._log_manager.futures.identify(copy, topic_id)
        yield from self._log_manager.futures.rename(copy)

    def _take_over(self, key: tuple[str, int], move: Move) -> "PartitionLog":
        """The log to continue with: the copy, or the replica's own if the copy is not ready."""
        hosted, manager = move.hosted, self._log_manager
        replica, copy = hosted.log, self._directory_of(move)
        if self._moves.get(key) is not move or not self._is_possible(key, move):
            return replica
        if not self._catch_up(key, move):
            self._wake.set()
            return replica
        try:
            if copy.recovery_point < replica.recovery_point:
                copy.flush()  # records acknowledged as synced must be synced in the copy too
        except (StorageFault, KafkaError) as error:
            del self._moves[key]
            self._replicas.on_disk_error(error, hosted)
            return replica
        del self._moves[key]
        old = manager.futures.switch(copy)
        self._replicas.in_folders(*key, manager.futures.finish(copy, old))
        log.info("Moved %s to %s, %d bytes", hosted, copy.log_dir, move.core.copied_bytes)
        return copy

    def _catch_up(self, key: tuple[str, int], move: Move) -> bool:
        """Copy the records appended during the fsync; whether that was all."""
        for _ in range(STEPS_BEFORE_SWAP_MAX):
            after = self._step(key, move)
            if after is not Next.MORE:
                return after is Next.SWAP
        return False

"""Moves replicas between this broker's log directories (AlterReplicaLogDirs, KIP-113, KIP-858).

    alter → copy made → steps of replica.fetch.max.bytes → caught up → AssignReplicasToDirs
          → the image shows the new directory → caught up again → swap, within one turn of the loop

One replica at a time is copied, in the order of topic and partition, as in Kafka: that one is done
sooner, and the disks read in order. Others may meanwhile wait for the controller. The copy goes on
while the replica is written, truncated, elected; a restart finds the copy and goes on with it.

A move ends early when its copy's directory fails, the replica is given another directory, or goes.
Where the cluster may have heard of the new directory already, it is told of the old one again.

The rules are `sparkraft.replication.directory_move`'s, the files `sparkraft.storage.future_logs`'s.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.features import DIRECTORIES_LEVEL
from sparkraft.metadata.image import ResourceType
from sparkraft.replication.directory_move import DirectoryMove, Next
from sparkraft.storage.disk import StorageFault
from sparkraft.storage.names import FUTURE_MARK, marked_dir

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.services import BrokerServices
    from sparkraft.storage.log import PartitionLog

log = logging.getLogger(__name__)

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
"""Only a dynamic config, of this broker or of all."""

RATE_CHECK_MS = 500
"""How often a copy that waits looks whether the rate has changed: at a low one it waits long."""

STEPS_BEFORE_SWAP_MAX = 16
"""Chunks copied in the turn of the swap; a replica that is farther ahead is not caught up."""

NAME_MAX = 255
"""Of a file system: a topic's name may be too long for a folder that is marked (KAFKA-4893)."""

WAIT_MS_MAX = 60_000
"""The longest sleep if nobody calls; it would do for ever."""


class Move:
    """One replica on its way."""

    __slots__ = ("core", "hosted", "retry_at_ms", "target")

    def __init__(self, hosted: "HostedPartition", core: DirectoryMove, target: "Uuid") -> None:
        """`target`: id of the directory it goes to."""
        self.hosted = hosted
        self.core = core
        self.target = target
        self.retry_at_ms = 0


class LogDirMoves:
    """Every move of this broker; `run` is one task."""

    def __init__(self, broker: "BrokerServices") -> None:
        """None yet."""
        self._broker = broker
        self._moves: dict[tuple[str, int], Move] = {}
        self._wake = asyncio.Event()
        self._chunk = broker.config.number("replica.fetch.max.bytes")
        self._backoff_ms = broker.config.number("replica.fetch.backoff.ms")
        self._free_at_ms = 0.0
        """When what was copied so far is within the rate."""

    # -- asked for -------------------------------------------------------------------------------

    def alter(self, topic: str, index: int, path: str) -> None:
        """Put a replica into a directory: begin to move it, or remember that for when it comes.

        Raises:
            KafkaError: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR where the directory, another one or
                the replica is offline, INVALID_REPLICA_ASSIGNMENT where it is cordoned,
                INVALID_TOPIC_EXCEPTION where the topic's name is too long to be marked,
                REPLICA_NOT_AVAILABLE where the replica isn't here (yet).
        """
        self._check_path(topic, index, path)
        manager = self._broker.log_manager
        hosted = self._broker.replica_manager.hosted(topic, index)
        key = (topic, index)
        move = self._moves.get(key)
        if move is not None and self._directory_of(move).log_dir != path:
            self.end(key, "it is to go elsewhere", drop=True)
        if hosted is None:
            if manager.is_offline(topic, index):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} is offline")
            manager.prefer_directory(*key, path)
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic}-{index} is not here")
        if hosted.log.log_dir == path or key in self._moves:
            return
        if manager.offline_directories:
            # A copy may lie in one of them, from before; there must not be two.
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a log directory is offline")
        try:
            copy = manager.futures.create(hosted.log, path)
        except StorageFault as fault:
            raise self._broker.replica_manager.on_disk_error(fault, hosted) from fault
        self._begin(hosted, copy)

    def _check_path(self, topic: str, index: int, path: str) -> None:
        unique = random_uuid(self._broker.env.entropy)
        if len(marked_dir("", index, unique, FUTURE_MARK)) + len(topic) > NAME_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long")
        manager = self._broker.log_manager
        found = [directory for directory in manager.directories if directory.path == path]
        if not found:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of the log directories")
        if found[0].fault is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        if path in manager.cordoned:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned")

    def _begin(self, hosted: "HostedPartition", copy: "PartitionLog") -> Move:
        target = self._broker.log_manager.directory(copy.log_dir).directory_id
        assert target is not None, "a directory that is online has an id"
        level = self._broker.replica_manager.image.metadata_version
        core = DirectoryMove(hosted.log, copy, tell_cluster=level >= DIRECTORIES_LEVEL)
        self._moves[hosted.topic, hosted.index] = move = Move(hosted, core, target)
        log.info("%s moves from %s to %s", hosted, hosted.log.log_dir, copy.log_dir)
        self._wake.set()
        return move

    # -- told ------------------------------------------------------------------------------------

    def note(self, hosted: "HostedPartition", known: bytes) -> None:
        """A placement listener: the image says that the replica lies in `known`."""
        key = (hosted.topic, hosted.index)
        move = self._moves.get(key)
        if move is not None and move.hosted is not hosted:
            self.end(key, "its replica was made anew", drop=False)
            move = None
        if move is None:
            copy = self._broker.log_manager.futures.get(*key)
            if copy is None or copy.fault is not None:
                return
            if copy.topic_id != hosted.topic_id:
                self._broker.log_manager.futures.drop(*key)  # of an older topic of that name
                return
            move = self._begin(hosted, copy)
        if known == move.target:
            move.core.on_accepted()
            self._wake.set()

    def on_truncated(self, hosted: "HostedPartition", offset: int) -> None:
        """A replica was truncated for good: its copy follows."""
        move = self._moves.get((hosted.topic, hosted.index))
        if move is not None:
            move.core.on_truncated(offset)
            self._wake.set()

    def on_directory_failed(self) -> None:
        """A log directory went offline, with replicas or copies."""
        self._wake.set()

    def told_directory(self, hosted: "HostedPartition") -> "Uuid | None":
        """The directory the cluster is to take `hosted` to be in, where a move changes that."""
        move = self._moves.get((hosted.topic, hosted.index))
        return move.target if move is not None and move.core.may_be_known else None

    def in_order(self) -> list[Move]:
        """Every move under way, by topic and partition."""
        return [self._moves[key] for key in sorted(self._moves)]

    def end(self, key: tuple[str, int], why: str, *, drop: bool) -> None:
        """Give a move up; `drop`: and its copy."""
        move = self._moves.pop(key)
        log.info("%s stays where it is: %s", move.hosted, why)
        if drop:
            try:
                self._broker.log_manager.futures.drop(*key)
            except StorageFault as fault:
                self._broker.replica_manager.on_disk_error(fault, move.hosted)
        if move.core.may_be_known:
            self._tell_directory(move)

    def _tell_directory(self, move: Move) -> None:
        """Let the controller hear where the replica lies, if it doesn't know."""
        hosted = move.hosted
        image = self._broker.replica_manager.image
        partition = image.partition(hosted.topic_id, hosted.index)
        node_id = self._broker.node_id
        if partition is not None and node_id in partition.replicas:
            self._broker.directory_assignments.note(hosted, partition.directory(node_id))

    @staticmethod
    def _directory_of(move: Move) -> "PartitionLog":
        copy: PartitionLog = move.core.copy  # type: ignore[assignment]
        return copy

    # -- the work --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Move replicas until cancelled."""
        while True:
            self._wake.clear()
            for key in sorted(self._moves):
                if key in self._moves:
                    await self._advance(key)
            await self._rest()

    async def _rest(self) -> None:
        now = self._broker.clock.mono_ms()
        due = [move.retry_at_ms for move in self._moves.values() if move.retry_at_ms > now]
        wait_ms = min(min(due, default=now + WAIT_MS_MAX) - now, WAIT_MS_MAX)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _advance(self, key: tuple[str, int]) -> None:
        """Copy until the replica has caught up, or must wait."""
        clock = self._broker.clock
        while (move := self._moves.get(key)) is not None:
            if move.retry_at_ms > clock.mono_ms() or not self._is_possible(key, move):
                return
            before = move.core.copied_bytes
            after = self._step(key, move)
            if after is None or after is Next.WAIT:
                return
            if after is Next.ASSIGN:
                self._tell_directory(move)
            elif after is Next.SWAP:
                await self._swap(key, move)
                return
            await self._pace(move.core.copied_bytes - before)

    def _is_possible(self, key: tuple[str, int], move: Move) -> bool:
        hosted = move.hosted
        if self._directory_of(move).fault is not None:
            self.end(key, "the directory it was to go to failed", drop=True)
        elif self._broker.replica_manager.hosted(*key) is not hosted:
            self.end(key, "the replica is gone", drop=False)
        return key in self._moves

    def _step(self, key: tuple[str, int], move: Move) -> Next | None:
        try:
            return move.core.step(self._chunk)
        except StorageFault as fault:
            self._broker.replica_manager.on_disk_error(fault, move.hosted)
        except KafkaError as error:
            log.warning("Moving %s fails, and is tried again: %s", move.hosted, error)
        move.retry_at_ms = self._broker.clock.mono_ms() + self._backoff_ms
        return None

    async def _pace(self, copied: int) -> None:
        """Let others have their turn; keep within the rate, for as long as that is the rate."""
        clock = self._broker.clock
        rate = self._rate()
        self._free_at_ms = max(self._free_at_ms, clock.mono_ms())
        if rate is not None:
            self._free_at_ms += copied * 1000 / rate
        due_ms = self._free_at_ms  # other copies take their turns behind it
        while (left_ms := due_ms - clock.mono_ms()) > RATE_CHECK_MS:
            await asyncio.sleep(RATE_CHECK_MS / 1000)
            if self._rate() != rate:
                self._free_at_ms = due_ms = 0.0
        await asyncio.sleep(max(0.0, left_ms) / 1000)

    def _rate(self) -> int | None:
        image = self._broker.replica_manager.image
        for name in (str(self._broker.node_id), ""):
            text = (image.config(ResourceType.BROKER, name).get(RATE) or "").strip()
            if text.isascii() and text.isdigit():
                return max(int(text), 1)
        return None

    # -- the swap --------------------------------------------------------------------------------

    async def _swap(self, key: tuple[str, int], move: Move) -> None:
        """Sync the copy off the loop, then let it take the replica's place in one turn."""
        copy = self._directory_of(move)
        try:
            await self._broker.replica_manager.off_loop(copy.flush)
        except StorageFault as fault:
            self._broker.replica_manager.on_disk_error(fault, move.hosted)
            return
        except KafkaError:
            return  # its directory is offline: the next turn ends the move
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

    def _take_over(self, key: tuple[str, int], move: Move) -> "PartitionLog":
        """The log that goes on: the copy, or the replica's where the copy can't yet."""
        hosted, manager = move.hosted, self._broker.log_manager
        replica, copy = hosted.log, self._directory_of(move)
        if self._moves.get(key) is not move or not self._catch_up(key, move):
            return replica
        try:
            if copy.recovery_point < replica.recovery_point:
                copy.flush()  # what was acknowledged as synced must be so in the new place
            manager.futures.swap_in(*key)
        except (StorageFault, KafkaError) as error:
            del self._moves[key]
            self._broker.replica_manager.on_disk_error(error, hosted)
            return manager.get(*key) or replica
        del self._moves[key]
        log.info("%s moved to %s, %d bytes", hosted, copy.log_dir, move.core.copied_bytes)
        return copy

    def _catch_up(self, key: tuple[str, int], move: Move) -> bool:
        """Copy what came during the sync; whether that was all."""
        for _ in range(STEPS_BEFORE_SWAP_MAX):
            after = self._step(key, move)
            if after is not Next.MORE:
                return after is Next.SWAP
        return False

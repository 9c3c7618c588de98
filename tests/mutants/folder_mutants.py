"""Planted bugs in the creation and renaming of folders by threads, seen by L1 or S10 alone."""

import asyncio
from typing import Any

from sparkraft.server.broker.folder_queue import FolderQueue
from sparkraft.server.broker.replica_manager import ReplicaManager
from sparkraft.storage.log_dir import DiskJob, Steps
from sparkraft.storage.log_table import LogTable
from sparkraft.storage.recovery import LogPlace, load_log
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

FOLDER_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(FOLDER_MUTANTS, tiers=NODES, isolated=True)


@_plant("folders are created and renamed on the event loop", "L1")
def _folders_on_the_event_loop() -> Patches:
    async def run_jobs(self: Any, jobs: Any) -> None:
        self._dirs.fail_jobs(self._dirs.attempt(jobs))

    return [(FolderQueue, "_run_jobs", run_jobs)]


class _Folder:
    """A disk on which the folder of a new log seems to exist, empty."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def listdir(self, path: str) -> list[str]:
        return self._disk.listdir(path) if self._disk.is_dir(path) else []


@_plant("a partition accepts records while its folder is still being created", "S10")
def _records_before_the_folder() -> Patches:
    original = LogTable._make_folder

    def make_folder(self: Any, log_dir: Any, name: str, *arguments: Any) -> Steps[Any]:
        key, topic_id, config = arguments
        steps = original(self, log_dir, name, *arguments)
        job = next(steps)
        assert isinstance(job, DiskJob)
        asyncio.get_running_loop().run_in_executor(None, job.work)
        place = LogPlace(
            log_dir=log_dir.path,
            directory=f"{log_dir.path}/{name}",
            topic=key[0],
            partition=key[1],
            clean=True,
        )
        disk: Any = _Folder(self._disk)
        log = load_log(disk, place, config, clock=self._clock, entropy=self._entropy)
        log.topic_id = topic_id
        yield 1
        return log

    return [(LogTable, "_make_folder", make_folder)]


@_plant("the renaming of a deleted partition's folder overtakes its creation", "S10")
def _renames_overtake_creations() -> Patches:
    def submit(self: Any, key: Any, steps: Any) -> None:
        self._unfinished[key] += 1
        self._spawn(self._carry_out({key: steps}, self._new_turn()), "folders of logs")

    return [(FolderQueue, "submit", submit)]


@_plant("a topic deleted while its folder is created is hosted all the same", "S10")
def _no_second_look_at_the_image() -> Patches:
    original = ReplicaManager._assigned

    def make(self: Any, topic_id: Any, name: str, index: int) -> Steps[None]:
        topic, partition = original(self, topic_id, index)
        if topic is not None and partition is not None:
            made = yield from self._make_log(topic, index, partition)
            values = self.topic_configs.of(self.image, name)
            self._give_role(self._register(topic, index, made), partition, values)

    return [(ReplicaManager, "_make", make)]

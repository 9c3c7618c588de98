"""The `ShardHost` of a runtime: one partition in memory, and a disk that syncs on demand."""

import asyncio
from types import SimpleNamespace
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.records.batch import parse_header
from sparkraft.server.coordinator.host import LogRange
from sparkraft.server.env import SystemClock
from sparkraft.server.loop_turns import LoopTurns, Turn
from tests.support.batches import patch_in_place


class StandingClock(SystemClock):
    """Shows no time that passes."""

    def mono_ms(self) -> Millis:
        return Millis(0)


class FakeHost:
    """A partition in memory; `sync_by_hand` makes every append wait for `sync`."""

    def __init__(self, metadata: Any) -> None:
        self.clock = SystemClock()
        self.metadata = metadata
        self.leader_epoch = 0
        self.batches: list[bytes] = []
        self.log_end_offset = 0
        self.refuse: ErrorCode | None = None
        self.sync_by_hand = False
        self.waiting: asyncio.Future[None] | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.turns = LoopTurns()
        self.units_max = LOOP_WORK_MAX.partitions

    def in_epoch(self, topic: str, index: int, epoch: int) -> "HostInEpoch":
        del topic
        assert index == 0
        return HostInEpoch(self, epoch)

    def append(self, batch: bytes) -> int:
        base = self.log_end_offset
        patched = bytearray(batch)
        patch_in_place(patched, base_offset=base, leader_epoch=0)
        self.batches.append(bytes(patched))
        self.log_end_offset = parse_header(patched).next_offset
        return base

    def until_synced(self) -> Any:
        if not self.sync_by_hand:
            return None
        if self.waiting is None:
            self.waiting = asyncio.get_running_loop().create_future()
        return self.waiting

    def sync(self, error: KafkaError | None = None) -> None:
        waiting, self.waiting = self.waiting, None
        assert waiting is not None
        if error is None:
            waiting.set_result(None)
        else:
            waiting.set_exception(error)


class HostInEpoch:
    """The `ShardHost` that the runtime of one leader epoch gets."""

    def __init__(self, fake: FakeHost, epoch: int) -> None:
        self.clock = fake.clock
        self.metadata = fake.metadata
        self._fake = fake
        self._epoch = epoch

    def turn(self) -> Turn:
        """Ends by units alone: how much a test does at once must not depend on the machine."""
        return Turn(self._fake.turns, StandingClock(), self._fake.units_max)

    def append(self, batch: bytes) -> Any:
        if self._fake.refuse is not None:
            raise KafkaError(self._fake.refuse)
        if self._fake.leader_epoch != self._epoch:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return SimpleNamespace(base_offset=self._fake.append(batch))

    def committed(self, _: Any) -> Any:
        return self._fake.until_synced()

    def committed_up_to(self, offset: int) -> Any:
        assert offset == self._fake.log_end_offset
        return self._fake.until_synced()

    def log_range(self) -> LogRange:
        return LogRange(0, self._fake.log_end_offset)

    def read(self, offset: int, *, end: int, max_bytes: int) -> bytes:
        del end, max_bytes
        return next(one for one in self._fake.batches if parse_header(one).last_offset >= offset)

    def spawn(self, work: Any, name: str) -> None:
        self._fake.tasks.append(asyncio.get_running_loop().create_task(work, name=name))

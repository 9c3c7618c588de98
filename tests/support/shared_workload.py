"""The simulator's clients at work on real processes: the same workload, judged by the same checks.

They run in a thread of their own, with real connections and real time (`simulation.workload`,
`simulation.client_env`): idempotent producers, one that never asks again, consumers, a group, a
compacted topic and one whose records last for seconds. What they demand on the way (P7, P8, P11,
G1, G4, G5, S6) and what their history says in the end must hold here as it does there.
"""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from sparkraft.simulation.workload.clients import Workload
from sparkraft.simulation.workload.history import acknowledged, check
from tests.support.ports import wait_until

DRAIN_SECONDS_MAX = 120
"""For what is in flight, and for reading all that is left of the topics that are cleaned."""


class SharedWorkload:
    """See the module docstring; a world as `simulation.client_env` has it.

    Leave it while the cluster is whole: it waits until everything acknowledged is read.
    """

    def __init__(self, ports: Mapping[int, int], dice: random.Random) -> None:
        """Of brokers on loopback, by id; `dice` seed its own."""
        self._ports = ports
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self.violations: list[str] = []
        self.dice = random.Random(dice.random())
        self.counts: Counter[str] = Counter()
        self.draining = False
        self.workload = Workload(self)

    # ---- as clients see it

    @property
    def hosts(self) -> list[str]:
        return [f"n{node_id}" for node_id in self._ports]

    @property
    def replicas(self) -> int:
        return min(3, len(self._ports))

    @property
    def has_deaf_leaders(self) -> bool:
        return True

    def address(self, host: str) -> tuple[str, int]:
        return "127.0.0.1", self._ports[int(host.removeprefix("n"))]

    def timestamp_ms(self) -> int:
        return int(time.time() * 1_000)

    def demand(self, holds: object, invariant: str, text: str) -> None:
        self.counts[f"checked {invariant}"] += 1
        if not holds:
            self.violations.append(f"{invariant}: {text}")

    def on_request(self, request: Any) -> None:
        self.counts["requests"] += 1

    def on_response(self, host: str, request: Any, response: Any) -> None:
        self.counts["answers"] += 1

    def on_producer_id(self, producer_id: int) -> None:
        fresh = self.counts[f"producer {producer_id}"] == 0
        self.demand(fresh, "C9", f"producer id {producer_id} is given twice")
        self.counts[f"producer {producer_id}"] += 1

    def on_acknowledged(self, topic: str, index: int, end: int) -> None:
        self.counts["batches acknowledged"] += 1

    # ---- life

    def _work(self) -> None:
        try:
            self._loop.run_until_complete(self._until_stopped())
        except BaseException as error:
            self._failure = error
        finally:
            self._loop.close()

    async def _until_stopped(self) -> None:
        async with asyncio.TaskGroup() as group:
            at_work = [group.create_task(run(self)) for run in self.workload.clients]
            await self._stop.wait()
            for task in at_work:
                task.cancel()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.draining = True
                wait_until(self._is_done, "all that was written is read back", DRAIN_SECONDS_MAX)
        finally:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)
            assert not self._thread.is_alive()

    def _is_done(self) -> bool:
        over = self.workload.is_idle and self.workload.all_read()
        return over or not self._thread.is_alive()

    # ---- the end

    def verdict(self) -> str:
        """A line for people, once everything holds."""
        assert self._failure is None, repr(self._failure)
        assert not self.violations, "\n".join(self.violations[:20])
        self.workload.finish()
        anomalies = [str(found) for found in check(self.workload.history)]
        assert not anomalies, "\n".join(anomalies[:20])
        for name in ("records acknowledged", "records read", "offsets committed", "keyed read"):
            assert self.counts[name], f"void: no {name}"
        for name in ("P7", "P8", "G1", "G4", "S6"):
            assert self.counts[f"checked {name}"], f"void: {name} was never looked at"
        return (
            f"{acknowledged(self.workload.history)} records of the shared workload, "
            f"{self.counts['offsets committed']} offsets committed"
        )

"""The simulator's clients against real processes: the environment they run in.

`simulation.workload` has the clients and their checks, `simulation.client_env` the interface. Here
they run in a thread with an event loop of its own, over real connections and in real time.
"""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Self

from tests.support.ports import wait_until

DRAIN_SECONDS_MAX = 120
"""For pending requests, and for reading everything that is left."""


class SharedClients:
    """Run clients while the `with` block lasts; the cluster must be whole when it ends."""

    def __init__(self, ports: Mapping[int, int], dice: random.Random) -> None:
        """Run nothing yet.

        Args:
            ports: of the brokers on loopback, by id.
            dice: seeds the clients' own generator.
        """
        self._ports = ports
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self.violations: list[str] = []
        self.dice = random.Random(dice.random())
        self.counts: Counter[str] = Counter()
        self.draining = False

    # ---- for subclasses

    def runs(self) -> Sequence[Callable[[Any], Coroutine[Any, Any, None]]]:
        """The functions that run the clients; each is called with this environment."""
        raise NotImplementedError

    def drain(self) -> None:
        """Return once the clients have finished, after `draining` was set."""
        raise NotImplementedError

    # ---- `ClientEnv`

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

    def host_of(self, node_id: int, advertised: str | None) -> str:
        return f"n{node_id}"

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
            at_work = [group.create_task(run(self)) for run in self.runs()]
            await self._stop.wait()
            for task in at_work:
                task.cancel()

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float) -> None:
        """Return once `condition` holds, or the clients have ended with an error."""
        wait_until(lambda: not self._thread.is_alive() or condition(), what, seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.draining = True
                self.drain()
        finally:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)
            assert not self._thread.is_alive()

    def assert_no_violation(self) -> None:
        assert self._failure is None, repr(self._failure)
        assert not self.violations, "\n".join(self.violations[:20])

    def assert_counted(self, *names: str) -> None:
        """Fail if one of these events never happened: the run would prove nothing."""
        for name in names:
            assert self.counts[name], f"void: no {name}: {self.counts}"

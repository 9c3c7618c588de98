"""Runs one or many seeds on all cores of the machine and returns their results.

A result is plain data, so it can be sent between processes: the violation, the trace's digest and
last lines, the counters. Seeds are independent of each other and finish in any order.
"""

import gc
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from sparkraft.simulation.scenarios import core_scenarios
from sparkraft.simulation.scenarios.core_scenarios import Settings
from sparkraft.simulation.world.trace_events import FORMAT, TraceEvents
from sparkraft.simulation.world.violation import Violation

if TYPE_CHECKING:
    from sparkraft.simulation.world.cores import World
    from sparkraft.simulation.world.nodes import NodesWorld

QUEUED_A_JOB = 4
"""Queued seeds per process: enough that none idles, few enough to stop soon."""

REAL_SECONDS_MAX = 120.0
REAL_SECONDS_MAX_A_SECOND = 10.0
"""Time limit of a run, and its extension per simulated second: a hundred times the usual duration.

A run without an end would keep the campaign from finishing and from reporting the seed."""

FRAMES_TOLD = 4
"""Number of innermost stack frames in the report of a run that exceeds its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a seed; `violation` is the name of an invariant, or None for a clean run."""

    settings: Settings
    violation: str | None = None
    text: str = ""
    tail: tuple[str, ...] = ()
    digest: str = ""
    lines: int = 0
    simulated_ms: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)


def run(
    settings: Settings,
    sink: TextIO | None = None,
    *,
    only: tuple[str, ...] = (),
    events: TextIO | None = None,
    command: str = "",
) -> Result:
    """Run one seed to its end or to its first violation.

    Args:
        settings: seed, scenario and what else determines the run.
        sink: gets the trace as text.
        only: the only invariants that are checked on whole nodes, so that no other reports first.
        events: gets the trace as data, a JSON document per line; see `trace_events`.
        command: that repeats the run, for the first of these lines.
    """
    begun = time.monotonic()
    worlds: list[World | NodesWorld] = []
    violation: Violation | None = None

    def begin(world: Any) -> None:
        worlds.append(world)
        if settings.tier == "nodes":
            world.invariants.only = only
        if events is not None:
            _record(world, settings, TraceEvents(events, world.cut_links), command)

    play = _scenario(settings)
    gc.collect()  # the previous world, whose tasks, futures and nodes reference each other
    gc.disable()  # A collection during the run would only cost time.
    try:
        limit = REAL_SECONDS_MAX + REAL_SECONDS_MAX_A_SECOND * settings.seconds
        with _ended_after(limit, worlds):
            play(replace(settings, sink=sink, on_world=begin))
    except Violation as error:
        violation = error
    finally:
        gc.enable()
    world = worlds[0]
    if world.trace.events is not None:
        _record_end(world, violation)
    return Result(
        settings=settings,
        violation=violation.invariant if violation else None,
        text=violation.text if violation else "",
        tail=tuple(world.trace.tail) if violation else (),
        digest=world.trace.digest(),
        lines=world.trace.lines,
        simulated_ms=world.now,
        seconds=time.monotonic() - begun,
        counts=world.counts,
        checks=world.invariants.checks,
    )


def _record(
    world: "World | NodesWorld", settings: Settings, events: TraceEvents, command: str
) -> None:
    """Have the world record its events, after a line about the run."""
    events.write(
        {
            "format": FORMAT,
            "tier": settings.tier,
            "scenario": settings.scenario,
            "seed": settings.seed,
            "nodes": world.node_names,
            "command": command,
        }
    )
    world.trace.events = events
    world.record_messages()


def _record_end(world: "World | NodesWorld", violation: Violation | None) -> None:
    events = world.trace.events
    assert events is not None
    events.write(
        {
            "t": world.now,
            "kind": "end",
            "invariant": violation.invariant if violation else None,
            "text": violation.text if violation else "",
        }
    )


class _StillGoing(KeyboardInterrupt):
    """Ends a run at any point: asyncio propagates KeyboardInterrupt out of every task."""


@contextmanager
def _ended_after(limit_s: float, worlds: "list[World | NodesWorld]") -> Iterator[None]:
    """Raise a violation of `Ending` after `limit_s` of real time; works in the main thread only."""
    if current_thread() is not main_thread():
        yield
        return

    def end(_: int, frame: FrameType | None) -> None:
        innermost = traceback.extract_stack(frame)[-FRAMES_TOLD:]
        raise _StillGoing(
            ", ".join(
                f"{each.name} ({Path(each.filename).name}:{each.lineno})" for each in innermost
            )
        )

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    except _StillGoing as error:
        reached = f"{worlds[0].now / 1000:.3f} simulated seconds"
        raise Violation(
            "Ending",
            f"the run has reached {reached} after {limit_s:.0f} s of real time, in {error}",
        ) from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _scenario(settings: Settings) -> Callable[[Settings], Any]:
    """The function that runs the seed; loading it, with the whole server, does not count as run."""
    if settings.tier == "cores":
        return core_scenarios.SCENARIOS[settings.scenario]
    from sparkraft.simulation.scenarios.node_scenarios import NODE_SCENARIOS

    return NODE_SCENARIOS[settings.scenario]


def run_all(jobs: Iterable[Settings], processes: int | None = None) -> Iterator[Result]:
    """Run many seeds and yield results as they finish; `processes` defaults to the CPU count."""
    count = processes or os.cpu_count() or 1
    if count == 1:
        for settings in jobs:
            yield run(settings)
        return
    left = iter(jobs)
    # Fresh interpreters: a patch or a cache of this process must not leak into a run.
    context = get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=_end_with_parent) as pool:
        waiting: set[Future[Result]] = set()
        try:
            while True:
                for settings in left:
                    waiting.add(pool.submit(run, settings))
                    if len(waiting) >= count * QUEUED_A_JOB:
                        break
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda future: future.result().settings.seed):
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def each(
    work: Callable[..., Any], jobs: list[tuple[Any, ...]], processes: int | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield (first argument, result) of `work` for each job's arguments, in order."""
    count = min(processes or os.cpu_count() or 1, len(jobs))
    if count <= 1:
        for arguments in jobs:
            yield arguments[0], work(*arguments)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=_end_with_parent) as pool:
        futures = [(arguments[0], pool.submit(work, *arguments)) for arguments in jobs]
        for name, future in futures:
            yield name, future.result()


@dataclass(slots=True)
class Summary:
    """The combined result of many seeds."""

    seeds: int = 0
    failed: list[Result] = field(default_factory=list)
    simulated_ms: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    begun: float = field(default_factory=time.monotonic)

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.simulated_ms += result.simulated_ms
        self.counts += result.counts
        self.checks += result.checks
        if result.violation is not None:
            self.failed.append(result)

    def lines(self) -> list[str]:
        minutes = max((time.monotonic() - self.begun) / 60, 1e-9)
        return [
            f"{self.seeds} seeds, {len(self.failed)} violations, "
            f"{self.simulated_ms / 3_600_000:.2f} simulated hours in {minutes:.1f} minutes"
            + (f", {self.seeds / minutes:.0f} seeds a minute" if self.seeds > 1 else ""),
            f"elections won: {self.counts['elections won']}, batches committed: "
            f"{self.counts['appends'] + self.counts['batches committed']}",
            "faults: " + self._of("fault "),
            "fault points: " + self._of("point "),
            *self._what_clients_did(),
            "checks: "
            + ", ".join(
                f"{name} {self.checks[name]}"
                for name in sorted(self.checks, key=lambda name: (name[0], len(name), name))
            ),
        ]

    def _what_clients_did(self) -> list[str]:
        told = (
            "topics created",
            "producer ids",
            "records acknowledged",
            "records read",
            "offsets committed",
        )
        counts = [f"{name} {self.counts[name]}" for name in told if self.counts[name]]
        return ["clients: " + ", ".join(counts)] if counts else []

    def _of(self, prefix: str) -> str:
        found = {
            name.removeprefix(prefix): count
            for name, count in sorted(self.counts.items())
            if name.startswith(prefix)
        }
        return ", ".join(f"{name} {count}" for name, count in found.items()) or "none"


def _end_with_parent() -> None:
    """Exit as soon as the parent process has ended, even if it was killed."""
    parent = parent_process()
    assert parent is not None

    def wait_for_end() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait_for_end, name="waits for the campaign's end", daemon=True).start()

"""`simulate`: quorums by seed, with faults, every invariant checked; planted bugs on request.

sparkraft simulate --seed 7 --trace -            one seed, its whole trace
sparkraft simulate --seeds 1..200 --seconds 60   many, on all cores
sparkraft simulate --mutant all                  every planted bug must be seen
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, TextIO

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.simulation.campaign import Result, Summary
    from sparkraft.simulation.scenarios import Settings

VIOLATED = 1
TAIL_LINES = 40


def main(argv: list[str]) -> int:
    """Run what is asked for; 1 where an invariant does not hold."""
    values = _options().parse(argv)
    if values.list:
        return _list()
    if values.mutant:
        return _mutants(values)
    settings = _settings(values)
    if values.seeds:
        return _many(values, settings)
    return _one(values, settings)


def _options() -> Options:
    options = Options("simulate", __doc__.partition("\n")[0] if __doc__ else "")
    options.value(
        "--tier",
        about="nodes: whole nodes (default); cores: bare raft cores",
        choices=["nodes", "cores"],
        default="nodes",
    )
    options.value("--seed", about="run this seed", type=int)
    options.value("--seeds", about="run seeds A to B on all cores", metavar="A..B")
    options.value("--nodes", about="voters; default: the seed chooses", type=int)
    options.value("--observers", about="nodes that only follow; default: likewise", type=int)
    options.value("--seconds", about="simulated seconds of chaos (60)", type=int, default=60)
    options.value("--scenario", about="what to play; --list names them", default="chaos")
    options.value("--faults", about="kinds between commas, `none` or `all`; --list names them")
    options.value(
        "--mode",
        about="safety: all is healed in the end (default); liveness: only a majority is",
        choices=["safety", "liveness"],
        default="safety",
    )
    options.value(
        "--workload",
        about="what clients do among whole nodes: create topics (default), or write and read",
        choices=["create-topics", "produce-consume"],
        default="create-topics",
    )
    options.value(
        "--trace", about="write the whole trace there; - is standard output", metavar="FILE"
    )
    options.value(
        "--mutant", about="plant this bug, or each of `all`: its stored seed must show it"
    )
    options.flag("--fresh", "with --mutant: look for a seed from 1 on instead of the stored one")
    options.value("--jobs", about="processes; default: one a core", type=int)
    options.flag("--list", "name scenarios, faults, mutants")
    return options


def _settings(values: Values) -> Settings:
    from sparkraft.simulation.nemesis import ALL
    from sparkraft.simulation.node_faults import NODE_FAULTS, RECORD_FAULTS
    from sparkraft.simulation.node_scenarios import NODE_SCENARIOS
    from sparkraft.simulation.scenarios import SCENARIOS, Settings

    known = NODE_SCENARIOS if values.tier == "nodes" else SCENARIOS
    if values.scenario not in known:
        raise UsageError(f"no scenario {values.scenario!r} of --tier {values.tier}; see --list")
    faults = None
    if values.faults is not None:
        named = [] if values.faults == "none" else values.faults.split(",")
        faults = None if values.faults == "all" else tuple(named)
        faults = faults if faults is not None or values.tier == "nodes" else ALL
        every = (*NODE_FAULTS, *RECORD_FAULTS) if values.tier == "nodes" else ALL
        unknown = sorted(set(faults or ()) - set(every))
        if unknown:
            raise UsageError(f"no fault {', '.join(unknown)}; --list names them")
    if values.workload != "create-topics" and (values.tier, values.scenario) != ("nodes", "chaos"):
        raise UsageError("--workload goes with chaos among --tier nodes")
    if (values.seed is None) == (values.seeds is None):
        raise UsageError("give --seed S or --seeds A..B")
    return Settings(
        seed=values.seed or 0,
        tier=values.tier,
        scenario=values.scenario,
        nodes=values.nodes,
        observers=values.observers,
        seconds=values.seconds,
        faults=faults,
        liveness=values.mode == "liveness",
        workload=values.workload,
    )


def _list() -> int:
    from sparkraft.simulation.fault_points import CORE_POINTS
    from sparkraft.simulation.mutants import all_mutants
    from sparkraft.simulation.nemesis import ALL
    from sparkraft.simulation.node_faults import NODE_FAULTS, RECORD_FAULTS
    from sparkraft.simulation.node_scenarios import NODE_SCENARIOS
    from sparkraft.simulation.points import POINTS
    from sparkraft.simulation.scenarios import SCENARIOS

    tiers = {
        "nodes": (NODE_SCENARIOS, (*NODE_FAULTS, *RECORD_FAULTS), tuple(POINTS)),
        "cores": (SCENARIOS, ALL, CORE_POINTS),
    }
    for tier, (scenarios, faults, points) in tiers.items():
        print(f"scenarios of --tier {tier}:")
        for name, function in scenarios.items():  # type: ignore[attr-defined]
            print(f"  {name}\n      {(function.__doc__ or '').splitlines()[0]}")
        print(f"faults of --tier {tier}:\n  {', '.join(faults)}")
        print(f"fault points of --tier {tier}:\n  {', '.join(points)}")
    print("mutants:")
    for name, mutant in all_mutants().items():
        seen_by = " or ".join(mutant.seen_by)
        print(f"  {name:<42} {mutant.tier}: {mutant.about} ({seen_by})")
    return 0


# ---- one seed


def _one(values: Values, settings: Settings) -> int:
    from sparkraft.simulation.campaign import Summary, run

    with ExitStack() as stack:
        result = run(settings, None, _sink(values, stack))
    summary = Summary()
    summary.add(result)
    if result.violation is not None:
        _report(result)
    print(f"digest {result.digest} of {result.lines} lines")
    _print_summary(summary)
    return VIOLATED if result.violation is not None else 0


def _sink(values: Values, stack: ExitStack) -> TextIO | None:
    if not values.trace:
        return None
    if values.trace == "-":
        return sys.stdout
    return stack.enter_context(open(values.trace, "w", encoding="utf-8"))


def _report(result: Result) -> None:
    """What went wrong, how it came to that, how to see it again."""
    settings = result.settings
    print("".join(result.tail[-TAIL_LINES:]), end="")
    print(f"seed {settings.seed}: {result.violation} does not hold: {result.text}")
    print(f"again: {command(settings)}")


def command(settings: Settings) -> str:
    """What replays a run."""
    words = [f"sparkraft simulate --tier {settings.tier}", f"--seed {settings.seed}"]
    if settings.scenario != "chaos":
        words.append(f"--scenario {settings.scenario}")
    if settings.scenario.startswith(("chaos", "leaders-", "killed-then")):
        words.append(f"--seconds {settings.seconds}")
    if settings.nodes is not None:
        words.append(f"--nodes {settings.nodes}")
    if settings.observers is not None:
        words.append(f"--observers {settings.observers}")
    if settings.faults is not None:
        words.append(f"--faults {','.join(settings.faults) or 'none'}")
    if settings.liveness:
        words.append("--mode liveness")
    if settings.workload != "create-topics":
        words.append(f"--workload {settings.workload}")
    return " ".join([*words, "--trace -"])


# ---- many


def _many(values: Values, settings: Settings) -> int:
    from dataclasses import replace

    from sparkraft.simulation.campaign import Summary, run_all

    first, last = _range(values.seeds)
    jobs = ((replace(settings, seed=seed), None) for seed in range(first, last + 1))
    summary = Summary()
    with _progress(last - first + 1, "seeds") as advance:
        for result in run_all(jobs, values.jobs or os.cpu_count()):
            summary.add(result)
            advance(f"{len(summary.failed)} violations")
    for failed in summary.failed:
        _report(failed)
    _print_summary(summary)
    return VIOLATED if summary.failed else 0


def _range(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    if not dots or not first.isdigit() or not last.isdigit() or int(first) > int(last):
        raise UsageError(f"--seeds wants A..B, not {text!r}")
    return int(first), int(last)


def _print_summary(summary: Summary) -> None:
    for line in summary.lines():
        print(line)


class _progress:  # noqa: N801 (used as a function)
    """A bar on a terminal, nothing elsewhere; the context value is called once a step."""

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what

    def __enter__(self) -> Callable[[str], None]:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._bar = Progress(console=console, disable=not console.is_terminal, transient=True)
        self._bar.start()
        task = self._bar.add_task(self._what, total=self._total)

        def advance(note: str) -> None:
            self._bar.update(task, advance=1, description=f"{self._what} ({note})")

        return advance

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


# ---- planted bugs


def _mutants(values: Values) -> int:
    from sparkraft.simulation.campaign import each
    from sparkraft.simulation.mutants import all_mutants

    known = all_mutants()
    if values.mutant != "all" and values.mutant not in known:
        raise UsageError(f"no mutant {values.mutant!r}; --list names them")
    names = list(known) if values.mutant == "all" else [values.mutant]
    jobs = [(name, bool(values.fresh)) for name in names]
    missed = []
    for name, (seen, told) in each(_mutant, jobs, values.jobs or os.cpu_count()):
        print(f"{'seen  ' if seen else 'MISSED'} {name:<42} {told}", flush=True)
        if not seen:
            missed.append(name)
    print(f"{len(names) - len(missed)} of {len(names)} planted bugs were seen")
    if missed:
        raise CommandError(f"not seen: {', '.join(missed)}")
    return 0


def _mutant(name: str, fresh: bool) -> tuple[bool, str]:  # noqa: FBT001 (called by map)
    from time import monotonic

    from sparkraft.simulation.kills import KILLS, replay, search, sees

    begun = monotonic()
    result = search(name) if fresh or name not in KILLS else replay(name)
    seen = result is not None and sees(result, name)
    told = f"seed {result.settings.seed}: {result.violation}" if result else "no seed shows it"
    return seen, f"{told} ({monotonic() - begun:.1f} s)"

"""`simulate`: quorums by seed, with faults, every invariant checked.

sparkraft simulate --seed 7 --trace -            one seed, its whole trace
sparkraft simulate --seed 7 --show               one seed, played in a browser
sparkraft simulate --seeds 1..200 --seconds 60   many, on all cores
sparkraft simulate --cluster zookeeper --seed 7  brokers in ZooKeeper mode
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, closing, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TextIO

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.options import Options, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from socket import socket

    from sparkraft.simulation.scenarios.campaign import Result, Summary
    from sparkraft.simulation.scenarios.core_scenarios import Settings

VIOLATED = 1
TAIL_LINES = 40


def main(argv: list[str]) -> int:
    """Run one seed or many; return 1 if an invariant does not hold."""
    values = _options().parse(argv)
    if values.list:
        return _list()
    _check_what_to_do(values)
    _check_jobs(values)
    settings = _settings(values)
    if values.seeds:
        return _many(values, settings)
    return _one(values, settings)


def _options() -> Options:
    options = Options("simulate", __doc__.partition("\n")[0] if __doc__ else "")
    options.value(
        "--tier",
        about="nodes: whole nodes (default); cores: bare raft cores (default of scenarios that "
        "only cores have)",
        choices=["nodes", "cores"],
    )
    options.value(
        "--cluster",
        about="kraft: nodes with a quorum (default); zookeeper: brokers in ZooKeeper mode",
        choices=["kraft", "zookeeper"],
    )
    options.value("--seed", about="run this seed", type=int)
    options.value("--seeds", about="run seeds A to B on all cores", metavar="A..B")
    options.value(
        "--nodes",
        about="voters, or brokers in ZooKeeper mode; default: 3 in chaos of whole nodes, else what "
        "the scenario and the seed choose",
        type=int,
    )
    options.value(
        "--observers",
        about="nodes that never vote: cores that follow, or whole nodes that are only brokers, "
        "with 0 every voter is a broker too; default: the seed chooses",
        type=int,
    )
    options.value("--seconds", about=f"simulated seconds of chaos ({_SECONDS})", type=int)
    options.value("--scenario", about="scenario to run (chaos); --list names them")
    options.value("--faults", about="kinds between commas, `none` or `all`; --list names them")
    options.value(
        "--mode",
        about="safety: all faults are healed at the end (default); liveness: those of a majority",
        choices=["safety", "liveness"],
    )
    options.value(
        "--workload",
        about="clients of whole nodes: create topics (default), write and read records, write "
        "transactions, join a group, or act as several users with access control",
        choices=["create-topics", "produce-consume", "transactions", "groups", "principals"],
    )
    options.value(
        "--trace", about="write the whole trace there; - is standard output", metavar="FILE"
    )
    options.value(
        "--trace-json", about="write the trace as data, a JSON document per line", metavar="FILE"
    )
    options.flag(
        "--show", "play the run in a web browser: nodes, messages, faults (needs [console])"
    )
    options.value(
        "--listen",
        about="loopback address of the page of --show (default 127.0.0.1, a free port)",
        metavar="HOST:PORT",
    )
    options.value("--mutant", about="moved to tools/mutants of the source tree")
    options.value("--jobs", about="processes; default: one a core", type=int)
    options.flag("--list", "name scenarios and faults")
    return options


_SECONDS = 60
_ZOOKEEPER = "zookeeper"
"""The cluster, and its scenario."""

_OPTION_OF = {
    "nodes": "--nodes",
    "observers": "--observers",
    "seconds": "--seconds",
    "faults": "--faults",
    "liveness": "--mode",
    "workload": "--workload",
}
"""Field of `Settings` → the option that sets it."""

_WORKLOAD_OF = {"leaders-come-and-go": "produce-consume", "replicas-move": "produce-consume"}
"""The workload of scenarios that have their own, and faults to choose."""

_OF_COORDINATORS = ("transactions", "groups", "principals")
"""Workloads of clients of coordinators, among others."""

_REPLICAS = 3
"""Of the topics that clients write to."""


def _needs_replicas(workload: str | None, scenario: str) -> bool:
    """Whether clients write to topics with `_REPLICAS` replicas."""
    used = _WORKLOAD_OF.get(scenario) or workload
    return used == "produce-consume" or used in _OF_COORDINATORS


def _given(values: Values, options: Iterable[str]) -> list[str]:
    """Those of the options that stand on the command line."""
    return [
        name for name in options if getattr(values, name[2:].replace("-", "_")) not in (None, False)
    ]


def _check_what_to_do(values: Values) -> None:
    """Refuse options that the rest of the command line leaves without effect."""
    if values.mutant:
        raise UsageError("planted bugs are replayed by tools/mutants of the source tree")
    if (values.seed is None) == (values.seeds is None):
        raise UsageError("give --seed S or --seeds A..B")
    own = _given(values, ["--trace", "--trace-json", "--show"])
    if values.seeds and own:
        raise UsageError(f"{own[0]} goes only with --seed: each of many has a trace of its own")
    if values.listen and not values.show:
        raise UsageError("--listen goes only with --show")
    if values.jobs is not None and not values.seeds:
        raise UsageError("--jobs goes only with --seeds")


def _check_jobs(values: Values) -> None:
    if values.jobs is not None and values.jobs < 1:
        raise UsageError(f"--jobs {values.jobs}: it takes one process at least")


def _settings(values: Values) -> Settings:
    from sparkraft.simulation.scenarios.core_scenarios import Settings

    scenario = _scenario(values)
    tier = values.tier or _tier_of(scenario)
    _check_scenario(values, tier, scenario)
    settings = Settings(
        seed=values.seed or 0,
        tier=tier,
        scenario=scenario,
        nodes=values.nodes,
        observers=values.observers,
        seconds=_SECONDS if values.seconds is None else values.seconds,
        faults=_faults(values, tier, scenario),
        liveness=values.mode == "liveness",
        workload=values.workload or "create-topics",
    )
    _check_sizes(settings)
    return settings


def _scenario(values: Values) -> str:
    """The scenario to run; that of ZooKeeper mode belongs to its cluster, and no other does."""
    named: str | None = values.scenario
    if values.cluster == _ZOOKEEPER and named not in (None, _ZOOKEEPER):
        raise UsageError(
            f"scenario {named} is not of --cluster {_ZOOKEEPER}; leave out one of them"
        )
    if values.cluster == "kraft" and named == _ZOOKEEPER:
        raise UsageError(f"scenario {named} is of --cluster {_ZOOKEEPER}")
    return _ZOOKEEPER if values.cluster == _ZOOKEEPER else named or "chaos"


def _tier_of(scenario: str) -> str:
    """The tier of a scenario that only bare cores have; otherwise whole nodes."""
    only_cores = scenario in _scenarios("cores") and scenario not in _scenarios("nodes")
    return "cores" if only_cores else "nodes"


def _check_scenario(values: Values, tier: str, scenario: str) -> None:
    """Reject unknown scenarios and options the scenario ignores."""
    from sparkraft.simulation.scenarios.scenario_options import options_of

    if scenario not in _scenarios(tier):
        raise UsageError(f"no scenario {scenario!r} of --tier {tier}; see --list")
    found = options_of(tier, scenario)
    unused = [option for name, option in _OPTION_OF.items() if name not in found.fields]
    useless = _given(values, unused)
    if useless:
        raise UsageError(
            f"{', '.join(useless)} would have no effect: scenario {scenario} of --tier {tier} has "
            "its own; leave it out, or play chaos"
            + (" of --tier nodes" if "--workload" in useless else "")
        )
    if values.nodes is not None and values.nodes < found.nodes_min:
        kind = "brokers" if scenario == _ZOOKEEPER else "voters"
        raise UsageError(
            f"--nodes {values.nodes}: scenario {scenario} takes {found.nodes_min} {kind} or more"
        )


def _scenarios(tier: str) -> Mapping[str, object]:
    from sparkraft.simulation.scenarios.core_scenarios import SCENARIOS
    from sparkraft.simulation.scenarios.node_scenarios import NODE_SCENARIOS

    return NODE_SCENARIOS if tier == "nodes" else SCENARIOS


def _check_sizes(settings: Settings) -> None:
    """Refuse clusters that can't be made, and those that can't keep what clients write."""
    from sparkraft.simulation.world.nodes import FIRST_BROKER

    nodes, observers = settings.nodes, settings.observers
    if settings.seconds < 0:
        raise UsageError(f"--seconds {settings.seconds} is negative")
    if observers is not None and observers < 0:
        raise UsageError(f"--observers {observers} is negative")
    if settings.tier != "nodes":
        return
    if nodes is not None and nodes > FIRST_BROKER - 2:  # one id is left for a voter to be added
        raise UsageError(f"--nodes {nodes}: --tier nodes takes {FIRST_BROKER - 2} voters at most")
    if settings.liveness and settings.workload in _OF_COORDINATORS:
        raise UsageError(f"--workload {settings.workload} has no --mode liveness")
    with_records = _needs_replicas(settings.workload, settings.scenario)
    brokers = observers or (3 if nodes is None else nodes)
    if with_records and observers is not None and brokers < _REPLICAS:
        raise UsageError(
            f"--observers {observers} leaves {brokers} brokers, and records have {_REPLICAS} "
            f"replicas; give --observers {_REPLICAS} or more"
        )


def _faults(values: Values, tier: str, scenario: str) -> tuple[str, ...] | None:
    """Return the requested kinds of faults; None for the scenario's own."""
    from sparkraft.simulation.scenarios.node_faults import MOVE_FAULTS, RECORD_FAULTS
    from sparkraft.simulation.scenarios.scenario_options import options_of

    if values.faults is None:
        return None
    if values.faults == "none":
        return ()
    usable = _usable_faults(values.workload, tier, scenario)
    borne = options_of(tier, scenario).kinds
    if values.faults == "all":
        return borne or usable
    named = tuple(values.faults.split(","))
    others = [kind for kind in named if kind not in usable]
    needs_records = set(others) <= {*RECORD_FAULTS, *MOVE_FAULTS} and scenario != _ZOOKEEPER
    if others and tier == "nodes" and needs_records:
        raise UsageError(f"faults {', '.join(others)} need records; add --workload produce-consume")
    if others:
        raise UsageError(f"no fault {', '.join(others)} of --tier {tier}; --list names them")
    unborne = [kind for kind in named if borne and kind not in borne]
    if unborne:
        raise UsageError(
            f"scenario {scenario} tolerates only {', '.join(borne or ())}, and never heals "
            f"{', '.join(unborne)}; play chaos"
        )
    return named


def _usable_faults(workload: str | None, tier: str, scenario: str) -> tuple[str, ...]:
    from sparkraft.simulation.scenarios.coordinator_scenarios import fault_kinds
    from sparkraft.simulation.scenarios.node_faults import MOVE_FAULTS, NODE_FAULTS, RECORD_FAULTS
    from sparkraft.simulation.scenarios.zookeeper_faults import ZOOKEEPER_FAULTS
    from sparkraft.simulation.world.nemesis import ALL

    if tier != "nodes":
        return tuple(ALL)
    if scenario == _ZOOKEEPER:
        return ZOOKEEPER_FAULTS
    if workload in _OF_COORDINATORS:
        return tuple(fault_kinds())
    needed = RECORD_FAULTS | MOVE_FAULTS if _needs_replicas(workload, scenario) else {}
    return (*NODE_FAULTS, *needed)


def _list() -> int:
    from sparkraft.simulation.scenarios.core_scenarios import SCENARIOS
    from sparkraft.simulation.scenarios.node_faults import (
        COORDINATOR_FAULTS,
        MOVE_FAULTS,
        NODE_FAULTS,
        RECORD_FAULTS,
    )
    from sparkraft.simulation.scenarios.node_scenarios import NODE_SCENARIOS
    from sparkraft.simulation.scenarios.zookeeper_faults import ZOOKEEPER_FAULTS
    from sparkraft.simulation.world.core_points import CORE_POINTS
    from sparkraft.simulation.world.nemesis import ALL
    from sparkraft.simulation.world.points import POINTS

    kinds = (*NODE_FAULTS, *RECORD_FAULTS, *MOVE_FAULTS, *COORDINATOR_FAULTS)
    tiers = {
        "nodes": (NODE_SCENARIOS, kinds, tuple(POINTS)),
        "cores": (SCENARIOS, ALL, CORE_POINTS),
    }
    for tier, (scenarios, faults, points) in tiers.items():
        print(f"scenarios of --tier {tier}:")
        for name, function in scenarios.items():  # type: ignore[attr-defined]
            print(f"  {name}\n      {(function.__doc__ or '').splitlines()[0]}")
        print(f"faults of --tier {tier}:\n  {', '.join(faults)}")
        print(f"fault points of --tier {tier}:\n  {', '.join(points)}")
    print(f"faults of --cluster {_ZOOKEEPER}:\n  {', '.join(ZOOKEEPER_FAULTS)}")
    return 0


# ---- one seed


def _one(values: Values, settings: Settings) -> int:
    from sparkraft.simulation.scenarios.campaign import Summary, run

    with ExitStack() as stack:
        listening = stack.enter_context(_listening(values)) if values.show else None
        data = _data_path(values, stack)
        with ExitStack() as files:
            events = None
            if data is not None:
                events = files.enter_context(open(data, "w", encoding="utf-8"))
            result = run(settings, _sink(values, files), events=events, command=command(settings))
        summary = Summary()
        summary.add(result)
        if result.violation is not None:
            _report(result)
        print(f"digest {result.digest} of {result.lines} lines")
        _print_summary(summary)
        if listening is not None and data is not None:
            _show(data, listening)
    return VIOLATED if result.violation is not None else 0


def _listening(values: Values) -> socket:
    """Return the listening socket of the page; before the run, so that a bad option costs none."""
    from sparkraft.cli.console import check_extra
    from sparkraft.console.listen import ListenAddress, bind, parse_listen

    check_extra()
    try:
        address = ListenAddress(host="127.0.0.1", port=0)
        return bind(parse_listen(values.listen) if values.listen else address)
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from error
    except OSError as error:
        raise CommandError(f"cannot listen on {values.listen}: {error.strerror}") from error


def _data_path(values: Values, stack: ExitStack) -> str | None:
    """Return the file of --trace-json; for --show alone one that goes with `stack`."""
    if values.trace_json or not values.show:
        path: str | None = values.trace_json
        return path
    folder = stack.enter_context(TemporaryDirectory(prefix="sparkraft-simulate-"))
    return os.path.join(folder, "run.jsonl")


def _show(data: str, listening: socket) -> None:
    """Serve the page until Ctrl-C."""
    import asyncio
    from pathlib import Path

    from sparkraft.console.recorded_run import RecordedRun
    from sparkraft.console.simulator import serve_run

    host, port = listening.getsockname()[:2]
    print(
        f"open     http://{f'[{host}]' if ':' in host else host}:{port}/ (Ctrl-C ends)", flush=True
    )
    with closing(RecordedRun(Path(data))) as recorded, suppress(KeyboardInterrupt):
        asyncio.run(serve_run(recorded, listening))


def _sink(values: Values, stack: ExitStack) -> TextIO | None:
    if not values.trace:
        return None
    if values.trace == "-":
        return sys.stdout
    return stack.enter_context(open(values.trace, "w", encoding="utf-8"))


def _report(result: Result) -> None:
    """Print the violation, the end of its trace and the command that replays it."""
    settings = result.settings
    print("".join(result.tail[-TAIL_LINES:]), end="")
    print(f"seed {settings.seed}: {result.violation} does not hold: {result.text}")
    print(f"again: {command(settings)}")


def command(settings: Settings) -> str:
    """Return the command that replays a run with a full trace: its seed and relevant settings."""
    from sparkraft.simulation.scenarios.scenario_options import options_of

    words = [f"sparkraft simulate --tier {settings.tier}", f"--seed {settings.seed}"]
    if settings.scenario == _ZOOKEEPER:
        words.append(f"--cluster {_ZOOKEEPER}")
    elif settings.scenario != "chaos":
        words.append(f"--scenario {settings.scenario}")
    faults = settings.faults
    written: dict[str, object] = {
        "nodes": settings.nodes,
        "observers": settings.observers,
        "seconds": settings.seconds,
        "faults": None if faults is None else ",".join(faults) or "none",
        "liveness": "liveness" if settings.liveness else None,
        "workload": None if settings.workload == "create-topics" else settings.workload,
    }
    used = options_of(settings.tier, settings.scenario).fields
    words += [
        f"{_OPTION_OF[name]} {value}"
        for name, value in written.items()
        if name in used and value is not None
    ]
    return " ".join([*words, "--trace -"])


# ---- many


def _many(values: Values, settings: Settings) -> int:
    from dataclasses import replace

    from sparkraft.simulation.scenarios.campaign import Summary, run_all

    first, last = _range(values.seeds)
    jobs = (replace(settings, seed=seed) for seed in range(first, last + 1))
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

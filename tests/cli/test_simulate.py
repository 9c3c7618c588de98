"""`sparkraft simulate`: what it prints, its exit codes, and what it refuses."""

import contextlib
import os
import pty
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from sparkraft.cli.simulate import command
from sparkraft.simulation.scenarios.campaign import run
from sparkraft.simulation.scenarios.core_scenarios import SCENARIOS, Settings
from sparkraft.simulation.scenarios.node_scenarios import KAFKAS, NODE_SCENARIOS
from sparkraft.simulation.scenarios.scenario_options import options_of
from tests.mutants.mutant import planted
from tests.mutants.mutant_seeds import SECONDS, replay
from tests.mutants.registry import MutantCase

CORES = ["--tier", "cores"]
ZOOKEEPER = ["--cluster", "zookeeper"]
FEW = ["--seconds", "5"]
BUG = MutantCase("vote-not-persisted", "cores")


def simulate(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = cli.main(["simulate", *argv])
    said = capsys.readouterr()
    return code, said.out, said.err


def counted(line: str) -> dict[str, int]:
    """`faults: kill 3, power-all 1` as a dict."""
    entries = line.partition(": ")[2].split(", ")
    return {name: int(count) for name, count in (entry.rsplit(" ", 1) for entry in entries)}


# ---- what it prints


def test_many_seeds_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = simulate(capsys, *CORES, "--seeds", "1..4", "--seconds", "20", "--jobs", "2")
    assert code == 0
    first, elections, faults, points, checks = out.splitlines()
    hours = re.fullmatch(
        r"4 seeds, 0 violations, (\d+\.\d\d) simulated hours in \d+\.\d minutes, "
        r"(\d+) seeds a minute",
        first,
    )
    assert hours is not None, first
    assert float(hours[1]) >= 0.02  # 4 runs of 20 s and of what it takes to recover
    assert int(hours[2]) > 0
    won = re.fullmatch(r"elections won: (\d+), batches committed: (\d+)", elections)
    assert won is not None, elections
    assert int(won[1]) >= 4
    results = [run(Settings(seed=seed, seconds=20)) for seed in range(1, 5)]
    assert int(won[1]) == sum(result.counts["elections won"] for result in results)
    for line, kind in ((faults, "fault "), (points, "point ")):
        for name, count in counted(line).items():
            assert count == sum(result.counts[kind + name] for result in results)
    assert counted(checks) == {
        name: sum(result.checks[name] for result in results) for name in counted(checks)
    }
    assert set(counted(checks)) >= {"Q1", "Q2", "Q3", "Q5"}


def test_a_seed_prints_its_digest_and_with_trace_every_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one = [*CORES, *FEW, "--seed", "3"]
    code, plain, _ = simulate(capsys, *one)
    assert code == 0
    digest = plain.splitlines()[0]
    lines = int(digest.split()[3])
    file = tmp_path / "trace"
    assert simulate(capsys, *one, "--trace", str(file))[1].splitlines()[0] == digest
    traced = simulate(capsys, *one, "--trace", "-")[1].splitlines()
    assert traced[lines] == digest
    assert traced[:lines] == file.read_text().splitlines()
    assert len(traced[:lines]) == lines > 100


# ---- progress

TWO_SEEDS = [*CORES, "--seeds", "1..2", "--seconds", "2", "--jobs", "1"]
_FORCED = {"FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
"""Variables by which whoever runs the tests may call a pipe a terminal, or the other way round."""


def two_seeds(stderr: int) -> subprocess.Popen[str]:
    plain = {name: value for name, value in os.environ.items() if name not in _FORCED}
    return subprocess.Popen(
        [sys.executable, "-m", "sparkraft.cli.main", "simulate", *TWO_SEEDS],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**plain, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    )


def all_shown(terminal: int) -> str:
    """Until nobody has it open any more, which is an error here."""
    shown = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 65_536):
            shown += chunk
    os.close(terminal)
    return shown.decode()


def test_at_a_terminal_a_bar_shows_how_far_it_is_and_goes_in_the_end() -> None:
    terminal, its_end = pty.openpty()
    campaign = two_seeds(its_end)
    os.close(its_end)
    shown = all_shown(terminal)
    out, _ = campaign.communicate(timeout=60)
    assert campaign.returncode == 0
    assert out.startswith("2 seeds, 0 violations, ")
    assert "violations)" not in out, "the bar is not among what is read on"
    drawn = [line for line in re.split(r"[\r\n]", shown) if "seeds" in line]
    assert "0%" in drawn[0]
    assert "seeds (0 violations)" in drawn[-1]
    assert "100%" in drawn[-1]
    assert "\x1b[2K" in shown.rpartition("100%")[2], "its line is empty again"


def test_elsewhere_there_is_no_bar() -> None:
    campaign = two_seeds(subprocess.PIPE)
    out, err = campaign.communicate(timeout=60)
    assert (campaign.returncode, err) == (0, "")
    assert out.startswith("2 seeds, 0 violations, ")
    assert "\x1b" not in out


# ---- a seed that fails


def test_a_seed_that_fails_tells_how_it_came_and_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = replay(BUG)
    seed = bad.settings.seed
    seeds = ["--seeds", f"{seed}..{seed}", "--jobs", "1"]
    with planted(BUG.mutant):
        code, out, _ = simulate(capsys, *CORES, "--seconds", str(SECONDS), *seeds)
        *tail, seen, again = out.partition("1 seeds, 1 violations")[0].splitlines()
        assert code == 1
        assert seen == f"seed {seed}: {bad.violation} does not hold: {bad.text}"
        assert "".join(f"{line}\n" for line in tail) == "".join(bad.tail[-40:])
        assert again.startswith("again: sparkraft simulate ")
        _, *words = shlex.split(again.removeprefix("again: "))
        code = cli.main(words)
    replayed = capsys.readouterr().out.splitlines()
    assert code == 1
    at = replayed.index(seen)
    assert replayed[at - len(tail) : at] == tail
    assert f"digest {bad.digest} of {bad.lines} lines" in replayed
    # Without the bug the same command finds nothing.
    code, out, _ = simulate(capsys, *words[1:])
    assert (code, "does not hold" in out) == (0, False)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Settings(seed=7), "--tier cores --seed 7 --seconds 60"),
        (
            Settings(seed=7, tier="nodes", observers=0, faults=(), workload="produce-consume"),
            "--tier nodes --seed 7 --observers 0 --seconds 60 --faults none "
            "--workload produce-consume",
        ),
        (
            Settings(seed=7, nodes=5, faults=("kill", "cut"), seconds=9, liveness=True),
            "--tier cores --seed 7 --nodes 5 --seconds 9 --faults kill,cut --mode liveness",
        ),
        (
            Settings(seed=7, tier="nodes", scenario="killed-then-unplugged", seconds=9),
            "--tier nodes --seed 7 --scenario killed-then-unplugged --seconds 9",
        ),
        (
            Settings(seed=7, tier="nodes", scenario="can-elect-initial-leader", nodes=3),
            "--tier nodes --seed 7 --scenario can-elect-initial-leader --nodes 3",
        ),
        (
            Settings(seed=7, scenario="killed-leaders-are-replaced", observers=1),
            "--tier cores --seed 7 --scenario killed-leaders-are-replaced --observers 1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_command_that_replays_names_what_matters_and_no_more(
    settings: Settings, words: str
) -> None:
    assert command(settings) == f"sparkraft simulate {words} --trace -"


# ---- what a scenario heeds

PAIRS: dict[str, tuple[object, object]] = {
    "nodes": (3, 5),
    "observers": (0, 3),
    "seconds": (2, 6),
    "faults": ((), ("loss", "skew")),
    "liveness": (False, True),
    "workload": ("create-topics", "produce-consume"),
}
OPTIONS = {
    "nodes": ["--nodes", "5"],
    "observers": ["--observers", "3"],
    "seconds": ["--seconds", "7"],
    "faults": ["--faults", "skew"],
    "liveness": ["--mode", "liveness"],
    "workload": ["--workload", "produce-consume"],
}
_OF_NODES = sorted(set(NODE_SCENARIOS) - set(KAFKAS))
PLAYED = [("cores", name) for name in SCENARIOS] + [
    ("nodes", name) for name in (*_OF_NODES, "can-elect-initial-leader")
]
"""Of Kafka's scenarios on whole nodes one, since they begin alike."""


@pytest.mark.parametrize(("tier", "scenario"), PLAYED)
def test_what_a_scenario_reads_makes_another_run(tier: str, scenario: str) -> None:
    fields = sorted(options_of(tier, scenario).fields)
    plain = replace(
        Settings(seed=2, tier=tier, scenario=scenario),
        **{name: PAIRS[name][0] for name in fields},  # type: ignore[arg-type]
    )
    digests = {"as it is": run(plain).digest}
    for name in fields:
        result = run(replace(plain, **{name: PAIRS[name][1]}))  # type: ignore[arg-type]
        assert result.violation is None, (name, result.text)
        digests[name] = result.digest
    assert len(set(digests.values())) == 1 + len(fields), digests


EVERY = [("cores", name) for name in SCENARIOS] + [("nodes", name) for name in NODE_SCENARIOS]


@pytest.mark.parametrize(("tier", "scenario"), EVERY)
def test_what_a_scenario_does_not_heed_is_refused(
    tier: str, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in sorted(set(OPTIONS) - options_of(tier, scenario).fields):
        argv = ["--tier", tier, "--scenario", scenario, "--seed", "1", *OPTIONS[name]]
        code, out, err = simulate(capsys, *argv)
        assert (code, out) == (2, "")
        assert f"{OPTIONS[name][0]} would have no effect: scenario {scenario} " in err
        assert "leave it out, or play chaos" in err


def test_no_faults_are_none_where_a_scenario_has_its_own() -> None:
    quiet = Settings(
        seed=1, tier="nodes", scenario="leaders-come-and-go", seconds=8, faults=(), nodes=3
    )
    counts = run(quiet).counts
    assert [name for name in counts if name.startswith(("fault ", "point "))] == []
    counts = run(replace(quiet, faults=None)).counts
    assert [name for name in counts if name.startswith("fault ")] != []


@pytest.mark.parametrize("observers", [0, 2])
def test_observers_among_whole_nodes_are_brokers_alone(
    observers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in ("1", "2", "3", "4", "5"):
        one = ["--seed", seed, "--seconds", "1", "--faults", "none", "--trace", "-"]
        code, out, _ = simulate(capsys, *one, "--observers", str(observers))
        assert code == 0
        layout = next(line for line in out.splitlines() if "Layout(" in line)
        assert f"brokers={observers}," in layout


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "give --seed S or --seeds A..B"),
        (["--seed", "1", "--seeds", "1..2"], "give --seed S or --seeds A..B"),
        (["--seeds", "5..1"], "--seeds wants A..B, not '5..1'"),
        (["--seeds", "1-5"], "--seeds wants A..B, not '1-5'"),
        (["--seed", "1", "--scenario", "war"], "no scenario 'war' of --tier nodes; see --list"),
        (["--seed", "1", "--faults", "war"], "no fault war of --tier nodes; --list names them"),
        (
            ["--seed", "1", *CORES, "--scenario", "can-elect-initial-leader", "--faults", "kill"],
            "scenario can-elect-initial-leader tolerates only loss, duplicates, skew, and never "
            "heals kill; play chaos",
        ),
        (
            ["--seed", "1", "--faults", "kill,preferred"],
            "faults preferred need records; add --workload produce-consume",
        ),
        (["--seed", "1", "--nodes", "0"], "scenario chaos takes 1 voters or more"),
        (["--seed", "1", "--nodes", "10"], "--tier nodes takes 9 voters at most"),
        (
            ["--seed", "1", "--scenario", "can-make-progress-if-majority-is-reachable",
             "--nodes", "3"],
            "takes 5 voters or more",
        ),
        (["--seed", "1", "--observers", "-1"], "--observers -1 is negative"),
        (["--seed", "1", "--seconds", "-1"], "--seconds -1 is negative"),
        (
            ["--seed", "1", "--workload", "produce-consume", "--observers", "2"],
            "--observers 2 leaves 2 brokers, and records have 3 replicas; give --observers 3",
        ),
        (
            ["--seed", "1", "--workload", "transactions", "--mode", "liveness"],
            "--workload transactions has no --mode liveness",
        ),
        (
            ["--seed", "1", "--workload", "transactions", "--faults", "wipe"],
            "no fault wipe of --tier nodes",
        ),
        (["--seed", "1", *ZOOKEEPER, "--nodes", "2"], "scenario zookeeper takes 3 brokers or more"),
        (
            ["--seed", "1", *ZOOKEEPER, "--scenario", "migration"],
            "scenario migration is not of --cluster zookeeper; leave out one of them",
        ),
        (
            ["--seed", "1", "--cluster", "kraft", "--scenario", "zookeeper"],
            "scenario zookeeper is of --cluster zookeeper",
        ),
        (
            ["--seed", "1", *ZOOKEEPER, "--tier", "cores"],
            "no scenario 'zookeeper' of --tier cores",
        ),
        (
            ["--seed", "1", *ZOOKEEPER, "--workload", "groups"],
            "--workload would have no effect: scenario zookeeper of --tier nodes has its own",
        ),
        (["--seed", "1", *ZOOKEEPER, "--mode", "liveness"], "--mode would have no effect"),
        (["--seed", "1", *ZOOKEEPER, "--faults", "resign"], "no fault resign of --tier nodes"),
        (["--seed", "1", "--jobs", "2"], "--jobs goes only with --seeds"),
        (["--seeds", "1..2", "--jobs", "0"], "it takes one process at least"),
        (["--seeds", "1..2", "--trace", "-"], "--trace goes only with --seed"),
        (["--seeds", "1..2", "--trace-json", "f"], "--trace-json goes only with --seed"),
        (["--seeds", "1..2", "--show"], "--show goes only with --seed"),
        (["--seed", "1", "--listen", "127.0.0.1:0"], "--listen goes only with --show"),
        (
            ["--seed", "1", "--show", "--listen", "0.0.0.0:0"],
            "--listen: 0.0.0.0 is not a loopback address",
        ),
        (["--mutant", "all"], "planted bugs are replayed by tools/mutants of the source tree"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_remedy(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = simulate(capsys, *argv)
    assert (code, out) == (2, "")
    assert sentence in err


def test_a_campaign_that_is_killed_leaves_nobody_behind() -> None:
    argv = ["-m", "sparkraft.cli.main", "simulate", "--seeds", "1..200", "--seconds", "3600"]
    campaign = subprocess.Popen([sys.executable, *argv, "--jobs", "2"])
    try:
        workers = await_processes(lambda: len(busy(campaign.pid)) == 2 and busy(campaign.pid))
    finally:
        campaign.kill()
        campaign.wait()
    await_processes(lambda: not workers & set(processes()))


def processes() -> dict[int, tuple[int, str]]:
    """Of each process that lives its parent and its state."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":  # it has ended, and nobody has asked how
            found[int(stat.parent.name)] = int(parent), state
    return found


def busy(pid: int) -> set[int]:
    """The children of a process that compute at this moment."""
    return {
        child for child, (parent, state) in processes().items() if (parent, state) == (pid, "R")
    }


def await_processes(until: Callable[[], Any]) -> Any:
    for _ in range(1_200):
        if found := until():
            return found
        time.sleep(0.05)
    raise AssertionError("not within a minute")


def test_list_names_all_there_is_to_choose(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = simulate(capsys, "--list")
    assert code == 0
    assert set(EVERY) <= {
        (tier, line.strip())
        for tier, part in (("nodes", 1), ("cores", 2))
        for line in out.split("scenarios of --tier ")[part].splitlines()
    }

"""Which seed shows which planted bug: stored, replayed, searched for.

`seeds.json` has, for each bug and tier, a seed at which one of its invariants reported it,
that invariant, and how long the search took. A change of the simulation that draws random numbers
in another order makes seeds stale; `tools/mutants --find` finds new ones.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sparkraft.simulation.scenarios.campaign import Result, run
from sparkraft.simulation.scenarios.core_scenarios import Settings
from sparkraft.simulation.scenarios.node_scenarios import NODE_SCENARIOS
from tests.mutants.mutant import planted
from tests.mutants.registry import CASES, MutantCase
from tests.mutants.replacements import Replacement, note

SEEDS_FILE = Path(__file__).with_name("seeds.json")

SECONDS = 20
"""Length of chaos in these runs."""

SECONDS_OF = {"transactions": 12, "groups": 12, "principals": 6, "migration": 30, "zookeeper": 20}
"""The same for workloads whose bugs show sooner, or that begin later."""

SEEDS_MAX = 1_000
"""A bug that this many seeds do not show needs a better aimed fault, not more seeds."""

NEIGHBORS = 40
"""Seeds tried from the stored one on before a bug counts as missed: any change of the simulation
may move the run that shows it."""


class Finding(NamedTuple):
    """What a search for a bug found."""

    seed: int
    invariant: str
    seconds: float
    """Duration of the search, from seed 1 or from the seed stored before on."""


def read_seeds() -> dict[MutantCase, Finding]:
    return {
        MutantCase(name, tier): Finding(**found)
        for name, tiers in json.loads(SEEDS_FILE.read_text()).items()
        for tier, found in tiers.items()
    }


def write_seeds(seeds: dict[MutantCase, Finding]) -> None:
    """Write the seeds of all known bugs, in the order of the registry."""
    lines: dict[str, list[str]] = {}
    for case in CASES:
        if case in seeds:
            found = json.dumps(seeds[case]._asdict())
            lines.setdefault(case.name, []).append(f'"{case.tier}": {found}')
    bugs = [f' "{name}": {{{", ".join(tiers)}}}' for name, tiers in lines.items()]
    SEEDS_FILE.write_text("{\n" + ",\n".join(bugs) + "\n}\n")


MUTANT_SEEDS = read_seeds()


def settings_for(case: MutantCase, seed: int) -> Settings:
    known, scenario = case.mutant, case.mutant.scenario
    if case.tier == "nodes" and scenario not in NODE_SCENARIOS:
        scenario = "chaos"
    return Settings(
        seed=seed,
        tier=case.tier,
        scenario=scenario,
        seconds=SECONDS_OF.get(known.workload, SECONDS),
        workload=known.workload,
        liveness=known.liveness,
    )


def run_planted(case: MutantCase, seed: int) -> Result:
    known = case.mutant
    only = known.seen_by if known.is_isolated(case.tier) else ()
    with planted(known):
        return run(settings_for(case, seed), only=only)


@cache
def run_clean(settings: Settings) -> Result:
    """Run without a planted bug, once for all bugs that share the settings."""
    return run(settings)


def by_settings(cases: Iterable[MutantCase]) -> list[MutantCase]:
    """Order cases so that those with the same clean run are neighbors."""

    def settings_of(case: MutantCase) -> tuple[str, int]:
        stored = settings_for(case, MUTANT_SEEDS[case].seed)
        return repr(replace(stored, seed=0)), stored.seed

    return sorted(cases, key=settings_of)


def is_seen(result: Result, case: MutantCase) -> bool:
    """Whether one of the invariants meant to report the bug did so."""
    return result.violation in case.mutant.seen_by


def replay(case: MutantCase) -> Result:
    """Run the stored seed with the bug planted, or else the next one that shows it.

    Raises:
        KeyError: no seed is stored.
    """
    stored = MUTANT_SEEDS[case].seed
    result = run_planted(case, stored)
    for seed in range(stored + 1, stored + NEIGHBORS):
        if is_seen(result, case):
            break
        result = run_planted(case, seed)
    return result


def assert_seen(case: MutantCase) -> None:
    """Assert that a run shows the planted bug, and nothing without it."""
    found = replay(case)
    stored = MUTANT_SEEDS[case].seed
    assert is_seen(found, case), f"no seed from {stored} on shows it: {found.violation}"
    clean = run_clean(found.settings)
    assert clean.violation is None, f"{clean.violation} without the bug: {clean.text}"
    if found.settings.seed != stored and found.violation:
        seed, seconds = found.settings.seed, round(found.seconds, 1)
        note(Replacement(*case, seed, found.violation, seconds))


def search(case: MutantCase, on_seed: Callable[[int], None] = lambda _: None) -> Result | None:
    """Return the first run from seed 1 on that shows the bug and is clean without it."""
    for seed in range(1, SEEDS_MAX + 1):
        on_seed(seed)
        result = run_planted(case, seed)
        if is_seen(result, case) and run_clean(settings_for(case, seed)).violation is None:
            return result
    return None

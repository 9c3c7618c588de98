"""Replay planted bugs, find seeds for them, and keep their table.

tools/mutants all                replay every stored seed; each bug must be reported
tools/mutants NAME ...           some bugs, in every tier (NAME@cores or NAME@nodes: in one)
tools/mutants --find NAME ...    search from seed 1 on and store what is found
tools/mutants --refresh NAME ... replay, and store the seeds found in place of stale ones
tools/mutants --store FILE       store the seeds that tests noted in FILE, and write the table
tools/mutants --list             names, tiers, invariants
tools/mutants --table            write docs/planted-bugs.md
tools/mutants --check            exit with 1 if docs/planted-bugs.md is out of date
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic

from sparkraft.simulation.scenarios.campaign import each
from tests.mutants.kafka_issues import ISSUES, MIGRATION_ISSUES, RACES
from tests.mutants.migration_bugs import MIGRATION_BUGS
from tests.mutants.mutant_seeds import (
    MUTANT_SEEDS,
    Finding,
    is_seen,
    read_seeds,
    replay,
    search,
    settings_for,
    write_seeds,
)
from tests.mutants.registry import CASES, MutantCase, cases_named
from tests.mutants.replacements import noted
from tests.mutants.scenario_bugs import SCENARIO_BUGS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "planted-bugs.md"
MISSED = 1

_HEAD = """# Planted bugs

Generated from `tests/mutants` by `tools/mutants --table`; do not edit.

Each bug is planted in bare raft cores or in whole nodes, for the length of one run. One of its
[invariants](invariants.md) must report it, and the same seed must be clean without it. Reported by
names the invariant that did so; *only* means that no other invariant was checked in that run. Seed
and seconds are of a search from seed 1 on (`tools/mutants --find`), or from the seed stored before
(`tools/mutants --refresh`), two searches side by side on two cores. A change of the simulator can
change what a seed does. If a stored seed stops showing its bug, the tests try the seeds after it.

| planted bug | tier | scenario | reported by | seed | seconds |
|---|---|---|---|--:|--:|
"""


_SCENARIOS = """
## In scenarios

The simulator does not reach these bugs of coordinators and of the migration from ZooKeeper. Each is
reported by a test of one interleaving or state (`scenario_bugs.py` and `migration_bugs.py` in
`tests/mutants`).

| planted bug | reported by |
|---|---|
"""

_ISSUES = """
## Issues of Apache Kafka

Bugs that Apache Kafka's coordinators have had, planted here. Issues of share and streams groups,
which are not served, are left out.

| issue | planted bugs |
|---|---|
"""

_MIGRATION_ISSUES = """
Bugs of its migration from ZooKeeper (KIP-866):

| issue | planted bugs |
|---|---|
"""

_RACES = """
## Races of coordinators

| race | tests |
|---|---|
"""


def page(seeds: Mapping[MutantCase, Finding] = MUTANT_SEEDS) -> str:
    tested = (SCENARIO_BUGS | MIGRATION_BUGS).items()
    scenarios = [f"| `{name}`: {bug.about} | `{bug.test}` |" for name, bug in tested]
    issues = [f"| {issue} | {_listed(bugs)} |" for issue, bugs in ISSUES.items()]
    migration = [f"| {issue} | {_listed(bugs)} |" for issue, bugs in MIGRATION_ISSUES.items()]
    races = [f"| {race} | {_listed(tests)} |" for race, tests in RACES.items()]
    return (
        _HEAD
        + "".join(_row(case, seeds[case]) for case in CASES)
        + "".join(
            head + "".join(f"{line}\n" for line in lines)
            for head, lines in (
                (_SCENARIOS, scenarios),
                (_ISSUES, issues),
                (_MIGRATION_ISSUES, migration),
                (_RACES, races),
            )
        )
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(case: MutantCase, found: Finding) -> str:
    known = case.mutant
    only = "only " if known.is_isolated(case.tier) else ""
    return (
        f"| `{case.name}`: {known.about} | {case.tier} | "
        f"`{settings_for(case, found.seed).scenario}` | "
        f"{only}{found.invariant} | {found.seed} | {found.seconds:g} |\n"
    )


def main(argv: list[str]) -> int:
    options = _parse(argv)
    if options.list:
        return _list()
    if options.store:
        _store(options.store)
    if options.table or options.store:
        PAGE.write_text(page(read_seeds()))
        return 0
    if options.check:
        return _check()
    try:
        cases = cases_named(options.names)
    except KeyError as error:
        sys.exit(f"tools/mutants: no planted bug {error}; --list names them")
    return _play(cases, find=options.find, store=options.find or options.refresh, jobs=options.jobs)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "tools/mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--find", action="store_true", help="search for seeds and store them")
    parser.add_argument("--refresh", action="store_true", help="replay, and replace stale seeds")
    parser.add_argument("--jobs", type=int, help="processes; default: one per core")
    parser.add_argument("--store", type=Path, metavar="FILE", help="store seeds that tests noted")
    for name in ("list", "table", "check"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args(argv)
    if not (options.names or options.list or options.table or options.check or options.store):
        parser.error("name planted bugs, or `all`")
    if options.jobs is not None and options.jobs < 1:
        parser.error(f"--jobs must be at least 1, not {options.jobs}")
    return options


def _store(file: Path) -> None:
    seeds = read_seeds()
    for found in noted(file):
        case = MutantCase(found.name, found.tier)
        print(f"stored {case}: seed {found.seed}")
        seeds[case] = Finding(found.seed, found.invariant, found.seconds)
    write_seeds(seeds)


def _list() -> int:
    for case in CASES:
        known = case.mutant
        print(f"{case!s:<58} {known.about} ({' or '.join(known.seen_by)})")
    return 0


def _check() -> int:
    if PAGE.exists() and PAGE.read_text() == page():
        return 0
    print("docs/planted-bugs.md is out of date; run: tools/mutants --table")
    return MISSED


def _play(cases: list[MutantCase], *, find: bool, store: bool, jobs: int | None) -> int:
    missed, seeds = [], dict(MUTANT_SEEDS)
    for case, found in each(_play_one, [(case, find) for case in cases], jobs):
        if isinstance(found, Finding):
            text = f"seed {found.seed}: {found.invariant} ({found.seconds:.1f} s)"
            print(f"seen   {case!s:<58} {text}", flush=True)
            if find or found.seed != seeds[case].seed:
                seeds[case] = found
        else:
            missed.append(str(case))
            print(f"MISSED {case!s:<58} {found}", flush=True)
    if store:
        write_seeds(seeds)
    print(f"{len(cases) - len(missed)} of {len(cases)} planted bugs were reported")
    if missed:
        print(f"tools/mutants: not reported: {', '.join(missed)}", file=sys.stderr)
    return MISSED if missed else 0


def _play_one(case: MutantCase, find: bool) -> Finding | str:
    begun = monotonic()
    result = search(case) if find or case not in MUTANT_SEEDS else replay(case)
    if result is None:
        return "no seed shows it"
    if result.violation is None or not is_seen(result, case):
        return f"seed {result.settings.seed}: {result.violation}"
    return Finding(result.settings.seed, result.violation, round(monotonic() - begun, 1))

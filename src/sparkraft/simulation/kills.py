"""Which seed shows which planted bug, and how to look for such seeds.

`KILLS` was found by `sparkraft simulate --mutant all --fresh`; whatever changes the dice (a new
fault, another order of rolls) makes it stale, and the same command finds it anew.
"""

from collections.abc import Callable

from sparkraft.simulation.campaign import Result, run
from sparkraft.simulation.mutants import MUTANTS
from sparkraft.simulation.scenarios import Settings

SECONDS = 20
"""Chaos lasts so long in the runs that look for planted bugs."""

SEEDS_MAX = 1_000
"""A bug that so many seeds don't show needs a better aimed fault, not more seeds."""

KILLS: dict[str, int] = {
    "vote-not-persisted": 1,
    "election-state-not-synced": 8,
    "epoch-not-persisted": 1,
    "votes-twice": 4,
    "votes-for-a-shorter-log": 12,
    "candidate-claims-unsynced-records": 1,
    "candidate-keeps-the-epoch": 2,
    "a-minority-wins": 50,
    "a-restarted-leader-votes-again": 42,
    "pre-vote-raises-the-epoch": 1,
    "pre-vote-granted-behind-the-leaders-back": 1,
    "pre-vote-binds": 1,
    "leader-counts-unsynced-records": 8,
    "follower-acknowledges-unsynced-records": 1,
    "high-watermark-over-old-epochs": 1,
    "high-watermark-of-a-minority": 1,
    "directory-ids-are-ignored": 1,
    "observers-are-counted": 1,
    "truncates-too-far": 1,
    "divergence-is-not-seen": 8,
    "fetched-batches-are-renumbered": 1,
    "a-stale-controller-answers": 2,
    "two-voter-changes-at-once": 1,
    "voters-change-before-the-epoch-has-begun": 1,
    "a-removed-leader-leads-on": 22,
    "snapshot-of-uncommitted-state": 1,
    "cleaned-beyond-the-snapshot": 1,
    "snapshot-loaded-in-part": 5,
    "no-check-quorum": 6,
    "a-follower-waits-for-ever": 1,
    "a-failed-peer-is-given-up": 2,
}


def settings_for(mutant: str, seed: int) -> Settings:
    """The run that is to show `mutant`."""
    return Settings(seed=seed, scenario=MUTANTS[mutant].scenario, seconds=SECONDS)


def sees(result: Result, mutant: str) -> bool:
    """Whether one of the invariants meant to see the bug saw it."""
    return result.violation in MUTANTS[mutant].seen_by


def replay(mutant: str) -> Result:
    """The stored seed with the bug planted."""
    return run(settings_for(mutant, KILLS[mutant]), mutant)


def search(mutant: str, on_seed: Callable[[int], None] = lambda _: None) -> Result | None:
    """The first seed from 1 on at which the right invariant sees the bug, clean without it."""
    for seed in range(1, SEEDS_MAX + 1):
        on_seed(seed)
        result = run(settings_for(mutant, seed), mutant)
        if sees(result, mutant) and run(settings_for(mutant, seed)).violation is None:
            return result
    return None

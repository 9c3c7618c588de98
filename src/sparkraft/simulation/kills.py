"""Which seed shows which planted bug, and how to look for such seeds.

`KILLS` was found by `sparkraft simulate --mutant all --fresh`; whatever changes the dice (a new
fault, another order of rolls) makes it stale, and the same command finds it anew.
"""

from collections.abc import Callable

from sparkraft.simulation.campaign import Result, run
from sparkraft.simulation.mutants import all_mutants
from sparkraft.simulation.scenarios import Settings

SECONDS = 20
"""Chaos lasts so long in the runs that look for planted bugs."""

SEEDS_MAX = 1_000
"""A bug that so many seeds don't show needs a better aimed fault, not more seeds."""

NEIGHBOURS = 40
"""A change anywhere moves the dice: a stored seed that shows nothing has so many successors tried
before the bug counts as missed."""

KILLS: dict[str, int] = {
    "vote-not-persisted": 1,
    "election-state-not-synced": 27,
    "epoch-not-persisted": 1,
    "votes-twice": 19,
    "votes-for-a-shorter-log": 12,
    "candidate-claims-unsynced-records": 1,
    "candidate-keeps-the-epoch": 2,
    "a-minority-wins": 5,
    "a-restarted-leader-votes-again": 13,
    "pre-vote-raises-the-epoch": 1,
    "pre-vote-granted-behind-the-leaders-back": 2,
    "pre-vote-binds": 1,
    "leader-counts-unsynced-records": 9,
    "follower-acknowledges-unsynced-records": 1,
    "high-watermark-over-old-epochs": 1,
    "high-watermark-of-a-minority": 1,
    "directory-ids-are-ignored": 1,
    "observers-are-counted": 1,
    "truncates-too-far": 6,
    "divergence-is-not-seen": 8,
    "fetched-batches-are-renumbered": 1,
    "a-stale-controller-answers": 2,
    "two-voter-changes-at-once": 1,
    "voters-change-before-the-epoch-has-begun": 1,
    "a-removed-leader-leads-on": 27,
    "snapshot-of-uncommitted-state": 1,
    "cleaned-beyond-the-snapshot": 1,
    "snapshot-loaded-in-part": 8,
    "no-check-quorum": 1,
    "a-follower-waits-for-ever": 1,
    "a-failed-peer-is-given-up": 2,
    # whole nodes
    "the-vote-file-is-not-written": 1,
    "the-vote-file-is-not-synced": 1,
    "the-vote-file-is-not-read": 2,
    "the-metadata-log-is-not-synced": 1,
    "a-cut-comes-back-below-newer-records": 10,
    "a-minority-leads-whole-nodes": 18,
    "a-returning-broker-keeps-its-epoch": 1,
    "broker-epochs-are-the-controllers-epoch": 1,
    "answers-before-the-commit": 51,
    "producer-ids-without-a-record": 1,
    "producer-ids-from-the-beginning": 1,
    "nobody-is-elected-for-a-returning-broker": 1,
    "sessions-never-lapse": 1,
    "a-snapshot-without-controllers": 3,
    "images-of-what-is-not-committed": 143,
    "a-deposed-controller-forgets-nothing": 34,
    "records-in-the-newest-version": 4,
    "controllers-register-too-early": 9,
    "brokers-register-in-the-newest-version": 2,
    # replication
    "kip-101-truncation-to-the-high-watermark": 1,
    "kip-279-truncation-in-one-step": 1,
    "no-epoch-in-a-followers-fetch": 8,
    "kip-320-divergence-is-not-heeded": 8,
    "kip-966-high-watermark-below-min-insync": 22,
    "acks-above-the-high-watermark": 1,
    "records-are-not-synced": 1,
    "followers-do-not-sync": 5,
    "the-page-cache-counts-as-the-disk": 3,
    "epochs-outlive-their-records": 21,
    "truncation-one-too-far": 3,
    "pending-shrink-counts-as-done": 4,
    "high-watermark-of-the-fastest": 8,
    "high-watermark-without-followers": 3,
    "isr-expands-at-once": 8,
    "isr-expands-before-the-epochs-start": 36,
    "the-fenced-stay-in-sync": 1,
    "every-election-is-unclean": 6,
    "elr-beside-the-isr": 1,
    "elr-of-everybody": 10,
    "a-replaced-leader-leads-on": 8,
    "batches-sent-again-are-appended": 3,
    "followers-keep-no-producers": 8,
    "consumers-read-to-the-end": 1,
    "offsets-before-replication": 14,
    # explanations
    "elections-among-the-dead": 1,
    "explanations-without-losers": 2,
    "lags-as-of-the-answer": 9,
    "behind-since-the-last-fetch": 1,
    "refused-isr-changes-are-noted": 15,
    "earlier-isr-changes-explain-later-ones": 2,
    "the-fenced-are-told-as-slow": 1,
    "every-fencing-is-for-silence": 10,
    "shutdowns-are-told-as-fencings": 1,
    "the-past-from-the-newest-image": 1,
    "times-are-rounded-up": 2,
    "who-lags-is-told-as-offline": 1,
    # one invariant alone
    "a-leader-outside-its-isr": 1,
    "a-partition-epoch-that-stands-still": 1,
    "replicas-side-by-side": 1,
    "high-watermark-ahead-of-the-isr": 4,
    "who-leaves-does-not-count": 1,
    "elr-that-stays": 1,
    "one-replica-moves-the-high-watermark": 4,
    "leader-epochs-are-not-compared": 1,
    "earlier-lives-count": 1,
    "compaction-of-last-records": 3,
    "one-share-for-all": 2,
    "commits-of-older-generations": 5,
    "acknowledged-and-overwritten": 4,
    "read-and-overwritten": 1,
    "records-of-nobody": 2,
    "batches-passed-over": 3,
    "acknowledged-and-sent-again": 1,
    "the-end-goes-back": 4,
    "epochs-of-nothing": 8,
    "sequences-with-a-gap": 1,
    "silence-counts-as-refusal": 7,
    "groups-without-leadership": 6,
    "a-tail-that-nobody-sees": 1,
    "appended-and-refused": 4,
    "read-twice": 1,
    # storage
    "recovery-trusts-the-recovery-point-alone": 1,
    "recovery-without-crcs": 1,
    "entries-behind-their-batches": 1,
    "epochs-written-in-place": 1,
    "producers-of-what-was-cut": 1,
    "segments-go-before-the-start-is-kept": 1,
    "retention-above-the-high-watermark": 13,
    "indexes-outlive-their-segment": 1,
    "a-full-disk-goes-unnoticed": 2,
    "a-time-type-of-its-own": 1,
}


def settings_for(mutant: str, seed: int) -> Settings:
    """The run that is to show `mutant`."""
    known = all_mutants()[mutant]
    return Settings(
        seed=seed,
        tier=known.tier,
        scenario=known.scenario,
        seconds=SECONDS,
        workload=known.workload,
        liveness=known.liveness,
    )


def sees(result: Result, mutant: str) -> bool:
    """Whether one of the invariants meant to see the bug saw it."""
    return result.violation in all_mutants()[mutant].seen_by


def replay(mutant: str) -> Result:
    """The stored seed with the bug planted, or the next that shows it.

    Raises:
        KeyError: none is stored.
    """
    stored = KILLS[mutant]
    result = run(settings_for(mutant, stored), mutant)
    for seed in range(stored + 1, stored + NEIGHBOURS):
        if sees(result, mutant):
            break
        result = run(settings_for(mutant, seed), mutant)
    return result


def search(mutant: str, on_seed: Callable[[int], None] = lambda _: None) -> Result | None:
    """The first seed from 1 on at which the right invariant sees the bug, clean without it."""
    for seed in range(1, SEEDS_MAX + 1):
        on_seed(seed)
        result = run(settings_for(mutant, seed), mutant)
        if sees(result, mutant) and run(settings_for(mutant, seed)).violation is None:
            return result
    return None

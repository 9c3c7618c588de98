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
    "election-state-not-synced": 2,
    "epoch-not-persisted": 1,
    "votes-twice": 2,
    "votes-for-a-shorter-log": 4,
    "candidate-claims-unsynced-records": 1,
    "candidate-keeps-the-epoch": 1,
    "a-minority-wins": 6,
    "a-restarted-leader-votes-again": 13,
    "pre-vote-raises-the-epoch": 1,
    "pre-vote-granted-behind-the-leaders-back": 2,
    "pre-vote-binds": 1,
    "leader-counts-unsynced-records": 1,
    "follower-acknowledges-unsynced-records": 1,
    "high-watermark-over-old-epochs": 1,
    "high-watermark-of-a-minority": 1,
    "directory-ids-are-ignored": 1,
    "observers-are-counted": 1,
    "truncates-too-far": 6,
    "divergence-is-not-seen": 3,
    "fetched-batches-are-renumbered": 1,
    "a-stale-controller-answers": 1,
    "two-voter-changes-at-once": 1,
    "voters-change-before-the-epoch-has-begun": 1,
    "a-removed-leader-leads-on": 3,
    "snapshot-of-uncommitted-state": 1,
    "cleaned-beyond-the-snapshot": 1,
    "snapshot-loaded-in-part": 8,
    "no-check-quorum": 1,
    "a-follower-waits-for-ever": 1,
    "a-failed-peer-is-given-up": 2,
    # whole nodes
    "the-vote-file-is-not-written": 1,
    "the-vote-file-is-not-synced": 1,
    "the-vote-file-is-not-read": 1,
    "the-metadata-log-is-not-synced": 1,
    "a-cut-comes-back-below-newer-records": 3,
    "a-minority-leads-whole-nodes": 2,
    "a-returning-broker-keeps-its-epoch": 1,
    "broker-epochs-are-the-controllers-epoch": 1,
    "places-of-the-living-are-given-away": 1,
    "a-new-controller-decides-at-once": 1,
    "answers-before-the-commit": 1,
    "producer-ids-without-a-record": 1,
    "producer-ids-from-the-beginning": 1,
    "nobody-is-elected-for-a-returning-broker": 1,
    "sessions-never-lapse": 1,
    "a-snapshot-without-controllers": 5,
    "images-of-what-is-not-committed": 113,
    "a-deposed-controller-forgets-nothing": 16,
    "records-in-the-newest-version": 4,
    "controllers-register-too-early": 9,
    "brokers-register-in-the-newest-version": 2,
    # replication
    "kip-101-truncation-to-the-high-watermark": 3,
    "kip-279-truncation-in-one-step": 1,
    "no-epoch-in-a-followers-fetch": 9,
    "kip-320-divergence-is-not-heeded": 6,
    "kip-966-high-watermark-below-min-insync": 14,
    "acks-above-the-high-watermark": 1,
    "records-are-not-synced": 1,
    "followers-do-not-sync": 3,
    "the-page-cache-counts-as-the-disk": 1,
    "epochs-outlive-their-records": 137,
    "truncation-one-too-far": 1,
    "pending-shrink-counts-as-done": 2,
    "high-watermark-of-the-fastest": 8,
    "high-watermark-without-followers": 1,
    "isr-expands-at-once": 4,
    "isr-expands-before-the-epochs-start": 15,
    "the-fenced-stay-in-sync": 1,
    "every-election-is-unclean": 6,
    "elr-beside-the-isr": 1,
    "every-stop-is-clean": 1,
    "elr-of-everybody": 1,
    "a-replaced-leader-leads-on": 7,
    "batches-sent-again-are-appended": 3,
    "followers-keep-no-producers": 1,
    "consumers-read-to-the-end": 1,
    "offsets-before-replication": 22,
    # explanations
    "elections-among-the-dead": 1,
    "explanations-without-losers": 1,
    "lags-as-of-the-answer": 90,
    "behind-since-the-last-fetch": 1,
    "refused-isr-changes-are-noted": 1,
    "earlier-isr-changes-explain-later-ones": 3,
    "the-fenced-are-told-as-slow": 1,
    "every-fencing-is-for-silence": 4,
    "shutdowns-are-told-as-fencings": 3,
    "the-past-from-the-newest-image": 1,
    "times-are-rounded-up": 1,
    "who-lags-is-told-as-offline": 1,
    # reassignments
    "a-move-goes-on-for-ever": 8,
    "preferred-leaders-stay-away": 1,
    "who-was-taken-out-stays-in-sync": 7,
    "who-was-taken-out-is-not-told": 7,
    # one invariant alone
    "a-leader-outside-its-isr": 1,
    "a-partition-epoch-that-stands-still": 1,
    "replicas-side-by-side": 1,
    "high-watermark-ahead-of-the-isr": 5,
    "who-leaves-does-not-count": 1,
    "elr-that-stays": 1,
    "one-replica-moves-the-high-watermark": 103,
    "leader-epochs-are-not-compared": 1,
    "earlier-lives-count": 3,
    "compaction-of-last-records": 7,
    "one-share-for-all": 1,
    "commits-of-older-generations": 2,
    "acknowledged-and-overwritten": 5,
    "read-and-overwritten": 5,
    "records-of-nobody": 1,
    "batches-passed-over": 5,
    "acknowledged-and-sent-again": 5,
    "the-end-goes-back": 11,
    "epochs-of-nothing": 3,
    "sequences-with-a-gap": 1,
    "silence-counts-as-refusal": 6,
    "groups-without-leadership": 5,
    "a-tail-that-nobody-sees": 1,
    "appended-and-refused": 7,
    "read-twice": 1,
    # storage
    "recovery-trusts-the-recovery-point-alone": 1,
    "recovery-without-crcs": 1,
    "entries-behind-their-batches": 1,
    "epochs-written-in-place": 1,
    "producers-of-what-was-cut": 3,
    "segments-go-before-the-start-is-kept": 1,
    "retention-above-the-high-watermark": 13,
    "indexes-outlive-their-segment": 1,
    "a-full-disk-goes-unnoticed": 3,
    "a-time-type-of-its-own": 1,
    # the quorum of whole nodes
    "divergence-is-not-seen-on-whole-nodes": 3,
    "voters-change-before-the-epoch-has-begun-on-whole-nodes": 36,
    "a-removed-leader-leads-on-on-whole-nodes": 55,
    "pre-vote-raises-the-epoch-on-whole-nodes": 1,
    "pre-vote-granted-behind-the-leaders-back-on-whole-nodes": 1,
    "no-check-quorum-on-whole-nodes": 4,
    "vote-not-persisted-on-whole-nodes": 1,
    "votes-twice-on-whole-nodes": 17,
    "truncates-too-far-on-whole-nodes": 3,
    "votes-for-a-shorter-log-on-whole-nodes": 2,
    "candidate-claims-unsynced-records-on-whole-nodes": 5,
    "a-log-starts-below-its-snapshot": 42,
    "votes-of-the-new-state-are-noted": 1,
    "a-snapshot-without-the-newest-topic": 1,
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

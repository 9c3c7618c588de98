"""Planted bugs in the rules about replicas outside the voter set (`raft.epoch_guard`)."""

from typing import Any

from sparkraft.raft import epoch_guard
from sparkraft.raft.epoch_guard import EPOCH_LAST, EpochGuard
from tests.mutants.mutant import CORES, Mutant, Patches, registrar

OUTSIDER_MUTANTS: dict[str, Mutant] = {}

_mutant = registrar(OUTSIDER_MUTANTS, tiers=CORES, scenario="rogue")


def _nothing(*_: Any) -> None:
    """Refuse nothing."""


@_mutant("the epoch of any Vote is adopted", "Q12")
def _votes_of_outsiders_raise_the_epoch() -> Patches:
    return [(EpochGuard, "why_not_vote", _nothing)]


@_mutant("any leader that announces itself is followed", "Q12")
def _outsiders_are_followed() -> Patches:
    return [(EpochGuard, "why_not_follow", _nothing)]


@_mutant("EndQuorumEpoch counts from any sender", "Q12")
def _anybody_ends_an_epoch() -> Patches:
    return [(EpochGuard, "counts_resignation", lambda *_, **__: True)]


@_mutant("the last epochs are adopted like any other", "Q11", "Q12")
def _the_last_epochs_are_adopted() -> Patches:
    def is_reachable(_: EpochGuard, ours: Any, epoch: int, *, responded: bool = False) -> bool:
        return 0 <= epoch <= EPOCH_LAST

    return [(EpochGuard, "is_reachable", is_reachable)]


@_mutant("an outsider may raise the epoch by any step", "Q12")
def _outsiders_leap() -> Patches:
    return [(epoch_guard, "OUTSIDER_STEP_MAX", 2**31)]


@_mutant(
    "no outsider gets a vote, whatever its log",
    "Q11",
    scenario="a-voter-unknown-to-the-rest-leads",
)
def _outsiders_are_always_refused() -> Patches:
    def why_not_vote(_: EpochGuard, view: Any, candidate: Any, *__: Any) -> str | None:
        return "not a voter" if epoch_guard.is_outsider(view.voters, candidate) else None

    return [(EpochGuard, "why_not_vote", why_not_vote)]

"""Which of `Settings` each scenario heeds, so that nobody asks for what has no effect.

The fields are `nodes`, `observers`, `seconds`, `faults`, `liveness` and `workload`; `seed` and
`tier` matter to all.
"""

from dataclasses import dataclass

from sparkraft.simulation.scenarios import GENTLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Heeded:
    """What one scenario heeds.

    Attributes:
        fields: of `Settings`; all others are as the scenario has them.
        nodes_min: with fewer voters it can't be played; where it heeds `nodes`.
        kinds: of faults that it bears, where it heeds `faults`; None: all, as it mends them.
    """

    fields: frozenset[str]
    nodes_min: int = 1
    kinds: tuple[str, ...] | None = None


def heeded(tier: str, scenario: str) -> Heeded:
    """What `scenario` of `tier` heeds; `KeyError` where there is none."""
    if tier == "cores":
        return _OF_CORES[scenario]
    from sparkraft.simulation import node_scenarios  # loads the whole server

    if scenario in node_scenarios.KAFKAS:
        return _heeds(
            "nodes",
            "observers",
            "faults",
            nodes_min=min(node_scenarios.KAFKAS[scenario][1]),
            kinds=node_scenarios.GENTLE,
        )
    return _OF_NODES[scenario]


def _heeds(*fields: str, nodes_min: int = 1, kinds: tuple[str, ...] | None = None) -> Heeded:
    return Heeded(fields=frozenset(fields), nodes_min=nodes_min, kinds=kinds)


_CHAOS = ("nodes", "observers", "seconds", "faults", "liveness")
_OF_NODES = {
    "chaos": _heeds(*_CHAOS, "workload"),
    "leaders-come-and-go": _heeds(*_CHAOS),
    "replicas-move": _heeds(*_CHAOS),
    "leaders-take-turns-alone": _heeds("seconds"),
    "killed-then-unplugged": _heeds("seconds"),
}

_ONE_OR_MORE = _heeds("nodes", "observers", "faults", kinds=GENTLE)
_THREE_OR_MORE = _heeds("nodes", "observers", "faults", nodes_min=3, kinds=GENTLE)
_ITS_OWN_FAULTS = _heeds("nodes", "observers", nodes_min=3)
_OF_CORES = {
    "chaos": _heeds(*_CHAOS),
    "can-elect-initial-leader": _ONE_OR_MORE,
    "can-elect-new-leader-after-old-leader-failure": _THREE_OR_MORE,
    "can-recover-after-all-nodes-killed": _ONE_OR_MORE,
    "can-elect-new-leader-after-old-leader-partitioned-away": _THREE_OR_MORE,
    "can-make-progress-if-majority-is-reachable": _heeds(
        "observers",
        "faults",
        kinds=GENTLE,  # two of five are parted from three
    ),
    "leadership-assigned-only-once-with-network-partition-if-there-exists-majority": _heeds(
        "observers"  # the links of KIP-996 are those of five, without other faults
    ),
    "leadership-will-not-change-during-network-partition-if-majority-still-reachable": _heeds(
        "observers"
    ),
    "can-make-progress-after-back-to-back-leader-failures": _THREE_OR_MORE,
    "can-recover-from-single-node-committed-data-loss": _THREE_OR_MORE,
    "a-wiped-voter-does-not-count": _heeds("observers"),
    "candidates-stand-with-slow-disks": _ITS_OWN_FAULTS,
    "killed-leaders-are-replaced": _ITS_OWN_FAULTS,
    "candidates-meet-behind-slow-links": _ITS_OWN_FAULTS,
    "voters-are-changed-without-pause": _ITS_OWN_FAULTS,
}

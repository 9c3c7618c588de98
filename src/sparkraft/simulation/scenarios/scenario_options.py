"""Which fields of `Settings` each scenario uses, so that options without effect are rejected.

The fields are `nodes`, `observers`, `seconds`, `faults`, `liveness` and `workload`; `seed` and
`tier` matter to all.
"""

from dataclasses import dataclass

from sparkraft.simulation.scenarios.core_scenarios import GENTLE


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """The settings that a scenario uses.

    Attributes:
        fields: names of fields of `Settings`; the scenario sets all others itself.
        nodes_min: the smallest number of voters, or of brokers in ZooKeeper mode, if it uses
            `nodes`.
        kinds: the faults it tolerates, if it uses `faults`; None for all, since it heals them.
    """

    fields: frozenset[str]
    nodes_min: int = 1
    kinds: tuple[str, ...] | None = None


def options_of(tier: str, scenario: str) -> ScenarioOptions:
    """Return the settings that `scenario` of `tier` uses; KeyError if there is no such scenario."""
    if tier == "cores":
        return _OF_CORES[scenario]
    from sparkraft.simulation.scenarios import node_scenarios  # loads the whole server

    if scenario in node_scenarios.KAFKAS:
        return _uses(
            "nodes",
            "observers",
            "faults",
            nodes_min=min(node_scenarios.KAFKAS[scenario][1]),
            kinds=node_scenarios.GENTLE,
        )
    return _OF_NODES[scenario]


def _uses(
    *fields: str, nodes_min: int = 1, kinds: tuple[str, ...] | None = None
) -> ScenarioOptions:
    return ScenarioOptions(fields=frozenset(fields), nodes_min=nodes_min, kinds=kinds)


_CHAOS = ("nodes", "observers", "seconds", "faults", "liveness")
_OF_NODES = {
    "chaos": _uses(*_CHAOS, "workload"),
    "leaders-come-and-go": _uses(*_CHAOS),
    "replicas-move": _uses(*_CHAOS),
    "leaders-take-turns-alone": _uses("seconds"),
    "killed-then-unplugged": _uses("seconds"),
    "coordinators-return": _uses("seconds"),
    "registrations-arrive-late": _uses("seconds"),
    "migration": _uses("nodes", "seconds"),
    "zookeeper": _uses("nodes", "seconds", "faults", nodes_min=3),
}

_ONE_OR_MORE = _uses("nodes", "observers", "faults", kinds=GENTLE)
_THREE_OR_MORE = _uses("nodes", "observers", "faults", nodes_min=3, kinds=GENTLE)
_ITS_OWN_FAULTS = _uses("nodes", "observers", nodes_min=3)
_OF_CORES = {
    "chaos": _uses(*_CHAOS),
    "can-elect-initial-leader": _ONE_OR_MORE,
    "can-elect-new-leader-after-old-leader-failure": _THREE_OR_MORE,
    "can-recover-after-all-nodes-killed": _ONE_OR_MORE,
    "can-elect-new-leader-after-old-leader-partitioned-away": _THREE_OR_MORE,
    "can-make-progress-if-majority-is-reachable": _uses(
        "observers",
        "faults",
        kinds=GENTLE,  # two of five are parted from three
    ),
    "leadership-assigned-only-once-with-network-partition-if-there-exists-majority": _uses(
        "observers"  # the links of KIP-996 are those of five, without other faults
    ),
    "leadership-will-not-change-during-network-partition-if-majority-still-reachable": _uses(
        "observers"
    ),
    "can-make-progress-after-back-to-back-leader-failures": _THREE_OR_MORE,
    "can-recover-from-single-node-committed-data-loss": _THREE_OR_MORE,
    "a-wiped-voter-does-not-count": _uses("observers"),
    "candidates-stand-with-slow-disks": _ITS_OWN_FAULTS,
    "killed-leaders-are-replaced": _ITS_OWN_FAULTS,
    "candidates-meet-behind-slow-links": _ITS_OWN_FAULTS,
    "voters-are-changed-without-pause": _ITS_OWN_FAULTS,
    "a-voter-unknown-to-the-rest-leads": _uses("observers"),
    "rogue": _uses("nodes", "observers", "seconds", nodes_min=3),
}

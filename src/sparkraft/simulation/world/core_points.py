"""Named fault points: the moments at which a fault is most harmful.

A run enables some of them. An enabled one strikes now and then with a random fault. With this bias,
a few seeds find bugs that purely random faults miss for hours.
"""

from sparkraft.simulation.world.core_node import CoreHost, CoreNode, NodeStopped

CORE_POINTS = (
    "before_persist",
    "after_persist",
    "candidate_persisted",
    "candidate_with_unsynced_records",
    "after_vote",
    "between_sends",
    "after_append",
    "after_control_record",
    "before_flush",
    "after_flush",
    "before_commit_is_told",
    "after_truncate",
    "serving_unsynced_records",
    "between_chunks",
    "before_install",
    "after_install",
    "after_clean",
)

BUSY_POINTS = frozenset({"between_sends", "after_append", "before_flush", "after_flush"})
"""Reached very often, so they strike seldom."""

RARE_POINTS = frozenset({"candidate_with_unsynced_records"})
"""Reached in seven runs of a thousand, so they are always enabled and strike each time."""

STRIKE = 0.05
STRIKE_BUSY = 0.002
ENABLED = 0.3
STRUCK_AT_ONCE_MAX = 60
"""Limit of strikes in a run, which would otherwise consist of recovery only."""


class FaultPoints:
    """The points of one world; none strikes before `enable`."""

    def __init__(self, world: CoreHost) -> None:
        self._world = world
        self._enabled: frozenset[str] = frozenset()
        self._left = STRUCK_AT_ONCE_MAX

    def enable(self) -> None:
        """Choose the points of this run at random."""
        dice = self._world.dice
        self._enabled = RARE_POINTS.union(name for name in CORE_POINTS if dice.random() < ENABLED)

    def disable(self) -> None:
        """Stop all strikes."""
        self._enabled = frozenset()

    def reach(self, node: CoreNode, name: str) -> None:
        """Called by `node` at the point `name`; may stop it and raise `NodeStopped`."""
        if name not in self._enabled or not self._left:
            return
        world = self._world
        if name not in RARE_POINTS:
            chance = STRIKE_BUSY if name in BUSY_POINTS else STRIKE
            if world.dice.random() >= chance:
                return
        self._left -= 1
        world.counts[f"point {name}"] += 1
        world.note(f"{node.name} is struck at {name}")
        self._strike(node)

    def _strike(self, node: CoreNode) -> None:
        world, dice = self._world, self._world.dice
        roll = dice.random()
        if roll < 0.55:  # noqa: PLR2004 (the worst fault most often)
            node.stop(power=True)
        elif roll < 0.8:  # noqa: PLR2004 (a kill less often)
            node.stop(power=False)
        else:
            world.after(dice.randint(0, 2), node.pause)
            world.after(dice.randint(500, 6_000), node.resume)
            return
        world.after(dice.choice([1, 20, 300, 3_000]), node.start)
        raise NodeStopped

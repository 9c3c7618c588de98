"""Which directions between nodes are cut, by the names that testers of clusters use.

Each function gives directed pairs (from, to) in a fixed order; nothing passes from the first to the
second. A TCP connection needs both directions to come about.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import TypeAlias

Pairs: TypeAlias = tuple[tuple[str, str], ...]


def deaf(node: str, nodes: Sequence[str]) -> Pairs:
    """One way: `node` is heard, and hears nobody."""
    return tuple((other, node) for other in nodes if other != node)


def mute(node: str, nodes: Sequence[str]) -> Pairs:
    """One way: `node` hears, and is heard by nobody."""
    return tuple((node, other) for other in nodes if other != node)


def apart(group: Sequence[str], nodes: Sequence[str]) -> Pairs:
    """Both ways: nothing between `group` and the others."""
    return tuple((a, b) for a, b in permutations(nodes, 2) if (a in group) != (b in group))


def bridge(middle: str, nodes: Sequence[str]) -> Pairs:
    """Two halves that only `middle` can speak with; the first half is the larger one."""
    others = [node for node in nodes if node != middle]
    first = others[: (len(others) + 1) // 2]
    return apart(first, others)


def ring(nodes: Sequence[str], *, reach: int = 1) -> Pairs:
    """Everyone speaks with `reach` neighbours on each side; the last is the first's neighbour."""
    count = len(nodes)

    def distance(a: str, b: str) -> int:
        steps = (nodes.index(a) - nodes.index(b)) % count
        return min(steps, count - steps)

    return tuple((a, b) for a, b in permutations(nodes, 2) if distance(a, b) > reach)


def majority_ring(nodes: Sequence[str]) -> Pairs:
    """Everyone speaks with a majority, and no two with the same; `ValueError` below 5 nodes.

    Three nodes have no such ring: each would see all, or one of the pairs is cut, a `bridge`.
    """
    if len(nodes) < 5:  # noqa: PLR2004 (the docstring says why)
        raise ValueError(f"a majority ring takes 5 nodes, not {len(nodes)}")
    return ring(nodes, reach=(len(nodes) // 2 + 1) // 2)

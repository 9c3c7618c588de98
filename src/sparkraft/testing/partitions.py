"""Named network partitions, as the directions between nodes that they cut.

Each function returns directed pairs (from, to) in a fixed order; nothing passes from the first to
the second. Opening a TCP connection needs both directions.
"""

from collections.abc import Sequence
from itertools import permutations
from typing import TypeAlias

Pairs: TypeAlias = tuple[tuple[str, str], ...]


def deaf(node: str, nodes: Sequence[str]) -> Pairs:
    """Cut every other node's traffic to `node`; `node` can still send."""
    return tuple((other, node) for other in nodes if other != node)


def mute(node: str, nodes: Sequence[str]) -> Pairs:
    """Cut traffic from `node` to every other node; `node` can still receive."""
    return tuple((node, other) for other in nodes if other != node)


def apart(group: Sequence[str], nodes: Sequence[str]) -> Pairs:
    """Cut both directions between `group` and the other nodes."""
    return tuple((a, b) for a, b in permutations(nodes, 2) if (a in group) != (b in group))


def bridge(middle: str, nodes: Sequence[str]) -> Pairs:
    """Split the nodes into two halves linked by `middle` only; the first half is the larger one."""
    others = [node for node in nodes if node != middle]
    first = others[: (len(others) + 1) // 2]
    return apart(first, others)


def ring(nodes: Sequence[str], *, reach: int = 1) -> Pairs:
    """Keep links to `reach` neighbors on each side; the last node is next to the first."""
    count = len(nodes)

    def distance(a: str, b: str) -> int:
        steps = (nodes.index(a) - nodes.index(b)) % count
        return min(steps, count - steps)

    return tuple((a, b) for a, b in permutations(nodes, 2) if distance(a, b) > reach)


def majority_ring(nodes: Sequence[str]) -> Pairs:
    """Give each node a majority to communicate with, different for each node.

    With three nodes no such ring exists: either no pair is cut, or one is, which is a `bridge`.

    Raises:
        ValueError: there are fewer than 5 nodes.
    """
    if len(nodes) < 5:  # noqa: PLR2004 (explained in the docstring)
        raise ValueError(f"a majority ring needs at least 5 nodes, got {len(nodes)}")
    return ring(nodes, reach=(len(nodes) // 2 + 1) // 2)

"""`./bench loop bounds`: CPU time of one piece of work on the event loop at each of its bounds.

Bounds are the fields of `LOOP_WORK_MAX` and the constants of type `LoopBound`, wherever they are.
`tests/system/test_loop_bounds.py` compares `COSTS` with the source, so a bound without a row fails.
"""

import sys
from collections.abc import Callable

from benchmarks import (
    loop_bound_controller_costs,
    loop_bound_costs,
    loop_bound_fetch_costs,
    loop_bound_group_costs,
    loop_bound_log_costs,
    loop_bound_member_costs,
    loop_bound_request_costs,
    loop_bound_snapshot_costs,
)
from benchmarks.report import Row, Table

PIECE_MS_MAX = 10.0

COSTS: dict[str, Callable[[], dict[str, float]]] = {
    **loop_bound_controller_costs.COSTS,
    **loop_bound_costs.COSTS,
    **loop_bound_fetch_costs.COSTS,
    **loop_bound_group_costs.COSTS,
    **loop_bound_log_costs.COSTS,
    **loop_bound_member_costs.COSTS,
    **loop_bound_request_costs.COSTS,
    **loop_bound_snapshot_costs.COSTS,
}
"""Bound, as `module.NAME` below `sparkraft` → measures the pieces at that bound: name → CPU ms."""


def bounds(only: str = "") -> int:
    """Print the cost at each bound whose name contains `only`; 1 if one is above 10 ms."""
    table = Table("One piece of work on the event loop at each of its bounds")
    for bound, measure in COSTS.items():
        if only not in bound:
            continue
        for what, taken in measure().items():
            name = f"`{bound}`: {what}"
            ratio = taken / PIECE_MS_MAX
            table.add(Row(name, f"{taken:.2f} ms", "10 ms", ratio, at_most=1))
    table.print()
    return 0 if table.met else 1


if __name__ == "__main__":
    sys.exit(bounds(*sys.argv[1:]))

"""A node with a planted bug: the checks of real processes must report it.

    python -m tests.faults.planted_node BUG server-start FILE

The bugs are those of the simulator (`tests.mutants`), and `BUGS`.
"""

import sys
from collections.abc import Callable
from typing import Any

from sparkraft.cli import main as cli
from sparkraft.server.coordinator.marker_log import Marker, MarkerLog
from tests.mutants.mutant import NODES, Mutant, Patches, planted
from tests.mutants.registry import MUTANTS


def _commit_markers_for_aborts() -> Patches:
    original = MarkerLog.write

    def write(self: MarkerLog, marker: Marker, topic: str, index: int) -> Any:
        if (topic, index) == ("orders", 1):
            marker = marker._replace(committed=True)
        return original(self, marker, topic, index)

    return [(MarkerLog, "write", write)]


BUGS: dict[str, Callable[[], Patches]] = {
    "commit-markers-for-aborts": _commit_markers_for_aborts,
}
"""Beside those of the simulator, whose topics have other names."""


def bug_named(name: str) -> Mutant:
    if name in BUGS:
        return Mutant(about=name, seen_by=(), patches=BUGS[name], tiers=NODES)
    return MUTANTS[name]


if __name__ == "__main__":
    with planted(bug_named(sys.argv[1])):
        sys.exit(cli.main(sys.argv[2:]))

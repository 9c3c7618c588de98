"""Seeds that tests found for stale ones: noted by the tests, stored by `./test --record`."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILE_VARIABLE = "SPARKRAFT_SEEDS_FILE"
"""Environment variable: the file that gets the seeds, a JSON array a line."""


class Replacement(NamedTuple):
    """A seed that shows a planted bug, and the invariant that reported it, after `seconds`."""

    name: str
    tier: str
    seed: int
    invariant: str
    seconds: float


def note(found: Replacement) -> None:
    """Append the seed to the file, if a run asked for it."""
    if file := os.environ.get(FILE_VARIABLE):
        with Path(file).open("a") as lines:
            lines.write(json.dumps(found) + "\n")


def noted(file: Path) -> Iterator[Replacement]:
    """Yield the seeds of a file; it exists only if a seed was stale."""
    if file.exists():
        for line in file.read_text().splitlines():
            yield Replacement(*json.loads(line))

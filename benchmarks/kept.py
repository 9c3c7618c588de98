"""Rows of a suite measured part by part, kept in `.cache/bench` until they are measured anew."""

import json
from dataclasses import asdict

from benchmarks.measure import BUILD
from benchmarks.report import Row


def keep(suite: str, part: str, rows: list[Row]) -> None:
    """Put these rows in the place of what was kept of this part."""
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"{suite}-{part}.json"
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False))


def kept(suite: str, part: str) -> list[Row]:
    """The rows of this part; none where it was never measured."""
    path = BUILD / f"{suite}-{part}.json"
    if not path.exists():
        return []
    return [Row(**fields) for fields in json.loads(path.read_text())]

"""The documents of batches that pipelines write beside their checkpoints on this machine.

A pipeline appends a line per batch to `CHECKPOINT.batches.jsonl`. Checkpoints themselves have very
many files, and are not searched.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

SUFFIX = ".batches.jsonl"

FILES_MAX = 200
DEPTH_MAX = 4
"""Folders below the given one."""

READ_BYTES_MAX = 256 << 10
"""The end of a file: some hundred batches."""

_BESIDE = (SUFFIX, ".status.json")
"""Suffixes of files beside a checkpoint."""


def newest_documents(folder: Path, *, batches_max: int) -> tuple[list[Json], int]:
    """Return the newest documents of each pipeline below `folder`, and how many lines are damaged.

    Each has `atMs`, the end of the batch.
    """
    found: list[Json] = []
    damaged = 0
    for path in batch_files(folder):
        documents, wrong = _newest_of(path, batches_max)
        found += documents
        damaged += wrong
    return found, damaged


def batch_files(folder: Path) -> list[Path]:
    """The newest file of each pipeline, at most `FILES_MAX`."""
    found: list[Path] = []
    for path in _below(folder, DEPTH_MAX):
        if len(found) == FILES_MAX:
            break
        found.append(path)
    return found


def _below(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    names = {entry.name for entry in listed}
    for entry in listed:
        if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False):
            yield Path(entry.path)
        elif depth and entry.is_dir(follow_symlinks=False):
            is_checkpoint = any(entry.name + suffix in names for suffix in _BESIDE)
            if not is_checkpoint:
                yield from _below(Path(entry.path), depth - 1)


def _newest_of(path: Path, batches_max: int) -> tuple[list[Json], int]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - READ_BYTES_MAX)
            file.seek(start)
            data = file.read(READ_BYTES_MAX)
    except OSError:
        return [], 0
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    if start:
        lines = lines[1:]  # a part of one
    documents = [(line, _parsed(line)) for line in lines[-batches_max:] if line]
    found = [one for _, one in documents if one is not None]
    return found, len(documents) - len(found)


def _parsed(line: bytes) -> Json | None:
    """The document of a line; None if it is not one, such as a line that a kill has cut off."""
    try:
        found = json.loads(line)
        ended = datetime.fromisoformat(found["started"]).timestamp() + found["seconds"]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return {**found, "atMs": int(ended * 1000)}

"""The status of a pipeline, in a file beside its checkpoint, and requests to a running one.

    CHECKPOINT.status.json   what it does and what its last batch was, rewritten after each batch
    CHECKPOINT.lock          locked while a process runs the pipeline
    CHECKPOINT.paused        exists while the pipeline is to pause

Only checkpoints in a folder of this machine have these files.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUFFIX: Final = ".status.json"
_LOOK_SECONDS: Final = 0.1


def is_local(checkpoint: str) -> bool:
    """Whether the checkpoint is a folder of this machine."""
    return "://" not in checkpoint


def nearest_folder(path: str) -> Path:
    """The nearest part of a path of this machine that exists; perhaps the path itself."""
    folder = Path(path).absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def beside(checkpoint: str, suffix: str) -> Path:
    """A file beside the checkpoint."""
    path = Path(checkpoint)
    return path.with_name(path.name + suffix)


def file_of(checkpoint: str) -> Path:
    """The status file of a checkpoint."""
    return beside(checkpoint, _SUFFIX)


def write(checkpoint: str, **fields: Any) -> None:
    """Add fields to the status, replacing the file as a whole."""
    if not is_local(checkpoint):
        return
    path = file_of(checkpoint)
    known = read(checkpoint)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(known | fields | {"at_ms": int(time.time() * 1000)}, indent=1) + "\n")
    new.replace(path)


def read(checkpoint: str) -> dict[str, Any]:
    """The status as last written; empty if the pipeline has never run."""
    try:
        found: dict[str, Any] = json.loads(file_of(checkpoint).read_text())
    except (OSError, ValueError):
        return {}
    return found


def now(checkpoint: str) -> dict[str, Any]:
    """The status, with the state `killed` if the process that wrote it is gone."""
    found = read(checkpoint)
    if found and found.get("state") in {"starting", "running", "paused"} and not runs(checkpoint):
        found["state"] = "killed"
    return found


def all_below(folder: Path) -> Iterator[dict[str, Any]]:
    """The status of each pipeline with a checkpoint below a folder, by path."""
    for path in sorted(folder.rglob(f"*{_SUFFIX}")):
        yield now(str(path)[: -len(_SUFFIX)])


def runs(checkpoint: str) -> bool:
    """Whether a process of this machine runs the pipeline."""
    try:
        with beside(checkpoint, ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def stop(checkpoint: str, *, seconds_max: float) -> bool:
    """Let the process that runs the pipeline stop after its batch; whether it did in time.

    Raises:
        ProcessLookupError: no process runs it.
    """
    if not runs(checkpoint):
        raise ProcessLookupError(checkpoint)
    os.kill(read(checkpoint)["pid"], signal.SIGTERM)
    deadline = time.monotonic() + seconds_max
    while runs(checkpoint):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def pause(checkpoint: str, *, paused: bool) -> None:
    """Let the pipeline pause after its batch, or continue."""
    path = beside(checkpoint, ".paused")
    if paused:
        path.touch()
    else:
        path.unlink(missing_ok=True)


def is_paused(checkpoint: str) -> bool:
    """Whether the pipeline is to pause."""
    return is_local(checkpoint) and beside(checkpoint, ".paused").exists()


def forget(checkpoint: str) -> None:
    """Delete the status and a request to pause, for a checkpoint that is deleted."""
    for suffix in (_SUFFIX, ".paused"):
        with contextlib.suppress(FileNotFoundError):
            beside(checkpoint, suffix).unlink()

"""The source of earlier commits, to run it beside this one."""

import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class MissingRevisionError(Exception):
    """The commit is not in this clone."""


def source_of(revision: str) -> Path:
    """Extract `src` of a commit; return the folder for PYTHONPATH.

    Any number of processes may call it at once.

    Raises:
        MissingRevisionError: the commit is not in this clone, or there is no clone.
    """
    commit = _commit_of(revision)
    folder = ROOT / ".cache" / "revisions" / commit
    if not (folder / "src").is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            extracted = Path(made) / commit
            extracted.mkdir()
            _extract(commit, extracted)
            _publish(extracted, folder)
    return folder / "src"


def _commit_of(revision: str) -> str:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise MissingRevisionError(
            f"commit {revision} cannot be read: git is not installed"
        ) from None
    if found.returncode != 0:
        raise MissingRevisionError(
            f"commit {revision} is not in this clone; fetch the whole history"
        )
    return found.stdout.strip()


def _extract(commit: str, folder: Path) -> None:
    archive = folder / "src.tar"
    subprocess.run(
        ["git", "archive", "--format=tar", f"--output={archive}", commit, "src"],
        cwd=ROOT, check=True,
    )  # fmt: skip
    shutil.unpack_archive(archive, folder, filter="data")
    archive.unlink()


def _publish(extracted: Path, folder: Path) -> None:
    try:
        extracted.rename(folder)
    except OSError:
        # Another process was faster, with the same files.
        assert (folder / "src").is_dir(), folder

"""The mistakes of tests/pipeline/mistakes.toml, each made in a file without any."""

import tomllib
from pathlib import Path
from typing import Any

_READ = tomllib.loads((Path(__file__).parents[1] / "pipeline" / "mistakes.toml").read_text())
FILE: str = _READ["file"]
"""A pipeline file without mistakes; its topic is `checked`."""
MISTAKES: list[dict[str, Any]] = _READ["mistake"]


def file_with(mistake: dict[str, Any], folder: Path) -> str:
    """The text of the file with a mistake; the files that it needs are created in `folder`."""
    for name, content in mistake.get("present", {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    old = _unescaped(mistake["old"])
    assert old in FILE, mistake["what"]
    return FILE.replace(old, _unescaped(mistake["new"]))


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n")


def needs_spark(mistake: dict[str, Any]) -> bool:
    """Whether Spark is needed to find a mistake."""
    return bool(mistake.get("spark", False))

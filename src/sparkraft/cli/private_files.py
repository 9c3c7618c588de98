"""Files with secrets: only their owner reads them, from their first byte on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600 and replace an older one in one step."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)  # an old one may be open to others
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def make_private_directory(path: Path) -> None:
    """Create a directory with mode 0700, or restrict an existing one."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)


def escaped(value: str) -> str:
    r"""A value for Java's `.properties` files, which are read as Latin-1."""
    ascii_only = "".join(
        c if c.isascii() else _unicode_escape(c) for c in value.replace("\\", "\\\\")
    )
    return ascii_only.replace("\n", "\\n")


def _unicode_escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))

"""Play scenario files: blocks of commands, each followed by `---` and the expected events.

    # a comment
    command argument …
    ---
    expected event

Blocks are separated by blank lines. With REWRITE_SCENARIOS=1 the expected events are rewritten.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Player(Protocol):
    def run(self, line: str) -> None:
        """Execute one command."""

    def take(self) -> list[str]:
        """The events since the last call."""


def check_scenario(path: Path, new_player: Callable[[], Player]) -> None:
    text = path.read_text()
    played = play(text, new_player())
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(played)
        return
    assert played == text


def play(text: str, player: Player) -> str:
    """The scenario with the actual events instead of the expected ones."""
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        commands = block.split("\n---")[0].split("\n")
        for line in commands:
            if line and not line.startswith("#"):
                player.run(line)
        blocks.append("\n".join([*commands, "---", *player.take()]))
    return "\n\n".join(blocks) + "\n"

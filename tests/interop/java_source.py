"""Runs a Java program of ours that asks Kafka's own classes."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.kafka_tools import tools_jvm

SECONDS = 120


def ask_java(jars: Path, program: str, lines: Sequence[str] = ()) -> list[str]:
    """Give `java/PROGRAM.java` the `lines`, and return what it prints."""
    text = "".join(f"{line}\n" for line in lines)
    result = tools_jvm(jars).run(program, (), stdin=text, seconds=SECONDS)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()

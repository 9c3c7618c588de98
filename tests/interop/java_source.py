"""Runs a Java program of ours that asks Kafka's own classes."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).parent / "java"


def ask_java(jars: Path, folder: Path, program: str, lines: Sequence[str]) -> list[str]:
    """Compile `java/PROGRAM.java` into `folder`, give it `lines`, and return what it prints."""
    source = SOURCES / f"{program}.java"
    classes = f"{folder}:{jars}/*"
    compiling = ["javac", "-cp", classes, "-d", str(folder), str(source)]
    subprocess.run(compiling, check=True, timeout=120)
    told = subprocess.run(
        [
            "java",
            "-Xmx256M",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-cp",
            classes,
            program,
        ],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return told.stdout.splitlines()

"""What Apache Kafka's own readers, dump-log and the metadata shell, make of metadata files."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.kafka_tools import run_kafka_tool

DUMP = "org.apache.kafka.tools.DumpLogSegments"
SHELL = "org.apache.kafka.shell.MetadataShell"
_PAYLOAD = " payload: "


def dumped(jars: Path, files: Iterable[Path]) -> str:
    """What dump-log prints of segments or snapshots of the metadata log."""
    named = ",".join(str(path) for path in files)
    done = run_kafka_tool(jars, DUMP, "--cluster-metadata-decoder", "--files", named)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "isvalid: false" not in done.stdout, done.stdout
    assert "Could not" not in done.stdout, done.stdout
    return done.stdout


def records(text: str) -> list[dict[str, Any]]:
    """The metadata records of what dump-log printed: `type`, `version` and `data`, in order."""
    lines = [line.partition(_PAYLOAD)[2] for line in text.splitlines() if _PAYLOAD in line]
    return [json.loads(line) for line in lines]


def in_shell(jars: Path, file: Path, *command: str) -> str:
    """What the metadata shell prints; it must not be the file of a running node."""
    done = run_kafka_tool(jars, SHELL, "--snapshot", str(file), *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

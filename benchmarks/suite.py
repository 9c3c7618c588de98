"""Suites of parts, each measured beside Apache Kafka and kept until it is measured anew."""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from benchmarks.kept import keep, kept
from benchmarks.quorums import progress
from benchmarks.report import Row, Table
from tests.support.kafka_jars import kafka_jars_or_reason

Options = TypeVar("Options")
Part = Callable[[Path, Path, Options], list[Row]]
"""Measures in a folder of its own, with Kafka's jars, as the options say."""


def parser_for(
    description: str | None, parts: Mapping[str, Part[Options]]
) -> argparse.ArgumentParser:
    """A command line that chooses one of `parts`, or only shows what is kept."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=parts, help="measure this part alone")
    parser.add_argument("--table", action="store_true", help="measure nothing, print what is kept")
    return parser


def run(
    suite: str,
    title: str,
    parts: Mapping[str, Part[Options]],
    chosen: argparse.Namespace,
    options: Options,
) -> int:
    """Measure what `chosen` asks for and print it, or all that is kept; the exit code.

    Args:
        suite: name under which parts are kept.
        title: of the table.
        parts: all there are, in the order in which they are measured.
        chosen: what a parser of `parser_for` found.
        options: for the parts.
    """
    table = Table(title)
    begun = time.monotonic()
    if chosen.table:
        table.rows = [row for part in parts for row in kept(suite, part)]
    else:
        jars = kafka_jars_or_reason()
        if not isinstance(jars, Path):
            print(f"Beside Kafka: not measured, {jars.reason}")
            return 0
        for part in [chosen.only] if chosen.only else parts:
            with tempfile.TemporaryDirectory() as folder:
                rows = parts[part](Path(folder), jars, options)
            keep(suite, part, rows)
            progress("")
            for row in rows:
                table.add(row)
    table.print()
    if not chosen.table:
        print(f"\nMeasured in {(time.monotonic() - begun) / 60:.1f} minutes")
    return 0 if table.met else 1

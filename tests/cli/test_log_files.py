"""JSON lines, and log files that are rotated by size and by day."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkraft.cli import log_files
from sparkraft.cli.log_files import JsonFormatter, RotatedFile, log_to_files
from tests.support.nodes import SparkraftNode

DAY = 86_400


def record(text: str, *arguments: object, at: float = 0.5, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("sparkraft.raft", logging.WARNING, __file__, 1, text, arguments, None)
    made.created = at
    for name, value in more.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def handlers() -> Iterator[list[logging.Handler]]:
    opened: list[logging.Handler] = []
    yield opened
    for names in log_files.FILES.values():
        for name in names:
            for handler in opened:
                logging.getLogger(name or None).removeHandler(handler)
    for handler in opened:
        handler.close()


def test_a_json_line_has_the_node_and_the_sentence() -> None:
    line = JsonFormatter(3, "broker").format(record("Lost %s\nand found", "ä"))
    assert "\n" not in line
    assert json.loads(line) == {
        "ts": "1970-01-01T00:00:00.500Z",
        "level": "WARN",
        "logger": "sparkraft.raft",
        "msg": "Lost ä\nand found",
        "node": 3,
        "role": "broker",
    }


def test_an_exception_stands_on_the_same_line() -> None:
    try:
        int("bad")
    except ValueError:
        line = JsonFormatter(3, "broker").format(record("Failed", exc_info=sys.exc_info()))
    assert "\n" not in line
    assert json.loads(line)["exc"].endswith("literal for int() with base 10: 'bad'")


def test_a_file_is_rotated_by_size_and_old_ones_are_deleted(tmp_path: Path) -> None:
    handler = RotatedFile(tmp_path / "server.log", bytes_max=1_024, count=2)
    for number in range(40):
        handler.emit(record("%0100d", number))
    handler.close()
    assert sorted(os.listdir(tmp_path)) == ["server.log", "server.log.1", "server.log.2"]
    newest = (tmp_path / "server.log").read_text().splitlines()
    older = (tmp_path / "server.log.1").read_text().splitlines()
    assert int(newest[-1]) == 39
    assert int(newest[0]) == int(older[-1]) + 1


def test_a_file_is_rotated_at_midnight(tmp_path: Path) -> None:
    handler = RotatedFile(tmp_path / "server.log", bytes_max=10_000, count=2)
    handler.emit(record("before", at=DAY - 0.001))
    handler.emit(record("after", at=float(DAY)))
    handler.emit(record("later", at=DAY + 1.0))
    handler.close()
    assert (tmp_path / "server.log.1").read_text() == "before\n"
    assert (tmp_path / "server.log").read_text() == "after\nlater\n"


def test_a_file_of_yesterday_is_rotated_by_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("yesterday\n")
    os.utime(path, (DAY / 2, DAY / 2))
    handler = RotatedFile(path, bytes_max=10_000, count=2)
    handler.emit(record("today", at=DAY * 1.5))
    handler.close()
    assert path.read_text() == "today\n"
    assert (tmp_path / "server.log.1").read_text() == "yesterday\n"


def test_loggers_write_to_the_files_of_their_names(
    tmp_path: Path, handlers: list[logging.Handler]
) -> None:
    folder = tmp_path / "new" / "logs"
    plain = logging.Formatter("%(message)s")
    handlers += log_to_files(folder, plain, bytes_max=10_000, count=1)
    logging.getLogger("sparkraft.raft").warning("elected")
    logging.getLogger("sparkraft.server.broker.isr_journal").warning("shrunk")
    logging.getLogger("sparkraft.server.broker.compaction").warning("cleaned")
    found = {name: (folder / name).read_text().split() for name in os.listdir(folder)}
    assert found == {
        "server.log": ["elected", "shrunk", "cleaned"],
        "controller.log": ["elected"],
        "state-change.log": ["shrunk"],
        "log-cleaner.log": ["cleaned"],
    }


@pytest.mark.real_time
def test_a_node_writes_json_to_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    overrides = {"sparkraft.log.format": "json", "sparkraft.log.dir": str(folder)}
    with SparkraftNode(tmp_path / "node", overrides=overrides) as node:
        node.stop()
    lines = [json.loads(line) for line in (folder / "server.log").read_text().splitlines()]
    assert {(line["node"], line["role"]) for line in lines} == {(1, "broker,controller")}
    assert any("is active in epoch" in line["msg"] for line in lines)
    controller = (folder / "controller.log").read_text()
    assert "is active in epoch" in controller

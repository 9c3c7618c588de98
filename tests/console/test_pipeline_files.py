"""Pipelines in the console from the files beside their checkpoints."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from sparkraft.console import pipeline_files
from sparkraft.console.pipeline_files import batch_files, newest_documents
from sparkraft.pipeline import batch_log
from sparkraft.pipeline.progress import progress_of
from tests.pipeline.test_batch_log import REPORT
from tests.support.console import ConsoleProcess
from tests.support.nodes import SparkraftNode

STARTED_MS = 1_767_225_600_000
"""2026-01-01, as in REPORT; its batches take 1.5 seconds."""


def append(checkpoint: Path, *batches: int, name: str = "delays") -> None:
    checkpoint.mkdir(parents=True, exist_ok=True)
    for batch in batches:
        progress = progress_of({**REPORT, "batchId": batch})
        batch_log.append(str(checkpoint), batch_log.document(name, progress))


def test_the_newest_batches_are_read_from_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(tmp_path / "team" / "p", *range(30))
    found, damaged = newest_documents(tmp_path, batches_max=3)
    assert [one["batch"] for one in found] == [27, 28, 29]
    assert {one["atMs"] for one in found} == {STARTED_MS + 1_500}
    assert damaged == 0
    (path,) = batch_files(tmp_path)
    two = b"".join(path.read_bytes().splitlines(keepends=True)[-2:])
    monkeypatch.setattr(pipeline_files, "READ_BYTES_MAX", len(two) + 100)
    found, damaged = newest_documents(tmp_path, batches_max=30)
    assert [one["batch"] for one in found] == [28, 29]
    assert damaged == 0


def test_a_line_that_was_cut_off_is_counted(tmp_path: Path) -> None:
    append(tmp_path / "p", 1)
    with (tmp_path / "p.batches.jsonl").open("a") as file:
        file.write('{"pipeline": "p", "sta\n[1]\n{"pipeline": "p", "started": 3, "seconds": 1}\n')
        file.write("[" * 100_000 + "\n")
        file.write('{"is": "being written')
    found, damaged = newest_documents(tmp_path, batches_max=30)
    assert ([one["batch"] for one in found], damaged) == ([1], 4)


def test_checkpoints_are_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "a", 1)
    append(tmp_path / "a" / "state", 1)
    append(tmp_path / "b" / "c" / "d", 1)
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert [path.name for path in batch_files(tmp_path)] == [
        "a.batches.jsonl", "d.batches.jsonl",
    ]  # fmt: skip
    monkeypatch.setattr(pipeline_files, "FILES_MAX", 1)
    assert len(batch_files(tmp_path)) == 1
    assert batch_files(tmp_path / "absent") == []


def get(console: ConsoleProcess, path: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection(console.address.removeprefix("http://"), timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.real_clients
def test_a_console_shows_files_and_a_topic_as_one_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkpoints"
    append(folder / "delays", 7, 8)
    append(folder / "other", 1, name="other")
    with SparkraftNode(tmp_path) as node:
        client = batch_log_client(node.bootstrap)
        log = batch_log.TopicLog(client, "pipeline-batches")
        for batch in (8, 9):
            progress = progress_of({**REPORT, "batchId": batch})
            log.append(batch_log.document("delays", progress))
        with ConsoleProcess(node.bootstrap, tmp_path, ["--pipelines", str(folder)]) as console:
            found = get(console, "/api/pipelines?topic=pipeline-batches")
            absent = get(console, "/api/pipelines?topic=absent")
    assert [
        (one["pipeline"], sorted(each["batch"] for each in one["batches"]))
        for one in found["pipelines"]
    ] == [("delays", [7, 8, 9]), ("other", [1])]
    assert (absent["problem"], len(absent["pipelines"])) == ("", 2)
    assert found["filesCommand"] == f"sparkraft pipeline list {folder}"
    capsys.readouterr()
    assert cli.main(["console", "--bootstrap-server", "h:1", "--pipelines", "/no/such"]) == 2
    assert "--pipelines /no/such: not a folder" in capsys.readouterr().err


def batch_log_client(bootstrap: str) -> Any:
    from sparkraft.pipeline.options import source_options

    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t"}
    return source_options(options, streaming=True).client

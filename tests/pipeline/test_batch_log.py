"""The documents of batches, the command that follows them, and the metrics, without Spark."""

import json
import socket
import urllib.request
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sparkraft.cli import main as cli
from sparkraft.pipeline import batch_figures, batch_log, spec, status
from sparkraft.pipeline.batch_figures import NOTHING, BatchFigures, SetAside
from sparkraft.pipeline.metrics import PipelineMetrics, parsed_listen
from sparkraft.pipeline.progress import progress_of
from tests.pipeline.test_fetch_and_produce import everything, options_for, read

REPORT = {
    "id": "6d9f2c1e-0b3a-4c55-9a44-2f1f6a0e7b11",
    "batchId": 7,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "numInputRows": 10,
    "durationMs": {"triggerExecution": 1500, "addBatch": 900, "commitOffsets": 40},
    "eventTime": {"watermark": "2025-12-31T00:00:00.000Z"},
    "stateOperators": [
        {"numRowsDroppedByWatermark": 3, "numRowsTotal": 20, "memoryUsedBytes": 500},
        {"numRowsDroppedByWatermark": 1, "numRowsTotal": 2, "memoryUsedBytes": 50},
    ],
    "sources": [
        {
            "startOffset": {"t": {"0": 0}},
            "endOffset": '{"t": {"0": 10}}',
            "latestOffset": {"t": {"0": 30}},
        }
    ],
    "observedMetrics": {"sparkraft.json.source": {"damaged": 2, "bytes": 800}},
}
FILE = """
name = "n"
checkpoint = "n"
[source]
"kafka.bootstrap.servers" = "h:1"
subscribe = "t"
[[sink]]
kind = "console"
"""


@pytest.fixture
def checkpoint(tmp_path):
    return str(tmp_path / "n")


ASIDE = SetAside(misfits=5, ignored=6, dead_letters=7)


def progress(batch=7):
    found = progress_of({**REPORT, "batchId": batch})
    return replace(found, set_aside=ASIDE, retries=1, lag_seconds=2.5)


def document(batch=7):
    return batch_log.document("n", progress(batch))


def test_a_batch_is_described_by_one_document():
    assert json.loads(json.dumps(document())) == {
        "pipeline": "n",
        "query": "6d9f2c1e-0b3a-4c55-9a44-2f1f6a0e7b11",
        "started": "2026-01-01T00:00:00.000Z",
        "batch": 7,
        "records": 10,
        "seconds": 1.5,
        "lag": 20,
        "lag_seconds": 2.5,
        "late": 4,
        "damaged": 2,
        "misfits": 5,
        "ignored": 6,
        "dead_letters": 7,
        "bytes": 800,
        "retries": 1,
        "durations_ms": {"triggerExecution": 1500, "addBatch": 900, "commitOffsets": 40},
        "watermark": "2025-12-31T00:00:00.000Z",
        "state_rows": 22,
        "state_bytes": 550,
        "sources": [
            {"start": {"t": {"0": 0}}, "end": {"t": {"0": 10}}, "latest": {"t": {"0": 30}}}
        ],
    }


def test_what_sinks_in_another_process_set_aside_is_unknown():
    unknown = batch_log.document("n", replace(progress(), set_aside=None))
    assert [unknown[name] for name in ("misfits", "ignored", "dead_letters")] == [None] * 3


def test_a_batch_that_is_repeated_is_counted_once():
    figures = BatchFigures()
    figures.note_set_aside(3, 0, SetAside(misfits=9))
    assert figures.take_set_aside(3) == SetAside(misfits=9)
    for _ in range(2):
        figures.note_set_aside(4, 0, SetAside(misfits=1, ignored=2))
        figures.note_set_aside(4, 1, SetAside(dead_letters=3))
    assert figures.take_set_aside(4) == SetAside(1, 2, 3)
    assert figures.take_set_aside(4) == figures.take_set_aside(5) == NOTHING


class Tracker:
    """Spark's status store, with a stage of two jobs, and one that it has forgotten."""

    def getJobInfo(self, job):  # noqa: N802 (Spark's)
        stages = {1: [0, 1], 2: [1, 2]}
        return SimpleNamespace(stageIds=stages[job]) if job in stages else None

    def getStageInfo(self, stage):  # noqa: N802 (Spark's)
        return None if stage == 2 else SimpleNamespace(numFailedTasks=1 + stage)


def test_failed_tasks_of_a_stage_are_counted_once():
    context = SimpleNamespace(statusTracker=Tracker)
    spark = SimpleNamespace(sparkContext=context)
    assert batch_figures._failed_tasks(spark, [1, 2, 3]) == 3


def test_a_reader_follows_the_file_also_over_a_line_that_was_cut_off(checkpoint, tmp_path):
    reader = batch_log.Reader(checkpoint)
    assert reader.new() == []
    batch_log.append(checkpoint, document(0))
    assert [each["batch"] for each in reader.new()] == [0]
    with (tmp_path / "n.batches.jsonl").open("a") as file:
        file.write('{"batch": 1, "rec')
    assert reader.new() == []
    batch_log.append(checkpoint, document(2))
    batch_log.append(checkpoint, document(3))
    assert [each["batch"] for each in reader.new()] == [3]


def test_a_file_that_is_full_is_replaced_and_followed(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(batch_log, "_FILE_BYTES_MAX", 2_000)
    reader = batch_log.Reader(checkpoint)
    seen = []
    for number in range(20):
        batch_log.append(checkpoint, document(number))
        seen += [each["batch"] for each in reader.new()]
    assert seen == list(range(20))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "n.batches.1.jsonl", "n.batches.jsonl",
    ]  # fmt: skip
    assert all(path.stat().st_size < 3_000 for path in tmp_path.iterdir())


def test_remote_checkpoints_have_no_documents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    batch_log.append("s3://bucket/n", document())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real_clients
def test_a_topic_has_the_documents_by_pipeline(node, cluster, client_options):
    topic = batch_log.TopicLog(client_options, "batches")
    for number in range(2):
        topic.append(document(number))
    (row, last) = read(cluster, everything(cluster, "batches"), options_for(node))
    assert (row["key"], json.loads(row["value"])["batch"]) == (b"n", 0)
    assert json.loads(last["value"]) == document(1)
    batch_log.TopicLog(client_options, "batches").append(document(2))
    assert len(read(cluster, everything(cluster, "batches"), options_for(node))) == 3


def test_a_document_that_cannot_be_sent_is_logged(client_options, caplog):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = (taken.getsockname(),)
        lonely = replace(client_options, bootstrap_servers=servers, retries_max=1)
        batch_log.TopicLog(lonely, "batches").append(document())
    assert "was not sent to batches: NETWORK_EXCEPTION" in caplog.text


def test_watch_prints_batches_until_the_pipeline_has_stopped(checkpoint, tmp_path, capsys):
    (tmp_path / "n.toml").write_text(FILE)
    for number in range(12):
        batch_log.append(checkpoint, document(number))
    status.write(checkpoint, name="n", state="failed", error="no disk")
    assert cli.main(["pipeline", "status", str(tmp_path / "n.toml"), "--watch"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert lines[-2] == (
        "2026-01-01T00:00:00.000Z  batch 11  1.5 s  records 10  lag 20  lag_seconds 2.5  "
        "late 4  damaged 2  misfits 5  ignored 6  (addBatch 900 ms, commitOffsets 40 ms)"
    )
    assert lines[-1] == "n is failed: no disk"


def test_metrics_are_served_to_prometheus():
    metrics = PipelineMetrics("n")
    with metrics.served("127.0.0.1:0") as port:

        def scraped():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
                text = page.read().decode()
            return dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")

        for gauge in ("lag_offsets", "lag_seconds"):
            assert scraped()[f'sparkraft_pipeline_{gauge}{{pipeline="n"}}'] == "NaN"
        metrics.observe(progress(7))
        metrics.observe(progress(8))
        metrics.observe(replace(progress(9), set_aside=None))
        found = scraped()
    expected = {
        "records_total": 30.0, "late_records_total": 12.0, "damaged_records_total": 6.0,
        "batch_seconds_count": 3.0, "batch_seconds_sum": 4.5, "last_batch": 9.0,
        "lag_offsets": 20.0, "misfit_rows_total": 10.0, "ignored_values_total": 12.0,
        "dead_letters_total": 14.0, "lag_seconds": 2.5, "read_bytes_total": 2400.0,
        "task_retries_total": 3.0,
    }  # fmt: skip
    for name, value in expected.items():
        found_value = float(found[f'sparkraft_pipeline_{name}{{pipeline="n"}}'])
        assert found_value == pytest.approx(value), name


def test_an_address_of_metrics_is_checked_and_may_be_taken():
    assert parsed_listen("127.0.0.1:9464") == ("127.0.0.1", 9464)
    for wrong in ("9464", "h:x", "h:70000"):
        with pytest.raises(spec.SpecError, match="metrics must be host:port"):
            parsed_listen(wrong)
    with (
        PipelineMetrics("a").served("127.0.0.1:0") as port,
        pytest.raises(spec.SpecError, match="metrics cannot be served at"),
        PipelineMetrics("b").served(f"127.0.0.1:{port}"),
    ):
        pass

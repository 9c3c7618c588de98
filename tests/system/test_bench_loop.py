"""Rows of `./bench loop`: what is printed, also if one cannot be measured."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from benchmarks import bench_loop, loop_large_rows, loop_outcome
from benchmarks.bench_loop import ROWS, add_row
from benchmarks.loop_outcome import NotMeasuredError, Outcome
from benchmarks.loop_promises import AT_LEAST, AT_MOST, LIMITS, figure_row
from benchmarks.report import Table


class Node:
    """A node that runs until it is killed; each start elects a leader."""

    def __init__(self, *_, port=1, **__) -> None:
        self.port = port
        self.log_dir = "/"
        self.starts = 0
        self.kills = False
        self.process = SimpleNamespace(poll=lambda: 1 if self.kills else None, pid=1)

    def wait(self) -> None:
        self.process = None

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture
def nodes(monkeypatch):
    monkeypatch.setattr(loop_outcome, "quorum_epoch", lambda node: node.starts)
    monkeypatch.setattr(loop_outcome, "changes_since", lambda *_: ([], 10))
    monkeypatch.setattr(loop_outcome, "SparkraftNode", Node)
    return {"ours": Node(port=1), "kafka": Node(port=2)}


def measured(monkeypatch, nodes, load):
    monkeypatch.setitem(ROWS, "some", load)
    table = Table("")
    add_row(table, "some", nodes)
    return table


def test_a_row_that_fails_is_in_the_table_and_fails_it(monkeypatch, nodes):
    def load(*_):
        raise AssertionError("no\nleader | after 60 s")

    table = measured(monkeypatch, nodes, load)
    assert [row.what for row in table.rows] == ["some: failed"]
    assert table.rows[0].ours == "AssertionError: no leader / after 60 s"
    assert table.rows[0].verdict == "**failed**"
    assert not table.met


def test_a_node_that_ended_serves_the_next_row(monkeypatch, nodes):
    def load(*_):
        nodes["ours"].kills = True
        raise ConnectionError("the probe ended before its time")

    assert not measured(monkeypatch, nodes, load).met
    assert nodes["ours"].starts == 1
    assert nodes["kafka"].starts == 0


def test_a_row_that_this_machine_cannot_run_says_why(monkeypatch, nodes):
    def load(*_):
        raise NotMeasuredError("only root can limit a disk")

    table = measured(monkeypatch, nodes, load)
    assert table.rows[0].what == "some: not measured"
    assert "only root can limit a disk" in table.rows[0].against
    assert table.met


def test_a_disk_that_cannot_be_limited_is_no_error(monkeypatch, nodes, tmp_path):
    monkeypatch.setattr(loop_large_rows, "BLKIO", tmp_path / "no-such-controller")
    monkeypatch.setattr(loop_large_rows, "_read_slowly", lambda *_: pytest.fail("it was measured"))
    with pytest.raises(NotMeasuredError, match="no-such-controller"):
        loop_large_rows.slow_disk_row(nodes["ours"], 0)


def test_the_table_is_printed_if_the_run_is_interrupted(monkeypatch, nodes, capsys):
    def rows(name, _):
        if name == "topics":
            raise KeyboardInterrupt
        return [bench_loop.Row(f"{name}: probe p99", "1.0 ms", "", None)]

    monkeypatch.setattr(bench_loop, "SparkraftNode", Node)
    monkeypatch.setattr(bench_loop, "create_topic", lambda *_: None)
    monkeypatch.setattr(bench_loop, "warm", lambda _: None)
    monkeypatch.setattr(bench_loop, "measured", rows)
    monkeypatch.setattr(sys, "argv", ["loop", "--without-kafka", "segments", "topics"])
    with pytest.raises(KeyboardInterrupt):
        bench_loop.main()
    assert "| segments: probe p99 | 1.0 ms |" in capsys.readouterr().out


def test_figures_are_compared_with_kafka(monkeypatch, nodes):
    def load(node, _):
        return Outcome([1.0] * 99 + [9.0], {"MB/s": 10.0 * node.port})

    rows = {row.what: row for row in measured(monkeypatch, nodes, load).rows}
    assert rows["some: probe p99"].met
    assert rows["some: MB/s"].ratio == 0.5


def test_the_slower_throughput_misses_its_promise(monkeypatch, nodes):
    def load(node, _):
        return Outcome([1.0], {"MB/s": 79.0 if node is nodes["ours"] else 100.0})

    monkeypatch.setitem(ROWS, "gzip", load)
    table = Table("")
    add_row(table, "gzip", nodes)
    assert [row.what for row in table.rows if not row.met] == ["gzip: MB/s (goal: 1)"]


@pytest.mark.parametrize(
    ("what", "ours", "kafka", "met"),
    [
        ("cold: probe p50 ms", 4.9, 1.0, True),
        ("cold: probe p50 ms", 5.1, 9.0, False),
        ("sessions: cores", 0.21, None, False),
        ("sessions: probe p50 ms", 1.1, 3.0, False),
        ("topics: create s", 1.1, 1.0, False),
        ("topics: delete s", 0.9, 1.0, True),
        ("commits: OffsetFetch p50 ms", 1.1, 1.0, False),
        ("fanout: MB/s in and out", 80.0, 100.0, True),
        ("fanout: MB/s in and out", 79.0, None, True),
        ("fanout: MB/s in", 1.0, 100.0, True),
    ],
)
def test_promises_of_figures(what, ours, kafka, met):
    assert figure_row(what, ours, kafka).met is met


def test_every_promise_is_one_of_a_row():
    promised = [*LIMITS, *AT_LEAST, *AT_MOST]
    assert [what for what in promised if what.partition(":")[0] not in ROWS] == []


# ---- elections and fencings


def test_elections_of_a_node_that_is_only_loaded_count(monkeypatch, nodes):
    def load(node, number):
        if node is nodes["ours"] and number == 0:
            node.start()
        return Outcome([1.0])

    rows = {row.what: row for row in measured(monkeypatch, nodes, load).rows}
    assert rows["some: elections, fencings"].ours == "1"
    assert not rows["some: elections, fencings"].met


def test_an_election_that_a_row_needs_does_not_count(monkeypatch, nodes):
    monkeypatch.setattr(loop_large_rows, "create_topic", lambda *_: None)
    monkeypatch.setattr(loop_large_rows, "Asking", lambda *_: nullcontext(asking))
    monkeypatch.setattr(loop_large_rows, "Probe", lambda *_: SimpleNamespace(latencies=lambda: [1]))
    monkeypatch.setattr(loop_large_rows, "_until_found", lambda _: 0.0)
    asking = SimpleNamespace(answers=1 << 40)
    node = nodes["ours"]
    assert loop_large_rows.coordinator(node, 0).interruptions == 0
    assert node.starts == 1

    def found(_):
        if node.starts == 2:
            node.start()
        return 0.0

    monkeypatch.setattr(loop_large_rows, "_until_found", found)
    node.starts = 0
    node.stop = node.start
    assert loop_large_rows.coordinator(node, 0).interruptions == 1


@pytest.mark.parametrize("row", ["explain", "snapshot"])
def test_elections_of_the_node_that_is_loaded_count(monkeypatch, nodes, tmp_path, row):
    loaded = Node(port=3)
    loaded.controller_port = 4

    def asking(port, _):
        assert port == 3
        loaded.start()
        return Outcome([1.0])

    monkeypatch.setattr(loop_large_rows, "SparkraftNode", lambda *_, **__: loaded)
    monkeypatch.setattr(loop_large_rows, "create_topic", lambda *_: None)
    monkeypatch.setattr(loop_large_rows, "_lengthen", lambda _: None)
    monkeypatch.setattr(loop_large_rows, "_create_elsewhere", lambda *_: None)
    monkeypatch.setattr(loop_large_rows, "RegisteredBrokers", lambda *_: nullcontext())
    monkeypatch.setattr(loop_large_rows, "_beside_asking", asking)
    monkeypatch.setattr(
        loop_large_rows.tempfile, "TemporaryDirectory", lambda: nullcontext(tmp_path)
    )
    (tmp_path / "__cluster_metadata-0").mkdir()
    outcomes = getattr(loop_large_rows, row)(nodes["ours"], 0)
    assert [one.interruptions for one in outcomes] == [1, 1, 1]
    rows = measured(monkeypatch, nodes, lambda *_: outcomes).rows
    assert [row.ours for row in rows if "elections" in row.what] == ["3"]


# ---- rounds


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only in rows."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(bench_loop, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def rounds(monkeypatch, nodes, clock, *, first, later):
    """The rounds of a row of which these take so long on each node."""
    numbers = []

    def load(node, number):
        clock.now += later if number else first
        if node is nodes["ours"]:
            numbers.append(number)
        return Outcome([float(number)] * 700)

    rows = {row.what: row for row in measured(monkeypatch, nodes, load).rows}
    return numbers, rows


def test_figures_are_medians_of_three_rounds_and_2_100_probes(monkeypatch, nodes, clock):
    numbers, rows = rounds(monkeypatch, nodes, clock, first=8, later=8)
    assert numbers == [0, 1, 2]
    assert rows["some: probe p99"].ours == "1.0 ms"
    assert rows["some: measured in 48 s"].ours == "2,100 probes, rounds: 3"
    assert rows["some: measured in 48 s"].against == "2,100 probes, rounds: 3"


def test_a_long_preparation_leaves_no_time_for_a_third_round(monkeypatch, nodes, clock):
    numbers, rows = rounds(monkeypatch, nodes, clock, first=18, later=8)
    assert numbers == [0, 1]
    assert rows["some: measured in 52 s"].ours == "1,400 probes, rounds: 2"


def test_a_row_of_long_rounds_has_one(monkeypatch, nodes, clock):
    assert rounds(monkeypatch, nodes, clock, first=30, later=30)[0] == [0]


def test_a_node_is_prepared_once(nodes):
    prepared = []
    prepare = loop_outcome.once(lambda node: prepared.append(node.port) or len(prepared))
    assert [prepare(nodes[who]) for who in ("ours", "kafka", "ours", "kafka")] == [1, 2, 1, 2]


@pytest.mark.parametrize(("fails", "ratio"), [((0, 2), 1.0), ((0, 1, 2), None)])
def test_rounds_that_fail_on_kafkas_node_are_left_out(monkeypatch, nodes, fails, ratio):
    def load(node, number):
        if node is nodes["kafka"] and number in fails:
            raise ConnectionError("the probe ended before its time")
        return Outcome([1.0], {"MB/s": 1.0})

    rows = {row.what: row for row in measured(monkeypatch, nodes, load).rows}
    assert rows["some: MB/s"].ratio == ratio
    assert "the probe ended" in rows["some: not compared in all rounds"].against

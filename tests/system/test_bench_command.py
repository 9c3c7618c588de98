"""`./bench WORD...` runs what the words name, or says that they name nothing."""

import re
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks.__main__ import LOOP, ONLY_NAMED, SUITES, UnknownWordError, chosen, main, short

ROOT = Path(__file__).parents[2]


def test_all_suites_run_without_words():
    assert list(chosen([])) == list(SUITES)


def test_a_word_is_a_part_of_a_suite_name():
    assert chosen(["spark"]) == {
        "benchmarks.bench_spark_source": [],
        "benchmarks.bench_spark_pipelines": [],
    }
    assert list(chosen(["cores", "node"])) == ["benchmarks.bench_node", ONLY_NAMED[1]]


def test_a_row_of_the_suite_loop_can_be_named_alone():
    assert chosen(["fanout"]) == chosen(["loop", "fanout"]) == {LOOP: ["fanout"]}
    assert chosen(["node", "cold", "bounds"]) == {
        "benchmarks.bench_node": [],
        LOOP: ["cold", "bounds"],
    }


def test_words_after_loop_are_its_rows():
    assert chosen(["loop", "groups"]) == {LOOP: ["groups"]}
    assert chosen(["groups"]) == {"benchmarks.bench_groups": []}


def test_an_unknown_word_names_nothing():
    with pytest.raises(UnknownWordError, match="fan-out"):
        chosen(["node", "fan-out"])


def test_an_unknown_word_runs_nothing_and_fails(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", "fan-out"])
    monkeypatch.setattr(bench.subprocess, "run", lambda *_, **__: pytest.fail("a suite ran"))
    assert main() == 2
    said = capsys.readouterr().err
    assert "fan-out" in said
    assert "security, console, zookeeper" in said
    assert "fanout, slow-disk" in said


def test_both_descriptions_name_all_suites_and_the_same_duration():
    described = [
        (ROOT / "bench").read_text().partition("./bench fanout")[0],
        (ROOT / "docs" / "PERFORMANCE.md").read_text().partition("./bench fanout")[0],
    ]
    for text in described:
        words = re.findall(r"\w+", text.rpartition("replication,")[2])
        assert [short(suite) for suite in SUITES[5:]] == [
            word for word in words if word in map(short, SUITES)
        ]
    minutes = [re.search(r"about (\d+) minutes", text).group(1) for text in described]
    assert minutes[0] == minutes[1]

"""`tools/mutants`: what it prints, its exit codes, and the table it keeps."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants import command, mutant_seeds, replacements
from tests.mutants.registry import CASES, MUTANTS, MutantCase

ROOT = Path(__file__).resolve().parents[2]
BUG = MutantCase("vote-not-persisted", "cores")


def test_a_planted_bug_is_seen_by_its_stored_seed(capsys: pytest.CaptureFixture[str]) -> None:
    code = command.main([str(BUG)])
    assert code == 0
    told, total = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"seen   {BUG} +seed \d+: Q2 \(\d+\.\d s\)", told)
    assert total == "1 of 1 planted bugs were reported"


def test_a_planted_bug_that_is_missed_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MUTANTS, BUG.name, replace(MUTANTS[BUG.name], patches=list))
    monkeypatch.setattr(mutant_seeds, "NEIGHBORS", 1)
    assert command.main([str(BUG)]) == 1
    said = capsys.readouterr()
    assert said.out.startswith(f"MISSED {BUG} ")
    assert said.out.endswith("0 of 1 planted bugs were reported\n")
    assert said.err == f"tools/mutants: not reported: {BUG}\n"


def test_a_search_finds_a_seed_too_and_stores_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mutant_seeds, "SEEDS_FILE", tmp_path / "seeds.json")
    assert command.main(["--find", str(BUG)]) == 0
    assert capsys.readouterr().out.startswith(f"seen   {BUG} ")
    found = mutant_seeds.read_seeds()
    assert found[BUG].seed == mutant_seeds.MUTANT_SEEDS[BUG].seed
    assert found.keys() == mutant_seeds.MUTANT_SEEDS.keys()


def test_a_stale_seed_is_replaced_by_the_next_that_shows_the_bug(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mutant_seeds, "SEEDS_FILE", tmp_path / "seeds.json")
    stored = mutant_seeds.MUTANT_SEEDS[BUG]
    monkeypatch.setitem(mutant_seeds.MUTANT_SEEDS, BUG, stored._replace(seed=0))
    monkeypatch.setattr(mutant_seeds, "is_seen", lambda result, _: result.settings.seed > 0)
    assert command.main(["--refresh", str(BUG)]) == 0
    found = mutant_seeds.read_seeds()
    assert found[BUG].seed == stored.seed
    assert found.keys() == mutant_seeds.MUTANT_SEEDS.keys()


def test_a_stale_seed_that_a_test_finds_is_noted_and_stored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mutant_seeds, "SEEDS_FILE", tmp_path / "seeds.json")
    monkeypatch.setattr(command, "PAGE", tmp_path / "planted-bugs.md")
    noted = tmp_path / "noted.jsonl"
    monkeypatch.setenv(replacements.FILE_VARIABLE, str(noted))
    stored = mutant_seeds.MUTANT_SEEDS[BUG]
    mutant_seeds.assert_seen(BUG)
    assert not noted.exists()

    monkeypatch.setitem(mutant_seeds.MUTANT_SEEDS, BUG, stored._replace(seed=0))
    monkeypatch.setattr(mutant_seeds, "is_seen", lambda result, _: result.settings.seed > 0)
    mutant_seeds.assert_seen(BUG)
    mutant_seeds.write_seeds(mutant_seeds.MUTANT_SEEDS)
    assert command.main(["--store", str(noted)]) == 0
    assert capsys.readouterr().out == f"stored {BUG}: seed {stored.seed}\n"
    assert mutant_seeds.read_seeds()[BUG].seed == stored.seed
    assert f"| {stored.seed} |" in command.PAGE.read_text()


def test_a_name_means_every_tier_of_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [str(case) for case in CASES]
    assert {case.tier for case in command.cases_named([BUG.name])} == {"cores", "nodes"}


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SystemExit, match="no planted bug 'war'; --list names them"):
        command.main(["war"])


def test_the_table_says_what_is_planted_and_stored() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "mutants"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (checked.returncode, checked.stdout) == (0, "")

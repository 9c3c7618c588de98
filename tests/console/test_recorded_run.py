"""A recorded simulation: any window has what happens in it, whatever the file's size."""

import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparkraft.console import recorded_run
from sparkraft.console.recorded_run import RecordedRun, RunFileError
from sparkraft.simulation.scenarios.campaign import run
from sparkraft.simulation.scenarios.core_scenarios import Settings
from sparkraft.simulation.world import trace_events

ABOUT = {"format": 1, "tier": "cores", "scenario": "chaos", "seed": 1, "nodes": ["n1", "n2"]}


def written(folder: Path, *events: dict[str, Any]) -> Path:
    path = folder / "run.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (ABOUT, *events)))
    return path


def sends(at: int, number: int, message: str = "Vote request") -> dict[str, Any]:
    one = {"t": at, "kind": "sends", "id": number, "node": "n1", "to": "n2"}
    return {**one, "message": message, "text": f"n1 sends n2: {message}"}


def shown(run: RecordedRun, from_ms: int, to_ms: int, *, with_fetches: bool = True) -> list[int]:
    found = run.window(from_ms, to_ms, with_fetches=with_fetches)["messages"]
    return [message["id"] for message in found]


def test_both_sides_agree_on_the_format() -> None:
    assert recorded_run.FORMAT == trace_events.FORMAT


def test_windows_cover_a_run_once(tmp_path: Path) -> None:
    text = io.StringIO()
    run(Settings(seed=7, tier="cores", scenario="chaos", seconds=5), events=text)
    path = tmp_path / "run.jsonl"
    path.write_text(text.getvalue())
    lines = [json.loads(line) for line in text.getvalue().splitlines()[1:-1]]
    own = [one for one in lines if one["kind"] not in {"sends", "arrives", "lost"}]
    with closing(RecordedRun(path)) as recorded:
        windows = [
            recorded.window(at, at + 70, with_fetches=True)
            for at in range(0, recorded.end_ms + 1, 70)
        ]
    assert [event for window in windows for event in window["events"]] == own
    seen = {message["id"] for window in windows for message in window["messages"]}
    assert seen == {one["id"] for one in lines if one["kind"] == "sends"}


def test_a_message_is_shown_while_it_is_under_way(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        sends(100, 1), sends(150, 2), sends(160, 3),
        {"t": 400, "kind": "lost", "id": 2},
        {"t": 20_000, "kind": "arrives", "id": 1},
    )  # fmt: skip
    with closing(RecordedRun(path)) as run:
        assert shown(run, 0, 100) == []
        assert shown(run, 0, 101) == [1]
        assert shown(run, 300, 401) == [1, 2, 3]
        assert shown(run, 401, 500) == [1, 3]
        assert shown(run, 15_000, 15_100) == [1, 3]
        assert shown(run, 20_001, 20_100) == [3]
        messages = run.window(300, 401, with_fetches=True)["messages"]
        assert [message["ends"] for message in messages] == [
            [{"t": 20_000, "kind": "arrives"}], [{"t": 400, "kind": "lost"}], [],
        ]  # fmt: skip


def test_a_request_that_arrives_twice_has_two_ends(tmp_path: Path) -> None:
    ends = [{"t": 110, "kind": "arrives", "id": 1}, {"t": 130, "kind": "arrives", "id": 1}]
    with closing(RecordedRun(written(tmp_path, sends(100, 1), *ends))) as run:
        (message,) = run.window(0, 200, with_fetches=True)["messages"]
    assert [end["t"] for end in message["ends"]] == [110, 130]


def test_fetches_are_left_out_on_request(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        sends(1, 1), sends(2, 2, "Fetch request"), sends(3, 3, "FetchSnapshot request"),
        {"t": 4, "kind": "does", "node": "n1", "text": "n1 sends n2: FetchRequest epoch=0"},
    )  # fmt: skip
    with closing(RecordedRun(path)) as run:
        assert shown(run, 0, 10, with_fetches=False) == [1, 3]
        assert run.window(0, 10, with_fetches=False)["events"] == []
        assert shown(run, 0, 10) == [1, 2, 3]


def test_a_window_is_bounded_and_says_what_it_omits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_run, "WINDOW_ITEMS_MAX", 3)
    with closing(RecordedRun(written(tmp_path, *(sends(1, n) for n in range(5))))) as run:
        found = run.window(0, 10, with_fetches=True)
    assert (len(found["messages"]), found["omitted"]) == (3, 2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("n1 starts\n", "line 1 was not written by simulate --trace-json"),
        ('{"format": 9}\n', "its format is 9, this release reads 1"),
        (json.dumps(ABOUT) + '\n{"t": 1}\n', "line 2 was not written"),
        (json.dumps(ABOUT) + '\n{"t": 1, "kind": "lost", "id": 4}\n', "line 2 was not written"),
    ],
)
def test_a_damaged_file_names_the_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(RunFileError, match=problem):
        RecordedRun(path)

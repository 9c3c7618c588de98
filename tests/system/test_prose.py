"""Our prose stays plain English: no file gets more of the phrases that tools/prose.py counts."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tools import prose

MESSAGE_KINDS = {"doc", "message"}
"""Texts that users read: they have no such phrase at all."""

SOURCE_PHRASES_MAX = 400


@pytest.fixture(scope="module")
def findings() -> list[prose.Finding]:
    return [found for item in prose.all_items() for found in prose.findings_in(item)]


def test_texts_that_users_read_are_plain(findings):
    odd = [found for found in findings if found.item.kind in MESSAGE_KINDS]
    assert [(found.item.path, found.item.line, found.words) for found in odd] == []


def test_no_file_has_more_than_before(findings):
    kept = json.loads(prose.KEPT.read_text())
    assert prose.risen(prose.counts_by_file(findings), kept) == []


def test_the_source_as_a_whole_stays_below_its_limit(findings):
    counts = Counter(found.item.path.partition("/")[0] for found in findings)
    assert counts["src"] <= SOURCE_PHRASES_MAX


@pytest.mark.parametrize(
    "text",
    [
        "None where it is missing.",
        "What the leader noted.",
        "It is told of changes.",
        "nobody leads",
        "the header says so",
        "the bytes behind the header",
        "3 bytes are no number",
        "it goes on reading",
        "Whoever reads it gets an error.",
        "what became of it",
        "written anew",
        "a leader that it heard of",
        "options it does not heed",
        "all is mended",
        "it lets go of the file",
        "lest it waits for ever",
        "it is to be removed",
    ],
)
def test_each_phrase_is_found(text: str):
    assert list(prose.findings_in(prose.Item("docstring", "a.py", 1, text)))


@pytest.mark.parametrize(
    "text",
    [
        "Return None if it is missing.",
        "There is no leader.",
        "It is no longer in sync.",
        "A follower that falls behind leaves the ISR.",
        "Code such as `where` and `tell` is not prose.",
    ],
)
def test_plain_text_is_not_found(text: str):
    assert not list(prose.findings_in(prose.Item("docstring", "a.py", 1, text)))


def test_docstrings_comments_and_messages_are_items(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(
        '"""A module."""\n\n\ndef run():\n    """Run it."""\n'
        "    # Two lines of\n    # one comment.\n"
        '    raise ValueError(f"the broker {run} is fenced")\n'
    )
    items = [(item.kind, item.line, item.text) for item in prose.items_of_python(path)]
    assert sorted(items) == [
        ("comment", 6, "Two lines of one comment."),
        ("docstring", 1, "A module."),
        ("docstring", 5, "Run it."),
        ("message", 8, "the broker {} is fenced"),
    ]

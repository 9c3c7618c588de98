"""The journal of group decisions: on disk, through its API, and as `explain group` prints it."""

from dataclasses import replace
from pathlib import Path

from sparkraft.client.explain.group import decision_json, group_lines
from sparkraft.coordinator.group.journal import (
    ENTRY_CHARS_MAX,
    LISTED_MAX,
    TEXT_CHARS_MAX,
    Journal,
    JournalEntry,
    Move,
)
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k10004_describe_group_decisions import (
    DescribeGroupDecisionsRequest,
)
from sparkraft.server.coordinator.group_journal import FILE_NAME, group_journal_file
from sparkraft.storage.disk import OsDisk
from tests.server.coordinator.fake_broker import FakeBroker

MOVE = Move("t", 3, "a", "b", 250)


def entry(at_ms: int, group_id: str = "g") -> JournalEntry:
    return JournalEntry(
        at_ms=at_ms,  # type: ignore[arg-type]
        group_id=group_id,
        generation=at_ms % 1_000,
        kind="moved",
        reason="the previous owners released them",
        member_id="b",
        moves=(MOVE,),
        move_count=1,
        took_ms=250,
    )


def journal_in(path: Path, entries_max: int = 5) -> Journal:
    file = group_journal_file(OsDisk(), str(path), entries_max)
    return Journal(entries_max, earlier=file.read(), sink=file.append)


def test_the_journal_survives_a_restart(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    added = [entry(at) for at in range(3)]
    for one in added:
        journal.add(one)
    again = journal_in(tmp_path)
    assert again.entries() == added
    again.add(entry(3))
    assert [one.at_ms for one in journal_in(tmp_path).entries()] == [0, 1, 2, 3]


def test_the_file_is_rewritten_before_it_grows_without_bound(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    for at in range(40):
        journal.add(entry(at))
    assert len((tmp_path / FILE_NAME).read_bytes().splitlines()) <= 10
    assert [one.at_ms for one in journal_in(tmp_path).entries()] == [35, 36, 37, 38, 39]


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    journal_in(tmp_path).add(entry(1))
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes() + b'{"at_ms": 2, "gro')
    journal = journal_in(tmp_path)
    journal.add(entry(3))
    assert [one.at_ms for one in journal_in(tmp_path).entries()] == [1, 3]


def test_an_entry_is_bounded_however_many_members_a_group_has_and_however_long_their_names() -> (
    None
):
    journal = Journal(5)
    members = [f"member-{number}" for number in range(10 * LISTED_MAX)]
    elected = replace(
        entry(1),
        kind="assignor",
        candidates=tuple(members),
        votes=dict.fromkeys(members, "range"),
        ruled_out=dict.fromkeys(members, "why"),
    )
    journal.add(elected)
    (found,) = journal.entries()
    assert found.candidates == tuple(members[:LISTED_MAX])
    assert list(found.votes) == list(found.ruled_out) == members[:LISTED_MAX]
    assert found.moves == (MOVE,)
    long = "x" * ENTRY_CHARS_MAX
    journal.add(replace(elected, member_id=long, moves=(MOVE,) * 100, move_count=100))
    trimmed = journal.entries()[-1]
    assert trimmed.char_count < 5 * TEXT_CHARS_MAX
    assert (trimmed.group_id, trimmed.move_count, trimmed.moves) == ("g", 100, ())
    journal.add(replace(elected, moves=(Move("t", 0, long, "b"),)))
    assert journal.entries()[-1].moves == ()


def test_the_api_gives_one_group_in_pages() -> None:
    broker = FakeBroker()
    for at in range(7):
        broker.groups.journal.add(entry(at, "g" if at % 2 else "other"))
    pages, first = [], 0
    while first >= 0:
        request = DescribeGroupDecisionsRequest(group_id="g", first=first, entries_max=2)
        response = broker.ask(ApiKey.DESCRIBE_GROUP_DECISIONS, request, 0)
        pages.append([one.at_ms for one in response.decisions])
        first = response.next
    assert pages == [[1, 3], [5]]


def test_the_text_names_the_partitions_and_the_duration() -> None:
    broker = FakeBroker()
    broker.groups.journal.add(entry(1_700_000_000_000))
    request = DescribeGroupDecisionsRequest(group_id="g")
    (found,) = broker.ask(ApiKey.DESCRIBE_GROUP_DECISIONS, request, 0).decisions
    assert list(group_lines([decision_json(1, found)])) == [
        "2023-11-14 (UTC)",
        "22:13:20.000  epoch 0  b took over 1 partitions in 250 ms",
        "    a -> b in 250 ms: t-3",
    ]

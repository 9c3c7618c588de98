"""Each anomaly is seen, and by its name alone; what Kafka promises to nobody is none."""

import pytest

from sparkraft.simulation.workload.history import History, Poll, Result, Send, acknowledged, check

OK, FAILED, UNKNOWN = Result.OK, Result.FAILED, Result.UNKNOWN


def history(
    sends: dict[str, list[tuple[str, Result, int]]],
    polls: dict[str, list[list[tuple[int, str]]]],
    moved: tuple[tuple[str, int], ...] = (),
) -> History:
    """`moved` names (consumer, number of poll)."""
    made = History()
    for producer, its_sends in sends.items():
        for value, result, offset in its_sends:
            made.sent(producer, "t-0", Send(value, result, offset))
    for consumer, its_polls in polls.items():
        for number, records in enumerate(its_polls):
            is_moved = (consumer, number) in moved
            made.polled(consumer, "t-0", Poll(tuple(records), is_moved))
    return made


THREE = [("a", OK, 0), ("b", OK, 1), ("c", OK, 2)]
READ = [[(0, "a"), (1, "b")], [(2, "c")]]


def test_a_sound_history_has_none() -> None:
    sound = history({"p": THREE}, {"c": READ, "d": [READ[0] + READ[1]]})
    assert check(sound) == []
    assert acknowledged(sound) == 3


@pytest.mark.parametrize(
    ("name", "sends", "polls"),
    [
        ("inconsistent-offsets", {"p": THREE, "q": [("x", UNKNOWN, -1)]}, [READ, [[(1, "x")]]]),
        ("duplicate", {"p": THREE}, [[*READ, [(3, "b")]]]),
        ("duplicate", {"p": [("a", OK, 0)]}, [[[(1, "a")]]]),
        ("phantom", {"p": THREE}, [[*READ, [(3, "nobody's")]]]),
        ("aborted-read", {"p": [*THREE, ("d", FAILED, -1)]}, [[*READ, [(3, "d")]]]),
        ("lost-write", {"p": [*THREE, ("d", OK, 3), ("e", OK, 4)]}, [[*READ, [(4, "e")]]]),
        ("unseen", {"p": [*THREE, ("d", OK, 3)]}, [READ]),
        ("unseen", {"p": [*THREE, ("d", OK, -1)]}, [READ]),
        ("nonmonotonic-send", {"p": [("a", OK, 1), ("b", OK, 0)]}, [[[(0, "b"), (1, "a")]]]),
        (
            "nonmonotonic-send",
            {"p": [("a", UNKNOWN, -1), ("b", OK, 0)]},
            [[[(0, "b"), (1, "a")]]],
        ),
        ("nonmonotonic-poll", {"p": THREE}, [[*READ, [(1, "b")]]]),
        ("nonmonotonic-poll", {"p": THREE}, [[*READ, [(2, "c")]]]),
        ("poll-skip", {"p": THREE}, [READ, [[(0, "a")], [(2, "c")]]]),
    ],
)
def test_each_is_seen(
    name: str,
    sends: dict[str, list[tuple[str, Result, int]]],
    polls: list[list[list[tuple[int, str]]]],
) -> None:
    found = check(history(sends, {f"c{n}": its for n, its in enumerate(polls)}))
    assert name in {anomaly.name for anomaly in found}
    # A lost record is also one that a consumer went over.
    assert {anomaly.name for anomaly in found} <= {name, "poll-skip"}
    assert all("t-0" in str(anomaly) for anomaly in found)


def test_a_write_that_nobody_heard_of_again_may_be_there_or_not() -> None:
    sends = {"p": [*THREE, ("d", UNKNOWN, -1)]}
    assert check(history(sends, {"c": READ})) == []
    assert check(history(sends, {"c": [*READ, [(3, "d")]]})) == []
    assert check(history({"p": [*THREE, ("d", FAILED, -1)]}, {"c": READ})) == []


def test_offsets_may_have_gaps_where_nothing_is() -> None:
    sends = {"p": [("a", OK, 0), ("b", OK, 7)]}
    assert check(history(sends, {"c": [[(0, "a")], [(7, "b")]]})) == []


def test_a_consumer_that_was_moved_may_skip_and_go_back() -> None:
    polls = {"c": [[(2, "c")], [(0, "a")], [(2, "c")]], "d": READ}
    assert check(history({"p": THREE}, polls, moved=(("c", 1), ("c", 2)))) == []


def test_what_is_not_read_yet_is_not_unseen() -> None:
    unread = history({"p": [*THREE, ("d", OK, 3)]}, {"c": READ})
    assert check(unread, is_final=False) == []


def test_partitions_are_apart() -> None:
    made = history({"p": THREE}, {"c": READ})
    made.sent("p", "t-1", Send("a", OK, 0))
    made.polled("c", "t-1", Poll(((0, "a"),)))
    assert check(made) == []
    made.sent("p", "t-1", Send("b", OK, 1))
    (found,) = check(made)
    assert (found.name, found.partition) == ("unseen", "t-1")

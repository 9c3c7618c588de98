"""The race for /controller, from the journals of brokers."""

from typing import Any

from sparkraft.client.explain.controller_epochs import controller_epochs, epoch_lines
from sparkraft.client.explain.zookeeper_controller import (
    ControllerJournal,
    controller_lines,
    document_of,
)

START_MS = 1_795_000_000_000


def decisions(broker: int, *entries: tuple[int, str, str]) -> list[dict[str, Any]]:
    return [
        {"broker": broker, "number": number, "atMs": START_MS + at, "kind": kind, "text": text}
        for number, (at, kind, text) in enumerate(entries)
    ]


def shown(epochs: list[dict[str, Any]]) -> list[tuple[int | None, int, list[str]]]:
    return [
        (one["epoch"], one["controller"], [event["text"] for event in one["events"]])
        for one in epochs
    ]


FIRST = decisions(
    1,
    (0, "attempt", "won epoch 1"),
    (5, "failover", "read 2 brokers, 0 topics, 0 partitions"),
    (9_000, "brokers", "new: 2"),
    (90_000, "resignation", "epoch 1: the session expired"),
    (91_000, "attempt", "lost: broker 2 was faster"),
)
SECOND = decisions(
    2,
    (40, "attempt", "lost: broker 1 is the controller"),
    (90_020, "attempt", "won epoch 2, its reply was lost"),
    (90_031, "failover", "read 1 brokers, 0 topics, 0 partitions"),
)


def test_an_epoch_has_its_race_its_failover_and_its_end() -> None:
    assert shown(controller_epochs([*FIRST, *SECOND], 2, 2)) == [
        (1, 1, [
            "broker 1 won epoch 1",
            "failover of broker 1, +5 ms: read 2 brokers, 0 topics, 0 partitions",
            "broker 2 lost: broker 1 is the controller",
            "broker 1 resigned: the session expired",
        ]),
        (2, 2, [
            "broker 2 won epoch 2, its reply was lost",
            "failover of broker 2, +11 ms: read 1 brokers, 0 topics, 0 partitions",
            "broker 1 lost: broker 2 was faster",
        ]),
    ]  # fmt: skip


def test_a_loser_whose_clock_is_early_belongs_to_the_winner_that_it_names() -> None:
    early = decisions(3, (89_000, "attempt", "lost: broker 2 was faster"))
    last = controller_epochs([*FIRST, *SECOND, *early], 2, 2)[-1]
    assert last["events"][0]["text"] == "broker 3 lost: broker 2 was faster"


def test_a_winner_without_a_journal_is_known_by_those_that_lost() -> None:
    """As a broker of Apache Kafka, before, between and after controllers of ours."""
    lost = decisions(
        2,
        (0, "attempt", "lost: broker 9 is the controller"),
        (50, "attempt", "won epoch 5"),
        (60, "resignation", "epoch 5: an operator moved the controller"),
        (70, "attempt", "lost: broker 9 was faster"),
    )
    before, own, after = controller_epochs(lost, 9, 6)
    assert (before["epoch"], before["controller"], before["at"]) == (None, 9, None)
    assert own["epoch"] == 5
    assert (after["epoch"], after["controller"]) == (6, 9)
    assert [event["broker"] for event in after["events"]] == [2]
    assert next(epoch_lines(before)).startswith("an unknown epoch: controller 9, its election is")


def test_a_loser_that_names_nobody_lost_the_newest_epoch() -> None:
    lost = decisions(3, (90_025, "attempt", "lost: the controller that won has resigned"))
    epochs = controller_epochs([*FIRST, *SECOND, *lost], 2, 2)
    assert [event["broker"] for event in epochs[-1]["events"]] == [2, 3, 2, 1]
    assert controller_epochs(lost, -1, -1) == []


def test_the_present_controller_is_shown_without_any_journal() -> None:
    document = document_of([], {1: "keeps none"}, controller=1)
    assert shown(document["epochs"]) == [(None, 1, [])]
    assert list(controller_lines(document, 20, 1)) == [
        "controller  broker 1, an unknown epoch; its election is in no journal",
        "an unknown epoch: controller 1, its election is in no journal",
        "broker 1: not available, keeps none",
    ]


def test_the_newest_epochs_are_printed() -> None:
    journals = [
        ControllerJournal(broker=1, controller=2, epoch=2, stands=True, decisions=FIRST),
        ControllerJournal(broker=2, controller=2, epoch=2, stands=True, decisions=SECOND),
    ]
    document = document_of(journals, {}, controller=-1)
    lines = list(controller_lines(document, 0, 1))
    assert "epoch 2: controller 2   2026-11-18T11:08:10.020+00:00" in lines
    assert "    11:08:11.000  broker 1 lost: broker 2 was faster" in lines
    assert not any("epoch 1: controller" in line for line in lines)

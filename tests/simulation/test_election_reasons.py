"""A true account passes; every kind of lie about it is noticed."""

from dataclasses import replace

import pytest

from sparkraft.controller.history import History
from sparkraft.controller.leader_election import Cause, CauseKind, ChosenBy
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.simulation.checks.election_reasons import Fact, disagreements
from tests.controller.cluster_of import Cluster


def watched(cluster: Cluster, topic_id) -> list[Fact]:
    """What somebody saw who replayed the log record by record, and nothing else."""
    image, facts = EMPTY_IMAGE, []
    for records, base in cluster.log:
        for number, record in enumerate(records):
            before = image.partition(topic_id, 0)
            image = apply(image, record)
            after = image.partition(topic_id, 0)
            if after != before:
                facts.append(Fact(base + number, after))
    return facts


@pytest.fixture
def account():
    """Events and facts of a partition with three elections."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.create("t", replicas=[[1, 2, 3]], min_insync_replicas="2")
    for broker_id in (1, 2, 3):
        cluster.fence(broker_id)
    cluster.heartbeat(2)
    history = History(EMPTY_IMAGE, lambda *_: True, events_max=100)
    for records, base in cluster.log:
        last = base + len(records) - 1
        history.feed(records, base_offset=base, last_offset=last, epoch=1, at_ms=0)
    topic_id = cluster.core.latest.topics_by_name["t"]
    return history.partition_events(topic_id, 0), watched(cluster, topic_id)


def test_a_true_account_passes(account):
    events, facts = account
    assert len(events) == len(facts) == 5
    assert disagreements(events, facts) == []
    assert disagreements(events[2:], facts) == []
    assert disagreements([], []) == []


def change(events, place, **fields):
    return [*events[:place], replace(events[place], **fields), *events[place + 1 :]]


def elect(events, place, **fields):
    return change(events, place, election=replace(events[place].election, **fields))


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda e: [], "has no events"),
        (lambda e: [e[0], *e[2:]], "a change is missing"),
        (lambda e: [*e, replace(e[-1], offset=10_000)], "is not in the log"),
        (lambda e: change(e, 1, after=e[2].after), "`after` is"),
        (lambda e: change(e, 2, before=e[0].after), "`before` is"),
        (lambda e: change(e, 1, cause=Cause(CauseKind.FENCED, "")), "no cause is given"),
        (lambda e: change(e, 1, election=None), "without an election"),
        (lambda e: change(e, 1, derived=False), "do not imply leader 2"),
        (lambda e: elect(e, 1, candidates=(1, 2)), "are not the replicas"),
        (lambda e: elect(e, 1, chosen_by=ChosenBy.NOBODY), "was chosen as nobody"),
        (lambda e: elect(e, 1, live=(1, 3)), "not among the live"),
        (lambda e: elect(e, 1, ruled_out=((2, "fenced"),)), "leader 2 is ruled out"),
        (lambda e: elect(e, 1, isr=(3,)), "was chosen as in-sync replica of"),
        (lambda e: elect(e, 1, ruled_out=()), "precede leader 2"),
        (lambda e: elect(e, 3, ruled_out=((1, "fenced"),)), "but only [1]"),
        (lambda e: elect(e, 4, elr=(1, 3)), "was chosen as eligible leader replica of"),
        (lambda e: elect(e, 4, chosen_by=ChosenBy.ANY_LIVE_REPLICA), "counts as unclean"),
        (lambda e: elect(e, 1, chosen_by=ChosenBy.PREFERRED_REPLICA), "preferred replica of"),
    ],
)
def test_a_lie_is_noticed(account, lie, said):
    events, facts = account
    found = disagreements(lie(list(events)), facts)
    assert any(said in sentence for sentence in found), found

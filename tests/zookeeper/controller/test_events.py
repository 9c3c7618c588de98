"""Watches become events; the queue keeps their order."""

import pytest

from sparkraft.zookeeper.controller import events
from sparkraft.zookeeper.controller.events import EventQueue, event_of
from sparkraft.zookeeper.exchange import EventType, WatchEvent

CHILDREN = EventType.NODE_CHILDREN_CHANGED
CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
DATA = EventType.NODE_DATA_CHANGED


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        (CREATED, "/controller", events.ControllerChanged()),
        (DATA, "/controller", events.ControllerChanged()),
        (DELETED, "/controller", events.Reelect()),
        (CHILDREN, "/brokers/ids", events.BrokersChanged()),
        (DATA, "/brokers/ids/3", events.BrokerModified(3)),
        (DELETED, "/brokers/ids/3", None),
        (CHILDREN, "/brokers/topics", events.TopicsChanged()),
        (DATA, "/brokers/topics/t", events.TopicModified("t")),
        (DATA, "/brokers/topics/t/partitions/0/state", events.ReassignedStateChanged("t", 0)),
        (CHILDREN, "/admin/delete_topics", events.DeletionsChanged()),
        (CHILDREN, "/log_dir_event_notification", events.LogDirEvents()),
        (CHILDREN, "/isr_change_notification", events.IsrChanges()),
        (CREATED, "/admin/reassign_partitions", events.ReassignmentsCreated()),
        (DELETED, "/admin/reassign_partitions", None),
        (CREATED, "/admin/preferred_replica_election", events.PreferredElectionsCreated()),
        (CHILDREN, "/config/changes", None),
    ],
)
def test_a_watch_becomes_an_event(kind, path, expected):
    assert event_of(WatchEvent(kind, path)) == expected


def test_events_are_taken_in_order():
    queue = EventQueue()
    for at, event in enumerate([events.TopicsChanged(), events.BrokersChanged()]):
        queue.put(event, at)
    assert queue.take() == (events.TopicsChanged(), 0, None)
    assert queue.take() == (events.BrokersChanged(), 1, None)
    assert queue.take() is None


def test_an_event_that_waits_already_is_not_added_again():
    queue = EventQueue()
    queue.put(events.TopicsChanged(), 1)
    queue.put(events.TopicsChanged(), 2)
    queue.put(events.BrokerModified(1), 3)
    queue.put(events.BrokerModified(2), 3)
    assert len(queue) == 3


def test_an_expiry_replaces_all_waiting_events():
    queue = EventQueue()
    queue.put(events.TopicsChanged(), 1)
    queue.put(events.ListReassignments(None), 1, answer=print)
    preempted = queue.clear_and_put(events.Expired(), 2)
    assert preempted == [
        (events.TopicsChanged(), 1, None),
        (events.ListReassignments(None), 1, print),
    ]
    assert queue.take() == (events.Expired(), 2, None)
    assert len(queue) == 0

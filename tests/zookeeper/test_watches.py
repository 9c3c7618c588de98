"""One-shot watches, and the requests that set them again after a reconnect."""

import pytest

from sparkraft.zookeeper.errors import Code
from sparkraft.zookeeper.exchange import EventType, WatchEvent
from sparkraft.zookeeper.requests import Exists, GetChildren, GetData, SetWatches
from sparkraft.zookeeper.watches import SET_WATCHES_BYTES_MAX, Watches


def watching() -> Watches:
    watches = Watches()
    watches.add(GetData(path="/data", watch=True), Code.OK)
    watches.add(Exists(path="/there", watch=True), Code.OK)
    watches.add(Exists(path="/absent", watch=True), Code.NO_NODE)
    watches.add(GetChildren(path="/parent", watch=True), Code.OK)
    return watches


def test_watches_go_into_the_table_of_their_request() -> None:
    assert list(watching().renewals(7)) == [
        SetWatches(zxid=7, data=["/data", "/there"], exist=["/absent"], child=["/parent"])
    ]


def test_requests_without_a_watch_or_that_failed_set_none() -> None:
    watches = Watches()
    watches.add(GetData(path="/a"), Code.OK)
    watches.add(GetData(path="/a", watch=True), Code.NO_NODE)
    watches.add(GetChildren(path="/a", watch=True), Code.NO_AUTH)
    watches.add(Exists(path="/a", watch=True), Code.CONNECTION_LOSS)
    assert list(watches.renewals(7)) == []


@pytest.mark.parametrize(
    ("event", "gone"),
    [
        (WatchEvent(EventType.NODE_DATA_CHANGED, "/data"), "/data"),
        (WatchEvent(EventType.NODE_CREATED, "/absent"), "/absent"),
        (WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/parent"), "/parent"),
        (WatchEvent(EventType.NODE_DELETED, "/parent"), "/parent"),
        (WatchEvent(EventType.NODE_DELETED, "/there"), "/there"),
    ],
)
def test_a_watch_that_fired_is_not_set_again(event: WatchEvent, gone: str) -> None:
    watches = watching()
    watches.on_event(event)
    (renewal,) = watches.renewals(7)
    left = {*renewal.data, *renewal.exist, *renewal.child}
    assert left == {"/data", "/there", "/absent", "/parent"} - {gone}


def test_many_watches_take_several_requests() -> None:
    watches = Watches()
    paths = [f"/{number:0100d}" for number in range(3_000)]
    for path in paths:
        watches.add(GetData(path=path, watch=True), Code.OK)
    renewals = list(watches.renewals(7))
    assert len(renewals) == 3
    assert [path for renewal in renewals for path in renewal.data] == paths
    assert all(len(each.encode("")) <= SET_WATCHES_BYTES_MAX + 100 for each in renewals)

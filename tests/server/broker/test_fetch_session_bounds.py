"""How many partitions all fetch sessions of a broker keep."""

from typing import Any

from sparkraft.base.ids import Uuid
from sparkraft.server.broker.fetch_sessions import FetchSession, FetchSessions, SessionPartition
from sparkraft.server.env import SystemClock, SystemEntropy

PARTITIONS_MAX = 10


def sessions() -> FetchSessions:
    return FetchSessions(SystemClock(), SystemEntropy(), slots=100, partitions_max=PARTITIONS_MAX)


def made(of: FetchSessions, partitions: int) -> FetchSession | None:
    session = of.make(partitions, uses_ids=False, is_consumers=False)
    if session is not None:
        for index in range(partitions):
            key: Any = ("t", index)
            session.add(key, SessionPartition("t", Uuid.ZERO, index))
    return session


def test_a_client_gets_no_session_once_all_sessions_keep_too_many_partitions() -> None:
    broker = sessions()
    assert made(broker, 6) is not None
    assert made(broker, 5) is None
    assert made(broker, 4) is not None
    assert made(broker, 1) is None


def test_room_is_free_again_after_a_session_ends() -> None:
    broker = sessions()
    first = made(broker, 10)
    assert first is not None
    assert not broker.has_room(1)
    broker.end(first.id)
    assert made(broker, 10) is not None


def test_partitions_named_repeatedly_are_kept_once() -> None:
    broker = sessions()
    assert made(broker, 5) is not None
    assert all(broker.has_room(5) for _ in range(20))
    assert not broker.has_room(6)

"""A client of librdkafka is left behind where it stands still for ever, and only there."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import record_clients
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients


@pytest.fixture
def client() -> Iterator[None]:
    """One that finds no broker, and runs."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    yield
    consumer.close()


@pytest.fixture
def stuck() -> Iterator[None]:
    """A thread with the name of librdkafka's main thread that waits and waits.

    A thread of C: one of Python's gives up its core once more wherever it has to wait for the
    interpreter, which may be after somebody has looked at it for the first time.
    """
    libc = ctypes.CDLL(None)
    thread, end = ctypes.c_ulong(), ctypes.create_string_buffer(64)  # holds a sem_t
    libc.sem_init(end, 0, 0)
    assert libc.pthread_create(ctypes.byref(thread), None, libc.sem_wait, end) == 0
    libc.pthread_setname_np(thread, b"stands still")
    (task,) = [t for t in Path("/proc/self/task").iterdir() if _name(t) == "stands still"]
    wait_until(lambda: _state(task) == "S", "the thread to have gone to sleep")
    libc.pthread_setname_np(thread, b"rdk:main")
    yield
    libc.sem_post(end)
    libc.pthread_join(thread, None)


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:
        return ""  # It has just ended.


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture(autouse=True)
def _nobody_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_clients, "_locked_out", set())


@pytest.mark.usefixtures("client")
def test_a_client_that_waits_for_a_broker_is_at_work() -> None:
    assert not record_clients.has_locked_itself_out("waiting")


@pytest.mark.usefixtures("client", "stuck")
def test_a_client_that_stands_still_is_told_of_once() -> None:
    with pytest.warns(UserWarning, match="first is left behind"):
        assert record_clients.has_locked_itself_out("first")
    assert not record_clients.has_locked_itself_out("second")

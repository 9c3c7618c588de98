"""A client of librdkafka is left behind where it stands still for ever, and only there."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import record_clients

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
    """A thread with the name of librdkafka's main thread that waits and waits."""
    named, end = threading.Event(), threading.Event()

    def wait() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("rdk:main")
        named.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    named.wait()
    yield
    end.set()
    thread.join()


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

"""The start of a query on a Spark Connect server, and the end of its batches, without a server."""

import threading

import pytest
from pyspark.errors import PySparkException

from sparkraft.pipeline import connect_batches
from sparkraft.pipeline.run import cause_of
from tests.support.ports import wait_until

QUERY = "the-query"


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(connect_batches, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(connect_batches, "_CALM_SECONDS", 0.02)
    monkeypatch.setattr(connect_batches, "_NOTICE_SECONDS", 0.01)


class Writer:
    """A query whose process did not start the first times."""

    def __init__(self, failures):
        self.failures = failures

    def start(self):
        if self.failures:
            raise PySparkException(self.failures.pop())
        return "query"


def test_a_query_is_started_again_if_the_servers_python_was_slow():
    slow = f"(org.apache.spark.SparkException) {connect_batches.SLOW_PYTHON}."
    assert connect_batches.started(Writer([slow] * 4)) == "query"
    with pytest.raises(PySparkException, match="no such table"):
        connect_batches.started(Writer(["no such table", slow]))
    with pytest.raises(PySparkException) as raised:
        connect_batches.started(Writer([slow] * 5))
    assert "lacks a package, such as those of pyspark[connect]" in cause_of(raised.value)


def test_a_start_that_waits_is_explained(caplog):
    is_explained = threading.Event()

    class Waiting:
        def start(self):
            wait_until(lambda: caplog.messages, "the wait is explained")
            is_explained.set()
            return "query"

    assert connect_batches.started(Waiting()) == "query"
    assert is_explained.is_set()
    (said,) = caplog.messages
    assert said.startswith(
        "Waiting until the Spark Connect server has started the query. If a kill"
    )


class OfQuery:
    """The session of a query. Each request is answered by the next one of `states`."""

    def __init__(self, *states):
        self.states = list(states)
        self.requests = 0

    @property
    def streams(self):
        return self

    def get(self, query_id):
        assert query_id == QUERY
        return self

    @property
    def isActive(self):  # noqa: N802 (Spark's)
        self.requests += 1
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state


class Unknown(OfQuery):
    """A session without the query."""

    def get(self, query_id):
        self.requests += 1


class OfBatch:
    """The session of a batch."""

    def __init__(self, failures=0):
        self.failures = failures
        self.interrupts = 0

    def interruptAll(self):  # noqa: N802 (Spark's)
        self.interrupts += 1
        if self.interrupts <= self.failures:
            raise PySparkException("busy")


@pytest.mark.parametrize(
    "states",
    [
        (True, True, False),
        (PySparkException("Streaming query is not found"), False),
        (True, PySparkException("[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid")),
    ],
)
def test_a_batch_whose_query_is_stopped_is_canceled_until_it_ends(states):
    of_query, of_batch = OfQuery(*states), OfBatch(failures=1)
    with connect_batches.canceled_with_query(QUERY, of_query, of_batch):
        wait_until(lambda: of_batch.interrupts >= 3, "jobs are canceled again and again")
    interrupts = of_batch.interrupts
    wait_until(lambda: not watches(), "the watch ends with the batch")
    assert of_batch.interrupts <= interrupts + 1


@pytest.mark.parametrize(
    "of_query", [OfQuery(True), OfQuery(PySparkException("no such query")), Unknown()]
)
def test_a_batch_runs_on_if_its_query_is_not_known_to_be_stopped(of_query):
    of_batch = OfBatch()
    with connect_batches.canceled_with_query(QUERY, of_query, of_batch):
        wait_until(lambda: of_query.requests >= 20, "the server is asked")
    wait_until(lambda: not watches(), "the watch ends with the batch")
    assert of_batch.interrupts == 0


def test_a_batch_has_time_to_end_after_its_query_was_stopped(monkeypatch):
    monkeypatch.setattr(connect_batches, "_CALM_SECONDS", 60.0)
    of_query, of_batch = OfQuery(False), OfBatch()
    with connect_batches.canceled_with_query(QUERY, of_query, of_batch):
        wait_until(lambda: of_query.requests, "the server is asked")
    wait_until(lambda: not watches(), "the watch ends with the batch")
    assert of_batch.interrupts == 0


def watches():
    return [each for each in threading.enumerate() if "_watch" in each.name]

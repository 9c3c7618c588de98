"""Which time counts against `request_percentage`, beside the handlers' own."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.protocol.messages.k03_metadata import MetadataRequest
from sparkraft.security.client_quotas import ClientQuotas
from sparkraft.security.quotas import REQUEST_PERCENTAGE
from sparkraft.server.network.loop_wakes import WAKE_S_MAX, LoopWakes
from sparkraft.server.network.request_time import LoopTime, TimeBesideRequests
from tests.server.harness import connect, node_in, run, until
from tests.server.test_client_quotas import set_quota


def times(*values: float) -> Callable[[], float]:
    """A clock that shows these, one after the other."""
    left = iter(values)
    return lambda: next(left)


def test_a_wake_is_the_processor_time_between_two_pieces():
    wakes = LoopWakes(times(5.0, 5.000_05))
    assert wakes.take() == 0, "before the first piece"
    wakes.end()
    assert wakes.take() == pytest.approx(0.000_05)


def test_what_other_tasks_do_between_two_pieces_counts_as_one_wake_at_most():
    wakes = LoopWakes(times(5.0, 5.1))
    wakes.end()
    assert wakes.take() == WAKE_S_MAX


def context_of(user: str) -> Any:
    context = SimpleNamespace(
        principal=SimpleNamespace(name=user), client_id="c", loop_time=None
    )  # fmt: skip
    context.measure_time = lambda time: setattr(context, "loop_time", time)
    return context


def test_time_beside_requests_is_the_last_senders_also_in_runs_without_a_request():
    """Such a run puts a request aside that arrives during a throttle."""
    recorded: list[tuple[str, float]] = []

    class Quotas(ClientQuotas):
        def record_time(self, user: str, client_id: str | None, seconds: float, now: int) -> int:
            recorded.append((user, seconds))
            return 0

    async def test() -> None:
        loop = asyncio.get_running_loop()
        now = 0.0
        loop.time = lambda: now  # type: ignore[method-assign]
        used = 0.0
        wakes = LoopWakes(lambda: used)
        beside = TimeBesideRequests(wakes)

        def run_for(seconds: float, user: str | None = None) -> None:
            nonlocal now, used
            used += 0.000_1
            beside.start()
            now += seconds
            if user is not None:
                beside.measure(context_of(user))
                now += 50.0  # the request itself
                beside.come_back()
            now += seconds
            beside.stop(Quotas(), 0)

        run_for(1.0)
        assert recorded == [], "no client has sent a request"
        run_for(1.0, "alice")
        run_for(0.5)
        run_for(0.25, "bob")
        beside.start()
        exempt = context_of("carol")
        beside.measure(exempt)
        exempt.loop_time = None
        beside.come_back()
        beside.stop(Quotas(), 0)
        run_for(1.0)
        assert [user for user, _ in recorded] == ["alice", "alice", "bob"]
        seconds = [seconds for _, seconds in recorded]
        assert seconds == pytest.approx([2.000_1, 1.000_1, 0.500_1])

    asyncio.run(test())


def test_the_end_of_a_piece_is_where_the_next_wake_begins():
    used = 1.0
    wakes = LoopWakes(lambda: used)
    time = LoopTime(times(0.0, 1.0), wakes)
    used = 2.0
    time.end()
    used = 2.000_02
    assert wakes.take() == pytest.approx(0.000_02)


def test_a_node_counts_its_wakes_and_what_arrives_during_a_throttle(tmp_path, monkeypatch):
    recorded: list[float] = []
    original = ClientQuotas.record_time

    def record_time(
        self: ClientQuotas, user: str, client_id: str | None, seconds: float, now: int
    ) -> int:
        if self.limit_of(REQUEST_PERCENTAGE, user, client_id or "") is not None:
            recorded.append(seconds)
        return original(self, user, client_id, seconds, now)

    monkeypatch.setattr(ClientQuotas, "record_time", record_time)

    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            limited = await connect(node)
            await set_quota(node, client, REQUEST_PERCENTAGE, 0.0001)
            assert (await limited.send(MetadataRequest(topics=None))).throttle_time_ms == 1_000
            await until(lambda: recorded)
            recorded.clear()
            pending = asyncio.ensure_future(limited.send(MetadataRequest(topics=None)))
            await until(lambda: recorded)
            assert any(each._deferred for one in node.listeners for each in one._connections)
            assert not pending.done()
            await pending
            await limited.close()
            await client.close()

    run(test())

"""A broker whose id is registered already, or again: a kill before, a late request, or a double."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.server.broker.broker_epoch import BrokerEpoch
from sparkraft.server.broker.lifecycle import RECLAIMS_MAX, BrokerLifecycle

SESSION_MS = 9_000
NUMBERS = {
    "broker.session.timeout.ms": SESSION_MS,
    "initial.broker.registration.timeout.ms": 60_000,
    "broker.heartbeat.interval.ms": 2_000,
}


class Registering(BrokerLifecycle):
    """Its registration is refused until `free_at` ms."""

    def __init__(self, free_at: int) -> None:
        self.now = 0
        self.free_at = free_at
        self._clock: Any = SimpleNamespace(mono_ms=lambda: self.now)
        self._config: Any = SimpleNamespace(number=NUMBERS.__getitem__, is_controller=False)
        self._epoch: Any = SimpleNamespace(on_registered=lambda epoch: None, value=1)
        self._stopping = False

    def _registration(self) -> Any:
        return SimpleNamespace(broker_id=7)

    async def _send_registration(self, request: Any, timeout_ms: int) -> Any:
        taken = self.now < self.free_at
        code = ErrorCode.DUPLICATE_BROKER_REGISTRATION if taken else 0
        return SimpleNamespace(error_code=code, broker_epoch=1)

    async def _pause(self, wait_ms: int) -> None:
        self.now += wait_ms


def logged(caplog, *, free_at: int) -> list[tuple[str, str]]:
    with caplog.at_level(logging.INFO):
        asyncio.run(Registering(free_at)._register())
    return [
        (r.levelname, r.getMessage()) for r in caplog.records if "ncarnation" in r.getMessage()
        or "second node" in r.getMessage()
    ]  # fmt: skip


def test_a_restart_after_a_kill_is_no_warning(caplog) -> None:
    ((level, text),) = logged(caplog, free_at=SESSION_MS)
    assert level == "INFO"
    assert "broker 7's previous incarnation" in text


def test_a_second_node_with_the_same_id_is_a_warning_once_its_session_never_expires(caplog) -> None:
    lines = logged(caplog, free_at=50_000)
    assert [level for level, _ in lines] == ["INFO", "WARNING"]
    assert lines[1][1].startswith("Broker id 7 is registered by another process")


class Loading(Registering):
    """A combined node: its controller accepts nothing while the log is replayed until 150 s."""

    LOADED_MS = 150_000

    def __init__(self, *, is_controller: bool, responds: bool = True) -> None:
        super().__init__(free_at=0)
        self._config.is_controller = is_controller
        self.responds = responds

    @property
    def _publisher(self) -> Any:
        return SimpleNamespace(is_loaded=self.now >= self.LOADED_MS)

    @_publisher.setter
    def _publisher(self, _: Any) -> None:
        raise AssertionError

    async def _send_registration(self, request: Any, timeout_ms: int) -> Any:
        if self.responds and self.now + timeout_ms > self.LOADED_MS:
            return await super()._send_registration(request, timeout_ms)
        self.now += timeout_ms
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no response")


def test_the_registration_of_a_controllers_broker_waits_while_the_log_is_loaded() -> None:
    asyncio.run(Loading(is_controller=True)._register())


def test_the_timeout_begins_once_the_log_is_loaded() -> None:
    broker = Loading(is_controller=True, responds=False)
    with pytest.raises(KafkaError, match="no response"):
        asyncio.run(broker._register())
    timeout_ms = NUMBERS["initial.broker.registration.timeout.ms"]
    assert timeout_ms <= broker.now - Loading.LOADED_MS < 2 * timeout_ms


def test_a_broker_without_a_controller_does_not_wait_for_its_log() -> None:
    broker = Loading(is_controller=False)
    with pytest.raises(KafkaError, match="no response"):
        asyncio.run(broker._register())
    assert broker.now == NUMBERS["initial.broker.registration.timeout.ms"]


class Replaced(Registering):
    """Registered in epoch 5; the image has broker 7 in epoch 9, in another process by default."""

    def __init__(self, *, incarnation: str = "theirs", free_at: int = 0) -> None:
        super().__init__(free_at)
        self._incarnation: Any = "ours"
        self._reclaims = 0
        self._has_rival = False
        self._fault_point: Any = lambda _name: False
        self._channel: Any = SimpleNamespace(send=self._accept)
        self.offline_directories = []
        self._epoch = BrokerEpoch()
        self._epoch.on_registered(5)
        known = SimpleNamespace(incarnation_id=incarnation, epoch=9)
        brokers = {7: known} if incarnation else {}
        self._publisher: Any = SimpleNamespace(image=SimpleNamespace(brokers=brokers))
        self._config.node_id = 7
        self.sent = 0

    def _heartbeat_request(self, *, want_shut_down: bool) -> Any:
        return SimpleNamespace(want_shut_down=want_shut_down)

    async def _accept(self, *_request: Any, timeout_ms: int) -> Any:
        _ = timeout_ms
        return SimpleNamespace(error_code=0)

    async def _send_registration(self, request: Any, timeout_ms: int) -> Any:
        self.sent += 1
        response = await super()._send_registration(request, timeout_ms)
        response.broker_epoch = 10 + self.sent
        return response


def reclaim(broker: Replaced, times: int = 1) -> Replaced:
    async def run() -> None:
        for _ in range(times):
            await broker._reclaim()

    asyncio.run(run())
    return broker


def test_a_broker_replaced_by_an_ended_process_registers_again() -> None:
    broker = reclaim(Replaced())
    assert (broker.sent, broker.broker_epoch) == (1, 11)


def test_a_broker_replaced_by_a_running_process_stays_fenced_and_says_so(caplog) -> None:
    broker = reclaim(Replaced(free_at=SESSION_MS))
    assert (broker.sent, broker.broker_epoch) == (1, 5)
    assert broker.now == NUMBERS["broker.heartbeat.interval.ms"]
    assert "second node with the same id" in caplog.text


def test_two_nodes_with_one_id_do_not_take_turns_without_end(caplog) -> None:
    broker = reclaim(Replaced(), times=RECLAIMS_MAX + 5)
    assert broker.sent == RECLAIMS_MAX
    assert "second node with the same id" in caplog.text


def reclaim_between_heartbeats(broker: Replaced, times: int) -> Replaced:
    async def run() -> None:
        for _ in range(times):
            await broker._reclaim()
            assert await broker._heartbeat(want_shut_down=False) is not None

    asyncio.run(run())
    return broker


def test_every_late_registration_is_replaced_if_each_reclaim_leads_to_a_session() -> None:
    times = RECLAIMS_MAX + 5
    assert reclaim_between_heartbeats(Replaced(), times).sent == times


def test_sessions_of_a_broker_with_a_running_double_do_not_let_it_register_without_end() -> None:
    broker = reclaim(Replaced(free_at=SESSION_MS))
    broker.now = SESSION_MS
    reclaim_between_heartbeats(broker, RECLAIMS_MAX + 5)
    assert broker.sent == 1 + RECLAIMS_MAX


def test_an_unregistered_broker_does_not_register_again() -> None:
    assert reclaim(Replaced(incarnation="")).sent == 0


def test_a_broker_whose_second_registration_got_no_response_adopts_its_epoch() -> None:
    broker = reclaim(Replaced(incarnation="ours"))
    assert (broker.sent, broker.broker_epoch) == (0, 9)

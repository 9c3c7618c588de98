"""What a broker logs whose id is registered already: a kill before, or a double."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

from sparkraft.base.errors import ErrorCode
from sparkraft.server.broker.lifecycle import BrokerLifecycle

SESSION_MS = 9_000
NUMBERS = {
    "broker.session.timeout.ms": SESSION_MS,
    "initial.broker.registration.timeout.ms": 60_000,
}


class Registering(BrokerLifecycle):
    """Its registration is refused until `free_at` ms."""

    def __init__(self, free_at: int) -> None:
        self.now = 0
        self.free_at = free_at
        self._clock: Any = SimpleNamespace(mono_ms=lambda: self.now)
        self._config: Any = SimpleNamespace(number=NUMBERS.__getitem__)
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

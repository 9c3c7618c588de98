"""A cluster that consists of one coordinator's answers, in the order the test gives them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sparkraft.base.errors import KafkaError
from sparkraft.client.cluster import View, is_worth_retrying

ATTEMPTS_MAX = 5


@dataclass
class FakeConnection:
    """Supports every version up to the given ones."""

    highest: dict[int, int]

    def version_for(self, key: int, *, at_most: int | None = None) -> int:
        highest = self.highest.get(int(key), 99)
        return highest if at_most is None else min(highest, at_most)


@dataclass
class FakeCluster:
    """Answers `ask_coordinator` from a script; records what was asked in which version."""

    script: list[Any] = field(default_factory=list)
    """Responses, errors to raise, or functions of the request that return either."""
    level: int = 2
    highest: dict[int, int] = field(default_factory=dict)
    asked: list[tuple[Any, int | None]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    view: View = field(default_factory=View)
    request_timeout_ms: int = 1_000

    async def coordinator(self, key: str, *, kind: int = 0) -> int:
        return 1

    async def connection(self, node_id: int) -> FakeConnection:
        return FakeConnection(self.highest)

    def forget_coordinator(self, key: str, *, kind: int = 0) -> None:
        self.forgotten.append(key)

    def finalized_level(self, feature: str) -> int:
        return self.level

    async def ask_coordinator(
        self, key: str, request: Any, *, version: int | None = None, kind: int = 0
    ) -> Any:
        self.asked.append((request, version))
        answer = self.script.pop(0)
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[Any]],
        *,
        timeout_ms: int | None = None,
        backoff_ms: int = 0,
    ) -> Any:
        """As `Cluster.retrying`, but without waiting."""
        for left in reversed(range(ATTEMPTS_MAX)):
            try:
                return await attempt()
            except KafkaError as error:
                if not is_worth_retrying(error) or not left:
                    raise
        raise AssertionError("unreachable")

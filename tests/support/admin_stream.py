"""Admin requests one after another while something happens to a cluster, and what must come of it.

Each round creates a topic, sets a config on it, adds partitions and, now and then, deletes it. A
request is tried again for as long as a client does by default; one that still fails is a loss.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster as ClusterClient
from sparkraft.client.values import ConfigOperation, NewTopic, ResourceType
from tests.support.clusters import Cluster
from tests.support.ports import wait_until

DELETED_EVERY = 4
FINISH_SECONDS_MAX = 200
"""A round has up to four requests, each of which may be tried for a minute."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a topic must look like in the end."""

    partitions: int
    retention_ms: str


class AdminStream:
    """See the module docstring; `topics` and `deleted` hold what was acknowledged."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.topics: dict[str, Wanted] = {}
        self.deleted: set[str] = set()
        self.acknowledged = 0
        self.lost: list[str] = []
        self._cluster = cluster
        self._prefix = prefix
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Let the round under way come to its end; raise what went wrong in the stream itself."""
        self._ending.set()
        self._thread.join(FINISH_SECONDS_MAX)
        assert not self._thread.is_alive(), "the stream hangs"
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._rounds())
        except BaseException as error:
            self._failure = error

    async def _rounds(self) -> None:
        async with ClusterClient(self._cluster.bootstrap, client_id="stream") as client:
            admin = Admin(client)
            for number in count():
                if self._ending.is_set():
                    return
                await self._round(admin, number)

    async def _round(self, admin: Admin, number: int) -> None:
        name, retention = f"{self._prefix}-{number}", str(1_000_000 + number)
        new = NewTopic(name=name, partitions=1, replication_factor=1)
        topic = (ResourceType.TOPIC, name)
        changes = [("retention.ms", ConfigOperation.SET, retention)]
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        if not await self._ask(f"create {name}", lambda: admin.create_topics([new]), exists):
            return
        await self._ask(f"configure {name}", lambda: admin.alter_configs({topic: changes}))
        # A second attempt finds the partitions that the first one was not told of.
        done = ErrorCode.INVALID_PARTITIONS
        await self._ask(f"grow {name}", lambda: admin.create_partitions({name: 2}), done)
        self.topics[name] = Wanted(2, retention)
        if number % DELETED_EVERY == 0:
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if await self._ask(f"delete {name}", lambda: admin.delete_topics([name]), gone):
                del self.topics[name]
                self.deleted.add(name)

    async def _ask(
        self,
        what: str,
        request: Callable[[], Awaitable[dict[Any, Any]]],
        done_before: ErrorCode | None = None,
    ) -> bool:
        """Whether it was acknowledged; `done_before` is what a repeated attempt then hears."""
        try:
            (outcome,) = (await request()).values()
        except KafkaError as error:
            outcome = error
        if isinstance(outcome, KafkaError) and outcome.code != done_before:
            self.lost.append(f"{what}: {outcome}")
            return False
        self.acknowledged += 1
        return True

    def check(self) -> None:
        """No request was lost, and every broker shows just what was acknowledged."""
        assert self.lost == []
        for broker in self._cluster.brokers:
            wait_until(partial(self._is_shown_by, broker), f"{broker} shows all of it", 90)

    def _is_shown_by(self, broker: int) -> bool:
        async def look(admin: Admin) -> bool:
            seen = await admin.list_topics()
            if self.deleted & set(seen):
                return False
            if any(
                name not in seen or len(seen[name].partitions) != wanted.partitions
                for name, wanted in self.topics.items()
            ):
                return False
            described = await admin.describe_configs([(ResourceType.TOPIC, n) for n in self.topics])
            for (_, name), entries in described.items():
                assert not isinstance(entries, KafkaError), entries
                found = next(e.value for e in entries if e.name == "retention.ms")
                if found != self.topics[name].retention_ms:
                    return False
            return True

        return self._cluster.ask(look, of=broker)


@contextmanager
def admin_stream(cluster: Cluster, prefix: str) -> Iterator[AdminStream]:
    """A stream as long as the block lasts, checked after it."""
    stream = AdminStream(cluster, prefix)
    stream.start()
    try:
        yield stream
    finally:
        stream.end()
    stream.check()

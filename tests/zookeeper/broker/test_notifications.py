"""Notifications of changes: each is read and applied once, and deleted when it is old.

A broker with a wall clock ahead deleted them before others had read them: only the monotonic clock
counts, which is the only one here.
"""

import asyncio
from types import SimpleNamespace

import pytest

from sparkraft.server.config import NodeConfig
from sparkraft.server.zookeeper.notifications import KEEP_MS, ChangeNotifications
from sparkraft.server.zookeeper.session import EnsembleSession
from sparkraft.zookeeper.requests import Create, Delete, GetData
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from tests.server.harness import make_env, run, until
from tests.zookeeper.broker.nodes import nodes_in

pytestmark = [pytest.mark.real_time]

ROOT = "/some/changes"


class Client:
    """Counts the reads of notifications."""

    def __init__(self, session):
        self._session = session
        self.reads = []

    async def submit_until_connected(self, request):
        if isinstance(request, GetData):
            self.reads.append(request.path)
        return await self._session.client.submit_until_connected(request)


def test_each_is_read_and_applied_once_and_deleted_after_15_minutes(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            properties = {
                "broker.id": "1", "zookeeper.connect": nodes.connect, "log.dirs": str(tmp_path),
            }  # fmt: skip
            env = make_env()
            session = EnsembleSession(NodeConfig(properties), env)
            await session.start()
            await session.client.create_recursive(ROOT)
            counting = Client(session)
            passed_ms = 0
            clock = SimpleNamespace(mono_ms=lambda: env.clock.mono_ms() + passed_ms)
            applied = []

            async def apply(path, data):
                if data == b"malformed":
                    raise ZnodeError(path, "malformed")
                applied.append(data)

            async def notify(data):
                create = Create(path=f"{ROOT}/change_", data=data, sequential=True)
                return await session.client.submit(create)

            followed = SimpleNamespace(client=counting, add_watcher=session.add_watcher)
            notifications = ChangeNotifications(followed, clock, f"{ROOT}/change_", apply)
            await session.client.submit(Create(path=f"{ROOT}/other", data=b""))
            await notify(b"before")  # number 1: each child counts
            await notifications.skip()
            running = asyncio.create_task(notifications.run())
            await notify(b"1")
            await until(lambda: applied == [b"1"])
            await notify(b"malformed")
            await notify(b"2")
            await until(lambda: applied == [b"1", b"2"])
            # The one from before the start is not read.
            assert sorted(counting.reads) == [f"{ROOT}/change_{at:010d}" for at in range(2, 5)]
            passed_ms = KEEP_MS
            # Another broker deletes one first.
            await session.client.submit(Delete(path=f"{ROOT}/change_0000000002"))
            await until(lambda: nodes.children(ROOT) == ["other"])
            await notify(b"3")
            await until(lambda: applied == [b"1", b"2", b"3"])
            assert len(counting.reads) == 4
            running.cancel()
            await session.close()

    run(test())

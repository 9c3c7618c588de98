"""The task of the controller: one event at a time, preemption, and failures that move the role."""

import asyncio

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.server.env import SystemClock
from sparkraft.zookeeper.controller import events
from sparkraft.zookeeper.controller.controller import Controller
from sparkraft.zookeeper.controller_task import ControllerTask
from sparkraft.zookeeper.requests import GetChildren
from tests.server.harness import run
from tests.zookeeper.controller.cluster import Cluster
from tests.zookeeper.controller.test_controller import cluster_of


class Client:
    """A session on the znodes of a `Cluster`."""

    def __init__(self, cluster):
        self._cluster = cluster
        self.opened = asyncio.Event()
        self.opened.set()
        self.waiting = asyncio.Event()
        self.fails_at: str | None = None

    async def submit_all(self, requests):
        self.waiting.set()
        await self.opened.wait()
        if any(isinstance(r, GetChildren) and r.path == self.fails_at for r in requests):
            raise RuntimeError("a bug")
        return [self._cluster._answer(request) for request in requests]


def task_of(cluster):
    """A task on a session, and the states of the events that it has handled."""
    client = Client(cluster)
    handled: asyncio.Queue[str] = asyncio.Queue()
    task = ControllerTask(
        Controller(cluster.active),
        SystemClock(),
        client=lambda: client,
        send=lambda _: None,
        on_handled=lambda state, *_: handled.put_nowait(state),
    )
    return task, client, handled


REQUESTS = (
    (events.ElectLeaders([("t", 0)], unclean=False), ErrorCode.NOT_CONTROLLER),
    (events.ControlledShutdown(1, 1), ErrorCode.STALE_CONTROLLER_EPOCH),
    (events.ListReassignments(None), ErrorCode.NOT_CONTROLLER),
    (events.AlterReassignments({("t", 0): None}), ErrorCode.NOT_CONTROLLER),
    (events.AllocateProducerIds(1, 1), ErrorCode.NOT_CONTROLLER),
)
"""Requests that wait, and how they are refused: Kafka's `preempt` of each."""


async def errors_of(waiting):
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, KafkaError) for each in results), results
    return [each.code for each in results]


@pytest.mark.parametrize("ends", ["expiry", "stop"])
def test_events_that_wait_are_preempted_and_their_submitters_answered(ends):
    """testPreemptionOnControllerShutdown, testPreemptionWithCallbacks."""

    async def test():
        cluster = cluster_of(1, topics={"t": {0: ([1], 1, [1], 0)}})
        cluster.active.has_taken_over = True
        task, client, _ = task_of(cluster)
        running = asyncio.create_task(task.run())
        client.opened.clear()
        task.put(events.TopicsChanged())
        await client.waiting.wait()
        waiting = [asyncio.create_task(task.request(each)) for each, _ in REQUESTS]
        task.put(events.BrokersChanged())
        await asyncio.sleep(0)
        assert len(task.queue) == len(REQUESTS) + 1
        if ends == "expiry":
            ending = asyncio.create_task(task.expire())
            await asyncio.sleep(0)
            assert not ending.done(), "the running event ends first"
            assert len(task.queue) == 1
            client.opened.set()
            await ending
            assert not task.is_active
            assert cluster.active.journal.of("resignation") == ["epoch 7: the session has expired"]
            assert cluster.active.journal.of("brokers") == []
        else:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            task.stop()
        assert await errors_of(waiting) == [code for _, code in REQUESTS]
        assert len(task.queue) == 0
        running.cancel()

    run(test())


def test_a_failover_that_fails_unexpectedly_moves_the_controller():
    """Kafka's `elect` catches any exception. Ours stayed the controller, of an unknown cluster."""

    async def test():
        cluster = Cluster(1)
        task, client, handled = task_of(cluster)
        running = asyncio.create_task(task.run())
        client.fails_at = "/brokers/topics"
        task.put(events.Reelect())
        await handled.get()
        assert not task.is_active
        assert "controller" not in cluster.znodes.get("/").children
        assert cluster.active.journal.of("resignation") == ["epoch 8: the failover failed"]
        client.fails_at = None
        task.put(events.Reelect())
        await handled.get()
        assert task.is_active
        assert cluster.context.epoch == 9
        # Later an exception ends its event only.
        client.fails_at = "/brokers/topics"
        task.put(events.TopicsChanged())
        await handled.get()
        assert task.is_active
        running.cancel()

    run(test())

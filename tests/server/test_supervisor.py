"""The tasks of a node."""

import asyncio

from sparkraft.server.env import SystemClock
from sparkraft.server.loop_monitor import LoopMonitor
from sparkraft.server.supervisor import NodeTasks

TASKS = 200


def test_a_stopping_node_cancels_its_tasks_in_the_order_of_their_start() -> None:
    """Else the order depends on memory addresses, and a simulation does not repeat."""

    async def test() -> None:
        tasks = NodeTasks(LoopMonitor(SystemClock()))
        ended: list[int] = []
        never = asyncio.Event()

        async def work(number: int) -> None:
            try:
                await never.wait()
            finally:
                ended.append(number)

        for number in range(TASKS):
            tasks.spawn(work(number), f"task {number}")
        await asyncio.sleep(0)
        await tasks.cancel_all()
        assert ended == list(range(TASKS))

    asyncio.run(test())

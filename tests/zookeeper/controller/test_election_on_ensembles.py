"""Candidates on sessions of their own: races, kills, lost replies, real and simulated ensembles."""

import asyncio
import contextlib
import random

import pytest

from sparkraft.server.env import SystemClock, SystemEntropy, SystemNetwork
from sparkraft.simulation.world.zookeeper import Ensemble as SimulatedEnsemble
from sparkraft.zookeeper.client import State, ZooKeeperClient
from sparkraft.zookeeper.connect_string import parse_connect_string
from sparkraft.zookeeper.controller import election
from sparkraft.zookeeper.controller.active import Active, Settings
from sparkraft.zookeeper.controller.steps import ControllerMovedError
from sparkraft.zookeeper.controller.store import read_controller, read_epoch, write
from sparkraft.zookeeper.driver import execute
from sparkraft.zookeeper.requests import Create
from tests.support.ports import lasting_ports
from tests.support.zookeeper import Ensemble

pytestmark = [pytest.mark.real_time]

NOW = 1795543512567
WAIT = 60
PATHS = ("/brokers/ids", "/brokers/topics", "/admin/delete_topics", "/isr_change_notification",
         "/log_dir_event_notification")  # fmt: skip


class Candidate:
    """A node: its session and its controller."""

    def __init__(self, servers: str, node_id: int) -> None:
        self.active = Active(Settings(node_id=node_id))
        self.client = ZooKeeperClient(
            parse_connect_string(servers),
            connect=SystemNetwork().connect,
            clock=SystemClock(),
            entropy=SystemEntropy(),
            session_timeout_ms=6000,
        )

    async def run(self, decision):
        return await execute(self.client, decision, lambda _: None)

    async def compete(self) -> bool:
        return await self.run(election.compete(self.active, NOW))


@contextlib.asynccontextmanager
async def candidates(servers: str, count: int):
    made = [Candidate(servers, node_id) for node_id in range(1, count + 1)]
    for each in made:
        await each.client.start(WAIT * 1000)
    try:
        for path in PATHS:
            await made[0].client.create_recursive(path)
        yield made
    finally:
        for each in made:
            await each.client.close()


async def race(made: list[Candidate]) -> Candidate:
    """Let all compete at once; exactly one wins."""
    results = await asyncio.gather(*(each.compete() for each in made))
    winners = [each for each, won in zip(made, results, strict=True) if won]
    assert len(winners) == 1
    assert all(each.active.journal.of("attempt") for each in made)
    return winners[0]


async def controllers_in_turn(made: list[Candidate]) -> None:
    """End the session of each controller; the rest elect another with a greater epoch."""
    epochs = []
    while made:
        winner = await race(made)
        epochs.append(winner.active.context.epoch)
        epoch = await winner.run(read_epoch())
        assert epoch == (winner.active.context.epoch, winner.active.context.epoch_version)
        await winner.client.close()
        made.remove(winner)
    assert epochs == sorted(set(epochs))


@pytest.mark.java
def test_one_of_five_candidates_wins_and_the_next_when_its_session_ends(ensemble: Ensemble):
    async def main() -> None:
        servers = f"{ensemble.connect}/race"
        async with candidates(ensemble.connect, 1) as (first,):
            await first.client.create_recursive("/race")
        async with candidates(servers, 5) as made:
            await controllers_in_turn(list(made))

    asyncio.run(main())


@pytest.mark.java
def test_a_deposed_controller_cannot_write_any_more(ensemble: Ensemble):
    async def main() -> None:
        async with candidates(ensemble.connect, 1) as (first,):
            await first.client.create_recursive("/deposed")
        async with candidates(f"{ensemble.connect}/deposed", 2) as (old, new):
            assert await old.compete()
            version = old.active.context.epoch_version
            assert (await new.run(election.depose())).broker == 1
            assert await new.compete()
            with pytest.raises(ControllerMovedError):
                await old.run(write([Create(path="/brokers/topics/t")], version))
            await old.run(election.maybe_resign(old.active, "a write failed"))
            assert old.active.controller_id == 2

    asyncio.run(main())


@pytest.mark.java
@pytest.mark.long
def test_candidates_elect_while_the_leader_of_the_ensemble_is_killed(zookeeper_jars, tmp_path):
    async def main(ensemble: Ensemble) -> None:
        async with candidates(ensemble.connect, 5) as made:
            kill = asyncio.create_task(asyncio.to_thread(ensemble.leader().kill))
            await controllers_in_turn(list(made))
            await kill

    with Ensemble(zookeeper_jars, tmp_path, size=3) as ensemble:
        asyncio.run(main(ensemble))


def test_the_winner_recognizes_its_transaction_after_a_lost_reply():
    async def main() -> None:
        (port,) = lasting_ports(1)
        ensemble = SimulatedEnsemble(SystemClock(), random.Random(1))
        server = await ensemble.listen(SystemNetwork(), "127.0.0.1", port)
        async with candidates(f"127.0.0.1:{port}", 2) as (first, second):
            replies = iter([False, True])  # the second write is the election
            ensemble.lose_reply = lambda: next(replies, False)
            assert await first.compete()
            assert first.active.journal.of("attempt") == ["won epoch 1, its reply was lost"]
            assert not await second.compete()
            assert (await second.run(read_controller())).broker == 1
        server.close()

    asyncio.run(main())


def test_an_expired_controller_cannot_write_any_more():
    async def main() -> None:
        (port,) = lasting_ports(1)
        ensemble = SimulatedEnsemble(SystemClock(), random.Random(1))
        server = await ensemble.listen(SystemNetwork(), "127.0.0.1", port)
        async with candidates(f"127.0.0.1:{port}", 2) as (old, new):
            assert await old.compete()
            ensemble.expire(old.client.session_id)
            async with asyncio.timeout(WAIT):
                while old.client.state is not State.EXPIRED:  # noqa: ASYNC110 (no event)
                    await asyncio.sleep(0.01)
            with pytest.raises(Exception, match="SESSION_EXPIRED"):
                await old.run(election.maybe_resign(old.active, "expired"))
            assert await new.compete()
            assert new.active.context.epoch == old.active.context.epoch + 1
        server.close()

    asyncio.run(main())

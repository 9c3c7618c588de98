"""The servers of an ensemble in a simulated world, and which process wrote what.

All servers share one `Ensemble`; each has a machine of its own, so that links to it can be cut.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparkraft.simulation.world.loop import Incarnation, SimLoop
from sparkraft.simulation.world.machine import SimClock
from sparkraft.simulation.world.network import SimNetwork
from sparkraft.simulation.world.znodes import RefusedError
from sparkraft.simulation.world.zookeeper import Ensemble
from sparkraft.simulation.world.zookeeper_addresses import PORT, SERVERS

if TYPE_CHECKING:
    from sparkraft.zookeeper.requests import Create, Delete, Multi, Operation, SetAcl, SetData


OPERATOR = "operator"
"""The name of the writer of `WatchedEnsemble.operate`."""


class WatchedEnsemble(Ensemble):
    """An ensemble that reports each applied write with the name of the writer's machine.

    Attributes:
        on_written: called with the name and the operations of a write, after it was applied.
        writing: the session of that write; 0: an operator's.
    """

    on_written: Callable[[str, "tuple[Operation, ...]"], None] = staticmethod(lambda *_: None)
    writing = 0

    def operate(self, write: "Create | Delete | SetData") -> bool:
        """Apply a write of an operator; return whether it was accepted."""
        try:
            applied = self.znodes.apply(write, 0, self._clock.wall_ms())
        except RefusedError:
            return False
        self.writing = 0
        self.on_written(OPERATOR, (write,))
        self._done(applied)
        return True

    def write(self, session: Any, write: "Create | Delete | SetData | SetAcl") -> object:
        """See `Ensemble`."""
        result = super().write(session, write)
        self.writing = session.id
        self.on_written(_writer(session), (write,))  # type: ignore[arg-type]
        return result

    def multi(self, session: Any, multi: "Multi") -> list[object]:
        """See `Ensemble`."""
        results = super().multi(session, multi)
        self.writing = session.id
        self.on_written(_writer(session), multi.operations)
        return results

    def sessions_of(self, name: str) -> list[int]:
        """The ids of the sessions that a machine is connected with."""
        return [
            session.id
            for session in self._sessions.values()
            if session.link is not None and _writer(session) == name
        ]


def _writer(session: Any) -> str:
    name: str = session.link._transport.peer.incarnation.name  # noqa: SLF001 (a simulated end)
    return name


def start_servers(loop: SimLoop, network: SimNetwork, dice: random.Random) -> WatchedEnsemble:
    """Start all servers; their sessions expire from now on."""
    processes = [Incarnation(name) for name in SERVERS]
    ensemble = WatchedEnsemble(SimClock(loop, processes[0]), dice)

    async def serve(*, expires: bool) -> None:
        await ensemble.listen(network, "", PORT)
        if expires:
            await ensemble.run()

    def boot(*, process: Incarnation, expires: bool) -> None:
        task = loop.create_task(serve(expires=expires), context=process.context)
        running.append(task)

    running: list[Any] = []
    for process in processes:
        loop.call_soon(
            lambda process=process: boot(process=process, expires=process is processes[0]),
            context=process.context,
        )
    return ensemble

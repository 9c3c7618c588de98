"""Faults of a cluster in ZooKeeper mode: those of whole nodes, of sessions and of the ensemble."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkraft.simulation.checks.znode_image import read_json
from sparkraft.simulation.scenarios.node_faults import (
    DOWN_S,
    NODE_FAULTS,
    RECORD_FAULTS,
    Faults,
    coin,
)
from sparkraft.simulation.world.zookeeper_addresses import SERVERS
from sparkraft.zookeeper.requests import Delete

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.nodes import NodesWorld
    from sparkraft.simulation.world.zookeeper_servers import WatchedEnsemble

CONTROLLER = "/controller"

OF_NODES = (
    "kill",
    "power",
    "power-all",
    "pause",
    "terminate",
    "cut",
    "one-way",
    "mend",
    "loss",
    "slow-link",
    "reset",
    "slow-disk",
    "skew",
    "io-error",
    "full-disk",
    "partition-leader",
    "lonely-leader",
    "leader-leaves",
    "slow-follower",
)
"""Faults that both modes have."""

OUT_OF_TOUCH_S = (0.3, 6)
"""Without a server of the ensemble: shorter and longer than a session."""

LOST_SHARE, LOST_S = 0.4, (0.2, 4)
"""The share of the replies to writes that are lost while some are, and for how long."""

LEADERLESS_S = (0.2, 5)
"""The ensemble without a leader: shorter and longer than a session."""

LATE_S, LATE_FOR_S = (0.2, 1.0, 3.0), (1, 8)
"""Delays of everything that a broker receives from the ensemble, and for how long."""


class ZooKeeperFaults:
    """Faults of one world and its ensemble."""

    def __init__(self, world: "NodesWorld", ensemble: "WatchedEnsemble") -> None:
        """Inject nothing yet."""
        self._world = world
        self._ensemble = ensemble

    def all(self) -> Faults:
        """Return every kind by name, with its weight."""
        known = NODE_FAULTS | RECORD_FAULTS
        faults: Faults = {kind: known[kind] for kind in OF_NODES}
        for kind, (inject, weight) in _OWN.items():
            faults[kind] = (lambda _, inject=inject: inject(self), weight)  # type: ignore[misc]
        return faults

    def heal(self) -> None:
        """End what the ensemble does wrong."""
        self._ensemble.lose_reply = lambda: False
        self._elect()

    # ---- victims

    def controller(self) -> "Machine | None":
        """Return the machine that /controller names, if it is up."""
        stored = read_json(self._ensemble.znodes, CONTROLLER)
        machine = None if stored is None else self._world.machine(f"n{stored['brokerid']}")
        return machine if machine is not None and machine.is_up else None

    def _victim(self) -> "Machine":
        """Return the controller or any machine, up or not."""
        controller = self.controller()
        if controller is not None and coin(self._world):
            return controller
        return self._world.dice.choice(self._world.machines)

    # ---- brokers

    def stop_controller(self) -> bool:
        """Kill the controller, stop it cleanly, or pause it for longer than a session or less."""
        machine, dice = self.controller(), self._world.dice
        if machine is None:
            return False
        how = dice.choice(["kill", "terminate", "pause"])
        if how == "kill":
            machine.kill()
            self._world.after(dice.uniform(*DOWN_S), machine.start)
        elif how == "terminate":
            machine.terminate()
        else:
            machine.freeze_for(dice.uniform(0.5, 7))
        return True

    def bounce(self) -> bool:
        """Kill a broker and start it before its session expires; sometimes its session ends, too.

        Then its registration is replaced before the controller has seen it go.
        """
        machine, dice = self._victim(), self._world.dice
        if not machine.is_up:
            return False
        if coin(self._world):
            self._expire(machine)
        machine.kill()
        self._world.after(dice.uniform(0.01, 0.3), machine.start)
        return True

    def depose(self) -> bool:
        """Delete /controller, as an operator does."""
        return self._ensemble.operate(Delete(path=CONTROLLER))

    # ---- sessions

    def expire(self) -> bool:
        """End the session of a broker that has a connection."""
        return self._expire(self._victim())

    def _expire(self, machine: "Machine") -> bool:
        found = self._ensemble.sessions_of(machine.name)
        for session in found:
            self._ensemble.expire(session)
        return bool(found)

    def disconnect(self) -> bool:
        """Reset the connection of a session, which continues on another server."""
        machine = self._victim()
        return sum(self._world.network.reset(machine.name, server) for server in SERVERS) > 0

    def part(self) -> bool:
        """Cut the links of a broker to all servers of the ensemble, but not to other brokers."""
        name, cut = self._victim().name, self._world.network.cut
        links = {(name, server) for server in SERVERS} | {(server, name) for server in SERVERS}
        cut |= links
        delay_s = self._world.dice.uniform(*OUT_OF_TOUCH_S)
        self._world.after(delay_s, lambda: cut.difference_update(links))
        return True

    def delay_watches(self) -> bool:
        """Delay everything that a broker receives from the ensemble: others know more for a while.

        Of one session watch events and replies stay in order.
        """
        name, dice, slow_s = self._victim().name, self._world.dice, self._world.network.slow_s
        links = [(server, name) for server in SERVERS]
        delay_s = dice.choice(LATE_S)
        slow_s.update(dict.fromkeys(links, delay_s))

        def end() -> None:
            for link in links:
                slow_s.pop(link, None)

        self._world.after(dice.uniform(*LATE_FOR_S), end)
        return True

    # ---- the ensemble

    def lose_replies(self) -> bool:
        """Lose replies to writes that were applied, with the connection, for a while."""
        dice = self._world.dice
        self._ensemble.lose_reply = lambda: dice.random() < LOST_SHARE

        def end() -> None:
            self._ensemble.lose_reply = lambda: False

        self._world.after(dice.uniform(*LOST_S), end)
        return True

    def lose_leader(self) -> bool:
        """Take the leader of the ensemble away; sessions last until the next one is elected."""
        if not self._ensemble.has_leader:
            return False
        self._ensemble.lose_leader()
        self._world.after(self._world.dice.uniform(*LEADERLESS_S), self._elect)
        return True

    def _elect(self) -> None:
        if not self._ensemble.has_leader:
            self._ensemble.elect_leader()


_OWN: dict[str, tuple[Callable[[ZooKeeperFaults], bool], int]] = {
    "controller": (ZooKeeperFaults.stop_controller, 8),
    "expire": (ZooKeeperFaults.expire, 8),
    "disconnect": (ZooKeeperFaults.disconnect, 6),
    "out-of-touch": (ZooKeeperFaults.part, 6),
    "lost-replies": (ZooKeeperFaults.lose_replies, 6),
    "ensemble-leader": (ZooKeeperFaults.lose_leader, 4),
    "late-watches": (ZooKeeperFaults.delay_watches, 6),
    "bounce": (ZooKeeperFaults.bounce, 5),
    "depose": (ZooKeeperFaults.depose, 3),
}

ZOOKEEPER_FAULTS = (*OF_NODES, *_OWN)
"""The names of all kinds."""

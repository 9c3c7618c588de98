"""Whole nodes in one process: the `Node` of `server-start`, each on a simulated machine.

    NodesWorld ─ SimLoop, SimNetwork, checkers
      └─ Machine n1, n2 …: MemoryDisk, clocks ─ Incarnation: Env, Node.run()
    clients and an operator: incarnations of their own, on the same network

Only `Env` and the loop differ from a real process. The seed chooses the `Layout` of the cluster:
combined or separate roles, a static or a dynamic quorum, the release it is formatted with.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

from sparkraft.server.config import NodeConfig
from sparkraft.server.node import Node
from sparkraft.simulation.world.core_node import directory_of
from sparkraft.simulation.world.loop import Incarnation, SimLoop
from sparkraft.simulation.world.machine import DIRECTORY, EPOCH_MS, Died, Machine
from sparkraft.simulation.world.network import SimNetwork, SimTransport, tell_bytes
from sparkraft.simulation.world.observers import NodeObserver
from sparkraft.simulation.world.points import is_enabled
from sparkraft.simulation.world.principals import BROKER_LISTENER, security_properties
from sparkraft.simulation.world.trace import Trace
from sparkraft.simulation.world.violation import Violation
from sparkraft.simulation.world.wire_messages import WireMessages
from sparkraft.simulation.world.zookeeper_addresses import CONNECT

if TYPE_CHECKING:
    import asyncio

    from sparkraft.server.env import Env

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
FIRST_BROKER = 11
"""Id of the first node that is only a broker."""

STRIKES_MAX = 12
"""Limit of strikes at fault points in a run, of each kind; more would leave only recovery."""

RELEASES = ("3.3-IV3", "3.5-IV2", "3.6-IV1", "3.7-IV0", "3.7-IV2", "3.9-IV0", "4.0-IV3", "4.1-IV1")
"""Older releases a cluster may be formatted with: those around each change of the records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The properties of a cluster.

    Attributes:
        voters: number of initial voters.
        spares: further controllers that may be added as voters (dynamic quorums).
        brokers: nodes that are only brokers; 0 makes every voter also a broker.
        dynamic: kraft.version 1, with the voters in the log (KIP-853).
        auto_join: spares join the voters automatically.
        release: the release to format with; None is the newest.
        min_insync: `min.insync.replicas`; with 1 the ISR changes more.
        replicated: internal topics have three replicas, and clients write records.
        synced: records are synced before they are acknowledged (flush.messages=1), so power
            losses are allowed; without it processes are only killed.
        balanced: preferred leaders are elected every few seconds, not minutes.
        coordinated: transactions and group members time out within seconds.
        id_expiration_ms: `transactional.id.expiration.ms`; 0 for Kafka's default.
        secured: clients authenticate, and an authorizer decides (`principals`).
        open_by_default: `allow.everyone.if.no.acl.found`.
        migrates: the voters migrate a cluster in ZooKeeper (KIP-866), whose brokers are clients.
        in_zookeeper: brokers in ZooKeeper mode, which elect a controller among them; no voters.
        readdressed: brokers advertise host names that change while they run.
    """

    voters: int = 3
    spares: int = 0
    brokers: int = 0
    dynamic: bool = False
    auto_join: bool = False
    release: str | None = None
    replicated: bool = False
    min_insync: int = 1
    synced: bool = False
    balanced: bool = False
    coordinated: bool = False
    id_expiration_ms: int = 0
    secured: bool = False
    open_by_default: bool = False
    migrates: bool = False
    in_zookeeper: bool = False
    readdressed: bool = False

    @classmethod
    def of_zookeeper(cls, seed: int, brokers: int | None) -> "Layout":
        """Return the layout of a seed with brokers in ZooKeeper mode; by default three or four."""
        dice = random.Random(f"{seed} zookeeper")
        drawn = 3 if dice.random() < 0.8 else 4  # noqa: PLR2004 (mostly the usual number)
        return cls(
            voters=0,
            brokers=drawn if brokers is None else brokers,
            replicated=True,
            min_insync=2 if dice.random() < 0.7 else 1,  # noqa: PLR2004 (mostly as `up` has it)
            synced=dice.random() < 0.5,  # noqa: PLR2004 (a coin)
            balanced=True,
            in_zookeeper=True,
            readdressed=random.Random(f"{seed} new addresses").random() < 0.4,  # noqa: PLR2004
        )

    @classmethod
    def of_coordinators(cls, seed: int, voters: int, *, brokers: int | None = None) -> "Layout":
        """Return the layout of a seed for clients of coordinators, of the newest release."""
        found = cls.of_records(seed, voters, brokers=brokers)
        return replace(found, release=None, coordinated=True, id_expiration_ms=5_000)

    @classmethod
    def of_principals(cls, seed: int, voters: int, *, brokers: int | None = None) -> "Layout":
        """Return the layout of a seed for clients of several users."""
        found = cls.of_coordinators(seed, voters, brokers=brokers)
        dice = random.Random(f"{seed} principals")
        return replace(found, secured=True, open_by_default=dice.random() < 0.3)  # noqa: PLR2004

    @classmethod
    def of_records(cls, seed: int, voters: int, *, brokers: int | None = None) -> "Layout":
        """Return the layout of a seed for clients that write records: at least three brokers."""
        dice = random.Random(f"{seed} records")
        found = replace(
            cls.of(seed, voters),
            spares=0,
            brokers=3 if voters < 3 or dice.random() < 0.2 else 0,  # noqa: PLR2004 (seldom: slow)
            release=None if dice.random() < 0.7 else dice.choice(RELEASES[4:]),  # noqa: PLR2004
            replicated=True,
            min_insync=2 if dice.random() < 0.7 else 1,  # noqa: PLR2004 (mostly as `up` has it)
            synced=dice.random() < 0.5,  # noqa: PLR2004 (a coin)
        )
        return found if brokers is None else replace(found, brokers=brokers)

    @classmethod
    def of(cls, seed: int, voters: int, *, brokers: int | None = None) -> "Layout":
        """Return the layout of a seed; `brokers` replaces its number of separate brokers."""
        dice = random.Random(f"{seed} layout")
        dynamic = dice.random() < 0.6  # noqa: PLR2004 (rather more can happen then)
        found = cls(
            voters=voters,
            spares=int(dynamic and dice.random() < 0.5),  # noqa: PLR2004 (a coin)
            brokers=2 if dice.random() < 0.3 else 0,  # noqa: PLR2004 (seldom: slower to simulate)
            dynamic=dynamic,
            auto_join=dynamic and dice.random() < 0.5,  # noqa: PLR2004 (a coin)
            release=dice.choice(RELEASES) if dice.random() < 0.5 else None,  # noqa: PLR2004
        )
        return found if brokers is None else replace(found, brokers=brokers)


class NodesWorld:
    """Machines, their network, clients and checkers; `seed` determines everything."""

    def __init__(
        self,
        seed: int,
        nodes: int = 3,
        *,
        observed_by: Callable[["NodesWorld"], NodeObserver],
        sink: TextIO | None = None,
        layout: Layout | None = None,
    ) -> None:
        """Create the machines, all off: `nodes` voters, unless there is a `layout`."""
        self.seed = seed
        self.dice = random.Random(seed)
        self.layout = layout or Layout.of(seed, nodes)
        self.cluster_id = CLUSTER_ID
        self._strikes_left = {False: 0, True: 0}
        self.broken: list[Machine] = []
        """Machines that stay stopped, paused or partitioned for good."""
        self.trace = Trace(sink)
        self.counts: Counter[str] = Counter()
        self.violation: Violation | None = None
        self.draining = False
        """Whether clients must start nothing new."""
        self.is_healed = False
        """Whether the world is healed, without further faults."""
        self._closed = False
        self._patches = ExitStack()
        self.loop = SimLoop()
        self.loop.set_exception_handler(self._on_loop_error)
        self.network = SimNetwork(self.loop, self.dice)
        self.network.on_bytes = self._on_bytes
        self.loop.network = self.network
        self.checks: NodeObserver = observed_by(self)
        self._make_machines()
        self._clients: list[Any] = []
        self._operator = Incarnation("operator")
        self._patches.enter_context(self.checks.watching())

    def _make_machines(self) -> None:
        layout = self.layout
        self.voter_ids = list(range(1, layout.voters + 1))
        self.initial_voters = ",".join(
            f"{i}@n{i}:{CONTROLLER_PORT}:{directory_of(i)}" for i in self.voter_ids
        )
        only_controllers = layout.brokers or layout.migrates
        roles = "controller" if only_controllers else "broker,controller"
        self.machines = [Machine(self, i, roles, voter=True) for i in self.voter_ids]
        for place in range(layout.spares):
            self.machines.append(Machine(self, layout.voters + 1 + place, roles, voter=False))
        for place in range(layout.brokers):
            self.machines.append(Machine(self, FIRST_BROKER + place, "broker", voter=False))
        self._by_name = {machine.name: machine for machine in self.machines}
        if layout.readdressed:
            for machine in self.brokers:
                self.network.add_host(advertised_host(machine), machine.name)
        self.note(f"-- {layout}")

    @property
    def dynamic(self) -> bool:
        """Whether the voters are in the log."""
        return self.layout.dynamic

    @property
    def release(self) -> str | None:
        """The release the cluster is formatted with; None is the newest."""
        return self.layout.release

    @property
    def spares_disks(self) -> bool:
        """Whether no machine may lose power, since acknowledged records may be unsynced."""
        return self.layout.replicated and not self.layout.synced

    @property
    def formats_disks(self) -> bool:
        """Whether disks are formatted before the first start."""
        return not self.layout.in_zookeeper

    @property
    def invariants(self) -> NodeObserver:
        """The checkers, under the name that the other tier uses."""
        return self.checks

    @property
    def now(self) -> int:
        """World milliseconds."""
        return int(self.loop.now * 1_000)

    @property
    def controllers(self) -> list[Machine]:
        """Machines whose node is a controller."""
        return [machine for machine in self.machines if machine.is_controller]

    @property
    def brokers(self) -> list[Machine]:
        """Machines whose node is a broker."""
        return [machine for machine in self.machines if machine.is_broker]

    def machine(self, name: str) -> Machine | None:
        """Return a machine by name; None for a client."""
        return self._by_name.get(name)

    def leader(self) -> Machine | None:
        """Return the running leader with the highest epoch."""
        led = [m for m in self.controllers if m.raft is not None and m.raft.is_leader]
        return max(led, key=lambda m: int(m.raft.leader_and_epoch.epoch), default=None)

    def new_node(self, machine: Machine, env: "Env") -> Node:
        """Return the node of a machine, not started."""
        config = NodeConfig(self.properties(machine))
        if not self.layout.in_zookeeper:
            return Node(config, env)
        from sparkraft.server.zookeeper_node import ZooKeeperNode  # seldom needed

        return ZooKeeperNode(config, env)

    def properties(self, machine: Machine) -> dict[str, str]:
        """Return the server.properties of a node."""
        if self.layout.in_zookeeper:
            return self._zookeeper_properties(machine) | self._common_properties()
        controllers = self.voter_ids
        voters = ",".join(f"{other}@n{other}:{CONTROLLER_PORT}" for other in controllers)
        quorum = {"controller.quorum.voters": voters}
        if self.dynamic:
            servers = ",".join(f"n{other}:{CONTROLLER_PORT}" for other in controllers)
            quorum = {"controller.quorum.bootstrap.servers": servers}
            if machine.is_controller and self.layout.auto_join:
                quorum["controller.quorum.auto.join.enable"] = "true"
        places = []
        if machine.is_broker:
            name = BROKER_LISTENER if self.layout.secured else "PLAINTEXT"
            places.append(f"{name}://{machine.name}:{BROKER_PORT}")
        if machine.is_controller:
            places.append(f"CONTROLLER://{machine.name}:{CONTROLLER_PORT}")
        return (
            quorum
            | self._coordinator_properties()
            | self._security_properties()
            | self._migration_properties()
            | self._common_properties()
            | {
                "process.roles": machine.roles,
                "node.id": str(machine.id),
                "listeners": ",".join(places),
                "controller.listener.names": "CONTROLLER",
                "broker.session.timeout.ms": "3000" if self.layout.replicated else "9000",
                "broker.heartbeat.interval.ms": "500" if self.layout.replicated else "2000",
                "metadata.log.max.record.bytes.between.snapshots": "6000",
                "metadata.max.retention.bytes": "20000",
                "metadata.log.segment.ms": "4000",
            }
        )

    def _common_properties(self) -> dict[str, str]:
        """Of brokers in both modes: logs, replication, coordinators."""
        return {
            "log.dirs": DIRECTORY,
            "offsets.topic.replication.factor": "3" if self.layout.replicated else "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": "3" if self.layout.replicated else "1",
            "transaction.state.log.min.isr": str(self.layout.min_insync),
            "transaction.state.log.num.partitions": "2",
            "min.insync.replicas": str(self.layout.min_insync),
            "replica.lag.time.max.ms": "2000" if self.layout.replicated else "30000",
            "replica.fetch.max.bytes": "256" if self.layout.replicated else "1048576",
            "log.flush.interval.messages": "1" if self.layout.synced else str(1 << 62),
            "log.retention.check.interval.ms": "1500",
            "log.cleaner.backoff.ms": "1000",
            "log.roll.ms": "4000",
            "log.index.interval.bytes": "200",
            "log.cleaner.min.cleanable.ratio": "0.2",
            "leader.imbalance.check.interval.seconds": "10" if self.layout.balanced else "300",
            "group.initial.rebalance.delay.ms": "100",
            "group.min.session.timeout.ms": "1000",
        }

    def _zookeeper_properties(self, machine: Machine) -> dict[str, str]:
        host = advertised_host(machine) if self.layout.readdressed else machine.name
        return {
            "broker.id": str(machine.id),
            "listeners": f"PLAINTEXT://{machine.name}:{BROKER_PORT}",
            "advertised.listeners": f"PLAINTEXT://{host}:{BROKER_PORT}",
            "inter.broker.protocol.version": "3.9",
            "zookeeper.connect": CONNECT,
            "zookeeper.session.timeout.ms": "3000",
            "zookeeper.connection.timeout.ms": "2000",
            "sparkraft.controllership.enable": "true",
            "controller.socket.timeout.ms": "5000",
            "controlled.shutdown.retry.backoff.ms": "500",
            "leader.imbalance.per.broker.percentage": "0",
        }

    def _migration_properties(self) -> dict[str, str]:
        if not self.layout.migrates:
            return {}
        return {
            "zookeeper.connect": CONNECT,
            "zookeeper.session.timeout.ms": "6000",
            "zookeeper.connection.timeout.ms": "3000",
            "zookeeper.metadata.migration.enable": "true",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }

    def _coordinator_properties(self) -> dict[str, str]:
        layout = self.layout
        found = {"transactional.id.expiration.ms": str(layout.id_expiration_ms)}
        found = found if layout.id_expiration_ms else {}
        if layout.coordinated:
            found |= {
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
                "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
                "group.consumer.min.session.timeout.ms": "1000",
                "group.consumer.session.timeout.ms": "3000",
                "group.consumer.min.heartbeat.interval.ms": "100",
                "group.consumer.heartbeat.interval.ms": "300",
            }
        return found

    def _security_properties(self) -> dict[str, str]:
        if not self.layout.secured:
            return {}
        return security_properties(open_by_default=self.layout.open_by_default)

    # ---- for clients: see `client_env`

    @property
    def hosts(self) -> list[str]:
        """Brokers that are not broken for good."""
        return [machine.name for machine in self.brokers if machine not in self.broken]

    @property
    def replicas(self) -> int:
        """The replication factor: three, or less with fewer brokers."""
        return min(3, len(self.brokers))

    @property
    def has_deaf_leaders(self) -> bool:
        """Whether a machine is broken for good."""
        return bool(self.broken)

    def address(self, host: str) -> tuple[str, int]:
        """Return the host and port of the broker's client listener."""
        return host, BROKER_PORT

    def host_of(self, node_id: int, advertised: str | None) -> str:
        """Return the host name that a broker advertises; see `client_env`."""
        return advertised or f"n{node_id}"

    def timestamp_ms(self) -> int:
        """Return the time; the clients' clock has no skew."""
        return EPOCH_MS + self.now

    def demand(self, holds: object, invariant: str, text: str) -> None:
        """Record a violation unless `holds`; the caller continues."""
        self.check(lambda: self.checks.require(holds, invariant, text))

    def on_request(self, request: Any) -> None:
        """Called before a client sends `request`."""
        self.checks.storage.on_request(request)

    def on_response(self, host: str, request: Any, response: Any) -> None:
        """Called when a client has received a response."""
        self.checks.storage.on_response(self.network.machine_of(host), request, response)

    def on_producer_id(self, producer_id: int) -> None:
        """Called when a client has been assigned a producer id."""
        self.checks.on_producer_id(producer_id)

    def on_acknowledged(self, topic: str, index: int, end: int) -> None:
        """Called when an acks=all write is acknowledged; `end` is one past its last offset."""
        self.checks.records.on_acknowledged(topic, index, end)

    # ---- fault points

    def enable_points(self, strikes: int = STRIKES_MAX) -> None:
        """Enable fault points: `strikes` each for disk operations and for those of the product."""
        self._strikes_left = {False: strikes, True: strikes}

    def disable_points(self) -> None:
        """Disable all fault points."""
        self._strikes_left = {False: 0, True: 0}

    def strikes(self, point: str, probability: float, *, product: bool = False) -> bool:
        """Return whether a fault strikes at the point now; each run has its own points."""
        if not self._strikes_left[product] or not is_enabled(self.seed, point):
            return False
        if self.dice.random() >= probability:
            return False
        self._strikes_left[product] -= 1
        return True

    def count_point(self, machine: Machine, point: str) -> None:
        """Count and trace a strike at a fault point."""
        self.counts[f"point {point}"] += 1
        self.note(f"{machine.name} is struck: {point}", "fault", node=machine.name)

    # ---- trace and violations

    def note(self, text: str, kind: str | None = "note", **fields: Any) -> None:
        """Add a line to the trace, and with a `kind` an event of it; see `trace_events`."""
        if not self._closed:
            self.trace.add(self.now, text, kind, **fields)

    @property
    def node_names(self) -> list[str]:
        """The names of the machines."""
        return [machine.name for machine in self.machines]

    def cut_links(self) -> set[tuple[str, str]]:
        """Return the directed pairs of machines whose link is cut."""
        return self.network.cut

    def record(self, kind: str, **fields: Any) -> None:
        """Add an event that has no line."""
        if self.trace.events is not None and not self._closed:
            self.trace.events.add(self.now, kind, **fields)

    def record_messages(self) -> None:
        """Record each write to a connection, and when it is read, as a message."""
        self.network.watch = WireMessages(self.record)

    def fail(self, violation: Violation) -> None:
        """Stop the run with its first violation, if its invariant is checked."""
        if not self.checks.counts(violation.invariant):
            return
        if self.violation is None:
            self.note(f"VIOLATION {violation}", "violation", invariant=violation.invariant)
            self.violation = violation
        self.loop.stop()

    def _on_bytes(self, end: SimTransport, raw: bytes) -> None:
        self.note(f"{end.incarnation.name} to {end.peer.incarnation.name}: {tell_bytes(raw)}", None)
        self.check(lambda: self.checks.on_bytes(end, raw))

    def check(self, look: Callable[[], None]) -> None:
        """Run a check called from the product, which must not catch the violation itself."""
        try:
            look()
        except Violation as violation:
            self.fail(violation)

    def _on_loop_error(self, _: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Violation):
            self.fail(error)
        elif error is not None and not isinstance(error, Died):
            where = context.get("task") or context.get("handle") or context.get("future")
            self.fail(Violation("assert", f"uncaught {error!r} in {where}"))

    # ---- time

    def after(self, delay_s: float, action: Callable[[], Any]) -> None:
        """Run `action` after a delay, as part of no incarnation."""
        self.loop.after(delay_s, action, of=None)

    def break_after(self, delay_s: float, action: Callable[[], Any]) -> None:
        """Run `action`, a further fault, after a delay unless the world is healed by then."""
        self.after(delay_s, lambda: None if self.is_healed else action())

    def run_for(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass until `until` holds, checked every 50 ms; return whether it did.

        Raises:
            Violation: of an invariant.
        """
        end = self.loop.now + seconds
        while self.loop.now < end:
            step = end if until is None else min(end, self.loop.now + 0.05)
            self.loop.run_until_world(step)
            if self.violation is not None:
                raise self.violation
            if until is not None and until():
                return True
        return False

    def start_all(self, clients: Sequence[Callable[["NodesWorld"], Any]]) -> None:
        """Start every machine, the clients, and the checks that run every second."""
        for machine in self.machines:
            self.after(self.dice.uniform(0, 0.5), machine.start)
        for place, client in enumerate(clients):
            self._run(Incarnation(f"client{place}"), client(self))
        self.after(1, self._every_second)

    def operate(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` as the operator, concurrently with everything else."""
        self._run(self._operator, work)

    def _run(self, who: Incarnation, work: Coroutine[Any, Any, None]) -> None:
        def boot() -> None:
            task: asyncio.Task[None] = self.loop.create_task(work, context=who.context)
            self._clients.append(task)

        self.loop.call_soon(boot, context=who.context)

    def _every_second(self) -> None:
        self.after(1, self._every_second)
        self.checks.every_second()

    def close(self) -> None:
        """Close the loop and its unfinished tasks."""
        self._closed = True
        self._patches.close()
        for machine in self.machines:
            if machine.incarnation is not None:
                machine.incarnation.dead = True
        self.loop.bury_tasks()


def advertised_host(machine: Machine, number: int = 0) -> str:
    """Return the name of a broker in `Layout.readdressed`; 0: that of its server.properties."""
    return f"{machine.name}-{number}"


def quiet() -> None:
    """Disable logging: node logs are not part of a trace."""
    logging.disable(logging.CRITICAL)

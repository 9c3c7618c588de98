"""Several nodes as processes on loopback: combined or separate, ours, Kafka's or mixed.

    with Cluster(tmp_path, [Member(1), Member(2), Member(3, kind="kafka")], jars=jars) as cluster:
        cluster.create_topic("t", partitions=6)
        dead = cluster.kill(cluster.leader())

A quorum is dynamic (`initial`: all first voters known when formatting), static
(`controller.quorum.voters`) or grown from one voter (`standalone`).

Every broker hears of changes in its own time. `start`, `stop` and `create_topic` return when all
brokers that serve have heard, so whichever a test or a tool asks next tells the same.
"""

import asyncio
import base64
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster as ClusterClient
from sparkraft.client.values import ConfigOperation, NewTopic, QuorumInfo, ResourceType
from sparkraft.security.login import Login
from tests.support.nodes import START_SECONDS, KafkaNode, NodeProcess, SparkraftNode
from tests.support.ports import accepts, lasting_ports, wait_until
from tests.support.turns import JVM_STARTS, turn

if TYPE_CHECKING:
    from sparkraft.tls.dialing import Connect

T = TypeVar("T")
Kind = Literal["sparkraft", "kafka"]
COMBINED = "broker,controller"

OF_TRANSACTIONS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}
"""Configs of three nodes that coordinate groups and transactions while one of them is killed."""

TOLD_SECONDS_MAX = 90.0
"""Until brokers have heard of a change, on a machine that has other work."""


@dataclass(frozen=True, slots=True)
class Member:
    """One node to be."""

    id: int
    kind: Kind = "sparkraft"
    roles: str = COMBINED

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles


class MemberProcess(NodeProcess):
    """What both kinds share, as a broker, a controller or both."""

    is_broker = True
    is_paused = False

    @property
    def ready_port(self) -> int:
        return self.port if self.is_broker else self.controller_port

    def launch(self) -> None:
        super().launch()
        self.is_paused = False

    def pause(self) -> None:
        super().pause()
        self.is_paused = True

    def resume(self) -> None:
        super().resume()
        self.is_paused = False


class SparkraftMember(MemberProcess, SparkraftNode):
    """Our node."""


class KafkaMember(MemberProcess, KafkaNode):
    """Kafka's."""


class Cluster:
    """See the module docstring."""

    kinds: ClassVar[Mapping[Kind, type[MemberProcess]]] = {
        "sparkraft": SparkraftMember,
        "kafka": KafkaMember,
    }
    """What is started for a member of each kind."""

    def __init__(
        self,
        directory: Path,
        members: Sequence[Member],
        *,
        quorum: Literal["initial", "static", "standalone"] = "initial",
        overrides: Mapping[str, str] | None = None,
        jars: Path | None = None,
        login: Login | None = None,
        connect: "Connect | None" = None,
    ) -> None:
        """Write every node's configuration; start nothing.

        `login` and `connect` are for the requests here.
        """
        self.login = login
        self.connect = connect
        self.directory = directory
        self.quorum = quorum
        self.overrides = dict(overrides or {})
        self.jars = jars
        self.members = {member.id: member for member in members}
        self.late: set[int] = set()
        ports = iter(lasting_ports(2 * len(members)))
        self.ports = {member.id: (next(ports), next(ports)) for member in members}
        self.directory_ids = {member.id: _uuid() for member in members if member.is_controller}
        self.nodes: dict[int, MemberProcess] = {}
        for member in members:
            self.nodes[member.id] = self._make(member)

    # ---- making

    @property
    def controllers(self) -> list[int]:
        """The ids of the nodes that are controllers."""
        return [m.id for m in self.members.values() if m.is_controller]

    @property
    def brokers(self) -> list[int]:
        """The ids of the nodes that are brokers."""
        return [m.id for m in self.members.values() if m.is_broker]

    def _make(self, member: Member) -> MemberProcess:
        node = self.kinds[member.kind](
            self.directory / f"node-{member.id}",
            overrides={**self._properties(member), **self.overrides},
            jars=self.jars,
            ports=self.ports[member.id],
            format_as=self._format_as(member),
        )
        node.is_broker = member.is_broker
        return node

    def _properties(self, member: Member) -> dict[str, str]:
        port, controller_port = self.ports[member.id]
        listeners, advertised = [], []
        if member.is_broker:
            listeners.append(f"PLAINTEXT://127.0.0.1:{port}")
            advertised.append(f"PLAINTEXT://127.0.0.1:{port}")
        if member.is_controller:
            listeners.append(f"CONTROLLER://127.0.0.1:{controller_port}")
            advertised.append(f"CONTROLLER://127.0.0.1:{controller_port}")
        found = {
            "process.roles": member.roles,
            "node.id": str(member.id),
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        if member.kind == "kafka":
            # Its broker gives up after a minute, and so do three JVMs that start beside others.
            found["initial.broker.registration.timeout.ms"] = str(START_SECONDS * 1000)
        if self.quorum == "static":
            voters = [f"{n}@127.0.0.1:{self.ports[n][1]}" for n in self.controllers]
            found["controller.quorum.voters"] = ",".join(voters)
            found["controller.quorum.bootstrap.servers"] = ""
        else:
            found["controller.quorum.bootstrap.servers"] = self.controller_bootstrap
        return found

    def _format_as(self, member: Member) -> list[str]:
        if self.quorum == "static":
            return []
        if not member.is_controller:
            return ["--no-initial-controllers"]
        if member.id in self.late:
            return ["--no-initial-controllers"]
        if self.quorum == "standalone":
            first = member.id == min(self.controllers)
            return ["--standalone" if first else "--no-initial-controllers"]
        voters = [
            f"{n}@127.0.0.1:{self.ports[n][1]}:{self.directory_ids[n]}"
            for n in self.controllers
            if n not in self.late
        ]
        return ["--initial-controllers", ",".join(voters)]

    def add(self, member: Member) -> MemberProcess:
        """A node more, not started; a controller is no voter before it is added to them."""
        first, second = lasting_ports(2)
        self.members[member.id] = member
        self.late.add(member.id)
        self.ports[member.id] = (first, second)
        self.nodes[member.id] = self._make(member)
        return self.nodes[member.id]

    def replace(self, node_id: int, kind: Kind) -> MemberProcess:
        """The same node on the same directory, ports and id, as the other kind; it must be down."""
        assert self.nodes[node_id].process is None
        old = self.members[node_id]
        self.members[node_id] = Member(old.id, kind, old.roles)
        self.nodes[node_id] = self._make(self.members[node_id])
        return self.nodes[node_id]

    # ---- running

    @property
    def bootstrap(self) -> str:
        """The client listeners of all brokers."""
        return ",".join(f"127.0.0.1:{self.ports[n][0]}" for n in self.brokers)

    @property
    def controller_bootstrap(self) -> str:
        """The controller listeners of all controllers."""
        return ",".join(f"127.0.0.1:{self.ports[n][1]}" for n in self.controllers)

    def start(self, ids: Iterable[int] | None = None) -> None:
        """Start these nodes, or all that are down, together; return when they serve."""
        wanted = self.nodes if ids is None else ids
        chosen = [n for n in wanted if self.nodes[n].process is None]
        for node_id in chosen:
            self.nodes[node_id].format()
        is_java = any(self.members[node_id].kind == "kafka" for node_id in chosen)
        with turn(JVM_STARTS) if is_java else nullcontext():
            for node_id in chosen:
                self.nodes[node_id].launch()
            for node_id in chosen:
                self._wait_until_ready(node_id)
        brokers = {n for n in chosen if self.members[n].is_broker}
        # Kafka's brokers listen before they are unfenced.
        if brokers:
            self._until_told(lambda of: brokers <= self._alive(of=of), f"{brokers} serve")

    def _wait_until_ready(self, node_id: int) -> None:
        try:
            self.nodes[node_id].wait_until_ready()
        except AssertionError as error:
            member = self.members[node_id]
            about = f"node {node_id} ({member.kind}, {member.roles})"
            raise AssertionError(f"{about}: {error}\n{self.tails()}") from None

    def kill(self, *ids: int) -> None:
        """kill -9 of these."""
        for node_id in ids:
            self.nodes[node_id].kill()

    def stop(self, *ids: int) -> None:
        """SIGTERM and a clean end, one after another; all that run by default, brokers first."""
        order = sorted(self.nodes, key=lambda n: (self.members[n].is_controller, n))
        chosen = [n for n in ids or order if self.nodes[n].process is not None]
        for node_id in chosen:
            assert self.nodes[node_id].stop(seconds=120) in (0, 143), self.tails()
        brokers = {n for n in chosen if self.members[n].is_broker}
        if brokers:
            self._until_told(lambda of: brokers.isdisjoint(self._alive(of=of)), f"{brokers} left")

    @property
    def running(self) -> list[int]:
        """The ids of the nodes that have a process."""
        return [n for n, node in self.nodes.items() if node.process is not None]

    @property
    def serving(self) -> list[int]:
        """The ids of the brokers that can be asked now."""
        running = [n for n in self.brokers if n in self.running]
        return [n for n in running if not self.nodes[n].is_paused and accepts(self.ports[n][0])]

    def _until_told(self, told: Callable[[int], bool], what: str) -> None:
        """Return once every broker that serves has heard of something."""

        def by_all() -> bool:
            try:
                return all(told(broker) for broker in self.serving)
            except (KafkaError, OSError):
                return False  # It has ended meanwhile.

        wait_until(by_all, f"every broker hears that {what}", TOLD_SECONDS_MAX)

    def _alive(self, *, of: int) -> set[int]:
        """The brokers that one takes for alive."""
        found = self.ask(lambda admin: admin.describe_cluster(), of=of, timeout_ms=5_000)
        return {node.id for node in found.nodes}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.process is not None:
                node.kill()

    def tails(self) -> str:
        """What every node printed last."""
        return "\n".join(f"--- node {n}\n{node.output_tail()}" for n, node in self.nodes.items())

    # ---- asking

    def ask(
        self,
        work: Callable[[Admin], Coroutine[Any, Any, T]],
        *,
        controllers: bool = False,
        of: int | None = None,
        timeout_ms: int = 30_000,
    ) -> T:
        """The outcome of `work` with our own admin client, over all nodes awake or over one."""
        ids = self.controllers if controllers else self.brokers
        place = int(controllers)
        awake = [n for n in ids if n in self.running and not self.nodes[n].is_paused]
        ids = [of] if of is not None else awake
        return asyncio.run(
            _asked(
                work,
                [self.ports[n][place] for n in ids],
                to_controllers=controllers,
                api_timeout_ms=timeout_ms,
                login=self.login,
                connect=self.connect,
            )
        )

    def describe_quorum(self, *, timeout_ms: int = 30_000) -> QuorumInfo:
        """DescribeQuorum, asked of the controllers themselves."""
        return self.ask(
            lambda admin: admin.describe_quorum(), controllers=True, timeout_ms=timeout_ms
        )

    def leader(self, *, other_than: int | None = None, seconds: float = 60) -> int:
        """The active controller, once there is one (that is not `other_than`)."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                leader = self.describe_quorum(timeout_ms=5_000).leader_id
            except (KafkaError, OSError):
                leader = -1
            if leader >= 0 and leader != other_than:
                return leader
            assert time.monotonic() < deadline, f"no leader in {seconds:g} s\n{self.tails()}"
            time.sleep(0.02)

    def create_topic(self, name: str, *, of: int | None = None, **more: Any) -> None:
        """As `request_topic`, for a new topic; returns once every broker that serves knows it."""
        try:
            self.request_topic(name, of=of, **more)
        except KafkaError as error:
            # An attempt whose answer was lost, with a leader or in time, has made it.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self.until_known(name)

    def until_known(self, topic: str) -> None:
        """Return once every broker that serves knows the topic."""
        self._until_told(lambda of: topic in self.topics(of=of), f"there is {topic}")

    def request_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        of: int | None = None,
        **configs: str,
    ) -> None:
        """CreateTopics through any broker or this one; underscores stand for dots in configs."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}

        async def work(admin: Admin) -> None:
            outcome = await admin.create_topics(
                [
                    NewTopic(
                        name=name,
                        partitions=partitions,
                        replication_factor=replicas,
                        configs=settings,
                    )
                ]
            )
            created = outcome[name]
            if isinstance(created, KafkaError):
                raise created

        self.ask(work, of=of)

    def set_config(self, topic: str, **configs: str) -> None:
        """Set configs of a topic; underscores stand for dots."""

        async def work(admin: Admin) -> None:
            changes = [(k.replace("_", "."), ConfigOperation.SET, v) for k, v in configs.items()]
            resource = (ResourceType.TOPIC, topic)
            outcome = await admin.alter_configs({resource: changes})
            error = outcome[resource]
            if error is not None:
                raise error

        self.ask(work)

    def config(self, topic: str, key: str, *, of: int) -> str | None:
        """A topic's config as one broker tells it."""

        async def work(admin: Admin) -> str | None:
            resource = (ResourceType.TOPIC, topic)
            found = (await admin.describe_configs([resource]))[resource]
            if isinstance(found, KafkaError):
                raise found
            return next((entry.value for entry in found if entry.name == key), None)

        return self.ask(work, of=of)

    def topics(self, *, of: int | None = None) -> set[str]:
        """The topics a broker knows."""

        async def work(admin: Admin) -> set[str]:
            return set(await admin.list_topics())

        return self.ask(work, of=of)


async def _asked(
    work: Callable[[Admin], Coroutine[Any, Any, T]],
    ports: Sequence[int],
    **options: Any,
) -> T:
    ports = [port for port in ports if accepts(port)] or list(ports)
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    async with ClusterClient(bootstrap, client_id="test", **options) as cluster:
        return await work(Admin(cluster))


def _uuid() -> str:
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text

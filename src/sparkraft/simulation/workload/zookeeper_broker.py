"""A modelled broker of Kafka 3.9 in ZooKeeper mode that a quorum migrates (KIP-866).

Real parts: its session, its registration, and the ZooKeeper controller, which it stands for with
all others until a KRaft controller has taken `/controller`. Modelled: its records
(`replica_model`), and how it obeys LeaderAndIsr, StopReplica and UpdateMetadata (ReplicaManager of
Kafka 3.9). Followers read the log of their leader directly if the link between them is whole.

In KRaft mode, which ends a migration, it has no session: it follows the committed metadata of the
active controller, if the links to it are whole, and everything of it is modelled.
"""

import asyncio
import random
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.messages import k04_leader_and_isr as k04
from sparkraft.protocol.messages import k05_stop_replica as k05
from sparkraft.protocol.messages import k06_update_metadata as k06
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.protocol.messages import k62_broker_registration as k62
from sparkraft.protocol.messages import k63_broker_heartbeat as k63
from sparkraft.server.config import NodeConfig
from sparkraft.server.env import Env
from sparkraft.server.identity import StartRefused
from sparkraft.server.zookeeper.control_channels import ControlChannels
from sparkraft.server.zookeeper.registration import create_top_level_paths, register
from sparkraft.server.zookeeper.session import EnsembleSession
from sparkraft.simulation.workload.quorum_requests import REQUEST_MS, ask_controllers
from sparkraft.simulation.workload.replica_model import Assigned, Entry, Role, follow
from sparkraft.simulation.world.core_node import SeededEntropy
from sparkraft.simulation.world.loop import Incarnation
from sparkraft.simulation.world.machine import EPOCH_MS, Executor, SimClock, image_of
from sparkraft.simulation.world.memory_disk import MemoryDisk
from sparkraft.simulation.world.nodes import NodesWorld
from sparkraft.simulation.world.zookeeper_addresses import CONNECT
from sparkraft.zookeeper.controller.active import Active, Settings
from sparkraft.zookeeper.controller.control_messages import Sender
from sparkraft.zookeeper.controller.controller import Controller
from sparkraft.zookeeper.controller.events import AlterPartition, Reelect
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from sparkraft.zookeeper.controller.values import IsrChangeRequest, LeaderAndIsr
from sparkraft.zookeeper.controller_task import ControllerTask
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.znodes.brokers import Endpoint, Registration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.metadata.image import ClusterImage

PORT = 9192
LISTENER = "PLAINTEXT"
PROTOCOL = "3.9-IV0"
LEVEL = 21
"""metadata.version of the protocol version."""

TICK_S = 0.1
"""Between the fetches of a follower, and between the checks of a leader."""

HEARTBEAT_S = 0.5
LAG_S = 2.0
"""replica.lag.time.max.ms"""

FULL = 2
DELETED_LEADER = -2
NO_EPOCH, DURING_DELETE = -1, -2

_MESSAGES: dict[int, tuple[Any, Any]] = {
    ApiKey.LEADER_AND_ISR: (k04.LeaderAndIsrRequest, k04.LeaderAndIsrResponse),
    ApiKey.STOP_REPLICA: (k05.StopReplicaRequest, k05.StopReplicaResponse),
    ApiKey.UPDATE_METADATA: (k06.UpdateMetadataRequest, k06.UpdateMetadataResponse),
}

At = tuple[str, int]


class Ruler(NamedTuple):
    """The controller of the last request that was obeyed."""

    id: int
    is_kraft: bool


class BrokerObserver(Protocol):
    """Sees what modelled brokers do."""

    def on_obeyed(self, broker: "ZooKeeperBroker", request: Any) -> None:
        """Called for a request whose epochs are accepted, before it has an effect."""

    def on_leads(self, broker: "ZooKeeperBroker", state: Assigned) -> None:
        """Called when a broker begins to lead a partition in an epoch."""

    def on_acknowledged(self, topic_id: Uuid, partition: int, values: list[int]) -> None:
        """Called with the values that are acknowledged now."""


class ZooKeeperBroker:
    """See the module docstring.

    Attributes:
        logs: survive the process, as on a disk; by topic and partition.
        ids: the topic id of each log.
        roles: partitions that it leads or follows.
        cache: leader, leader epoch and ISR of all partitions, by UpdateMetadata.
    """

    def __init__(self, world: NodesWorld, broker_id: int, observer: BrokerObserver) -> None:
        """Create it, off."""
        self.world = world
        self.id = broker_id
        self.name = f"b{broker_id}"
        self.peers: Sequence[ZooKeeperBroker] = ()
        self.observer = observer
        self.logs: dict[At, list[Entry]] = {}
        self.ids: dict[At, Uuid] = {}
        self.lives = 0
        self.migrates = False
        self.in_kraft = False
        self.incarnation: Incarnation | None = None
        self._off()

    def _off(self) -> None:
        self.roles: dict[At, Role] = {}
        self.cache: dict[At, tuple[int, int, tuple[int, ...]]] = {}
        self.controller_epoch = -1
        self.ruler: Ruler | None = None
        self.zookeeper_epoch = -1
        self.kraft_epoch = -1
        self.session: EnsembleSession | None = None
        self.task: ControllerTask | None = None
        self.active: Active | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    # ---- process

    @property
    def is_up(self) -> bool:
        return self.incarnation is not None

    @property
    def is_controller(self) -> bool:
        """Whether it is the controller in ZooKeeper, as far as it knows."""
        return self.is_up and self.active is not None and self.active.is_active

    def start(self, *, migrates: bool | None = None, in_kraft: bool | None = None) -> None:
        """Start its process unless it runs; None: in the mode that it had."""
        if self.incarnation is not None:
            return
        if migrates is not None:
            self.migrates = migrates
        if in_kraft is not None:
            self.in_kraft = in_kraft
        self.lives += 1
        mode = ", to be migrated" if self.migrates else ""
        self.world.note(f"{self.name} starts{' in KRaft mode' if self.in_kraft else mode}")
        self.incarnation = incarnation = Incarnation(self.name, offset_s=1_000.0 * self.lives)
        self.world.loop.call_soon(self._boot, context=incarnation.context)

    def _boot(self) -> None:
        self._spawn(self._main(), "main")

    def kill(self) -> None:
        """Kill its process."""
        if self.incarnation is None:
            return
        self.world.note(f"{self.name} is killed", "fault")
        incarnation, self.incarnation = self.incarnation, None
        incarnation.dead = True
        self.world.network.reset_all(incarnation)
        self._off()

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work, name=f"{self.name} {name}")
        self._tasks.append(task)
        return task

    async def _main(self) -> None:
        assert self.incarnation is not None
        world = self.world
        dice = random.Random(f"{world.seed} {self.name} {self.lives}")
        if self.in_kraft:
            self._spawn(self._follow_log(), "metadata")
            self._spawn(self._replicate(), "replication")
            self._spawn(self._belong_to_the_quorum(dice), "quorum")
            return
        env = Env(
            clock=SimClock(world.loop, self.incarnation),
            entropy=SeededEntropy(dice),
            network=world.network,
            disk=MemoryDisk(),
            executor=Executor(),  # type: ignore[arg-type]
        )
        server = await world.network.listen(lambda: _Link(self), None, PORT)
        await server.start_serving()
        session = await self._open_session(env)
        self._make_controller(env, session)
        await create_top_level_paths(session.client)
        self._spawn(session.run(), "sessions")
        await self._register()
        assert self.task is not None
        session.add_watcher(self.task.on_watch)
        session.add_expiry_listener(self.task.expire)
        session.add_session_listener(self._register_again)
        self._spawn(self.task.run(), "controller")
        self.task.put(Reelect())
        self._spawn(self._replicate(), "replication")
        if self.migrates:
            self._spawn(self._belong_to_the_quorum(dice), "quorum")

    async def _open_session(self, env: Env) -> EnsembleSession:
        config = NodeConfig(
            {
                "broker.id": str(self.id),
                "zookeeper.connect": CONNECT,
                "zookeeper.session.timeout.ms": "6000",
                "zookeeper.connection.timeout.ms": "3000",
                "listeners": f"{LISTENER}://{self.name}:{PORT}",
                "log.dirs": "/data",
            }
        )
        while True:
            session = EnsembleSession(config, env)
            try:
                await session.start()
            except TimeoutError:
                await session.close()
                await asyncio.sleep(1)
            else:
                self.session = session
                return session

    def _make_controller(self, env: Env, session: EnsembleSession) -> None:
        protocol = parse_protocol_version(PROTOCOL)
        self.active = active = Active(Settings(node_id=self.id, protocol=protocol))

        async def on_worked(_: int) -> None:
            await asyncio.sleep(0)

        self.task = task = ControllerTask(
            Controller(active),
            env.clock,
            client=lambda: session.client,
            send=lambda requests: channels.send(requests),  # noqa: PLW0108 (made below)
            on_handled=lambda *_: channels.retain(active.context.brokers),
            on_worked=on_worked,
        )
        channels = ControlChannels(
            Sender(self.id, protocol, LISTENER),
            env.clock,
            connect=self.world.network.connect,
            login=None,
            timeout_ms=30_000,
            brokers=lambda: active.context.brokers,
            put=task.put,
            on_worked=on_worked,
            spawn=self._spawn,
        )

    async def _register(self) -> None:
        registration = Registration(
            version=5,
            endpoints=(Endpoint(LISTENER, LISTENER, self.name, PORT),),
            timestamp=str(EPOCH_MS),
            rack=None,
        )
        while True:
            assert self.session is not None
            try:
                self.zookeeper_epoch = await register(self.session, self.id, registration)
            except (StartRefused, ZooKeeperError) as error:
                self.world.note(f"{self.name} is not registered: {error}")
                await asyncio.sleep(0.5)  # until the session of the process before has expired
            else:
                return

    async def _register_again(self) -> None:
        await self._register()
        assert self.task is not None
        self.task.put(Reelect())

    # ---- the quorum

    async def _belong_to_the_quorum(self, dice: random.Random) -> None:
        """Register, and send heartbeats; from the start again when the registration is lost."""
        incarnation_id = Uuid(dice.randbytes(16))
        directory = Uuid(random.Random(f"{self.world.seed} {self.name}").randbytes(16))
        while True:
            feature = k62.Feature(
                name="metadata.version", min_supported_version=LEVEL, max_supported_version=LEVEL
            )
            request = k62.BrokerRegistrationRequest(
                broker_id=self.id,
                cluster_id=self.world.cluster_id,
                incarnation_id=incarnation_id,
                listeners=[k62.Listener(name=LISTENER, host=self.name, port=PORT)],
                features=[feature],
                log_dirs=[directory],
                is_migrating_zk_broker=not self.in_kraft,
            )
            response = await self.ask_quorum(request)
            if response is not None and response.error_code == ErrorCode.NONE:
                self.kraft_epoch = response.broker_epoch
                await self._beat()
            await asyncio.sleep(HEARTBEAT_S)

    async def _beat(self) -> None:
        while True:
            request = k63.BrokerHeartbeatRequest(
                broker_id=self.id,
                broker_epoch=self.kraft_epoch,
                current_metadata_offset=1 << 40,
            )
            response = await self.ask_quorum(request)
            if response is not None and response.error_code in (
                ErrorCode.STALE_BROKER_EPOCH,
                ErrorCode.BROKER_ID_NOT_REGISTERED,
            ):
                return
            await asyncio.sleep(HEARTBEAT_S)

    async def ask_quorum(self, request: Any) -> Any:
        """Return the response of the active controller; None if there is none."""
        return await ask_controllers(self.world, request, self.name)

    async def _follow_log(self) -> None:
        """Follow the committed metadata, as an observer of the quorum does."""
        offset = -1
        while True:
            await asyncio.sleep(TICK_S)
            leader = self.world.leader()
            image = None if leader is None else image_of(leader)
            if leader is None or image is None or image.offset <= offset:
                continue
            if not self.world.network.cut.isdisjoint(
                {(self.name, leader.name), (leader.name, self.name)}
            ):
                continue
            offset = image.offset
            self.ruler = Ruler(leader.id, is_kraft=True)
            self._apply(image)

    def _apply(self, image: "ClusterImage") -> None:
        for at in [at for at in self.logs if image.topics_by_name.get(at[0]) != self.ids[at]]:
            self._delete(at)
        self.cache.clear()
        for topic in image.topics_in_order():
            for index, part in topic.in_order():
                self.cache[topic.name, index] = (part.leader, part.leader_epoch, tuple(part.isr))
                if self.id in part.replicas:
                    state = Assigned(
                        topic.name, topic.id, index, part.leader, part.leader_epoch,
                        part.partition_epoch, tuple(part.isr), tuple(part.replicas),
                    )  # fmt: skip
                    self._assign(state, is_kraft=True)

    # ---- control requests

    def obey(self, request: Any) -> Any:
        """Return the response to a control request."""
        own = self.kraft_epoch if request.is_kraft_controller else self.zookeeper_epoch
        if request.controller_epoch < self.controller_epoch:
            return _response(request, ErrorCode.STALE_CONTROLLER_EPOCH)
        if request.broker_epoch != NO_EPOCH and request.broker_epoch < own:
            return _response(request, ErrorCode.STALE_BROKER_EPOCH)
        self.world.check(lambda: self.observer.on_obeyed(self, request))
        self.controller_epoch = request.controller_epoch
        self.ruler = Ruler(request.controller_id, request.is_kraft_controller)
        if isinstance(request, k04.LeaderAndIsrRequest):
            return self._lead_and_follow(request)
        if isinstance(request, k05.StopReplicaRequest):
            return self._stop(request)
        return self._update(request)

    def _lead_and_follow(self, request: k04.LeaderAndIsrRequest) -> k04.LeaderAndIsrResponse:
        response = k04.LeaderAndIsrResponse()
        named: set[At] = set()
        for topic in request.topic_states:
            errors = []
            for part in topic.partition_states:
                named.add((topic.topic_name, part.partition_index))
                state = Assigned(
                    topic.topic_name, topic.topic_id, part.partition_index, part.leader,
                    part.leader_epoch, part.partition_epoch, tuple(part.isr),
                    tuple(part.replicas),
                )  # fmt: skip
                code = self._assign(state, is_kraft=request.is_kraft_controller)
                errors.append(
                    k04.LeaderAndIsrPartitionError(
                        topic_name=topic.topic_name,
                        partition_index=part.partition_index,
                        error_code=code,
                    )
                )
            response.topics.append(
                k04.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)
            )
        if request.type == FULL:
            for at in [at for at in self.logs if at not in named]:
                self.world.note(f"{self.name} sets {at[0]}-{at[1]} aside: a stray")
                self._delete(at)
        return response

    def _assign(self, state: Assigned, *, is_kraft: bool) -> int:
        at = (state.topic, state.partition)
        if at in self.ids and self.ids[at] != state.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        known = self.roles.get(at)
        if known is not None:
            if state.leader_epoch < known.state.leader_epoch:
                return ErrorCode.STALE_CONTROLLER_EPOCH
            if state.leader_epoch == known.state.leader_epoch:
                if not is_kraft:
                    return ErrorCode.STALE_CONTROLLER_EPOCH
                if state.partition_epoch > known.state.partition_epoch:
                    known.state, known.wanted_isr = state, None
                return ErrorCode.NONE
        if self.id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.ids[at] = state.topic_id
        log = self.logs.setdefault(at, [])
        leads = state.leader == self.id
        now = self.world.loop.now
        self.roles[at] = Role(state, leads, caught_up_s=dict.fromkeys(state.isr, now))
        if leads:
            self.world.note(
                f"{self.name} leads {state.topic}-{state.partition} in epoch "
                f"{state.leader_epoch}, ISR {list(state.isr)}, end {len(log)}"
            )
            self.world.check(lambda: self.observer.on_leads(self, state))
        return ErrorCode.NONE

    def _delete(self, at: At) -> None:
        for known in (self.logs, self.ids, self.roles):
            known.pop(at, None)

    def _stop(self, request: k05.StopReplicaRequest) -> k05.StopReplicaResponse:
        response = k05.StopReplicaResponse()
        for topic in request.topic_states:
            for part in topic.partition_states:
                at = (topic.topic_name, part.partition_index)
                known = self.roles.get(at)
                code = ErrorCode.NONE
                if (
                    known is not None
                    and part.leader_epoch not in (NO_EPOCH, DURING_DELETE)
                    and part.leader_epoch < known.state.leader_epoch
                ):
                    code = ErrorCode.FENCED_LEADER_EPOCH
                elif part.delete_partition:
                    self._delete(at)
                else:
                    self.roles.pop(at, None)
                response.partition_errors.append(
                    k05.StopReplicaPartitionError(
                        topic_name=at[0], partition_index=at[1], error_code=code
                    )
                )
        return response

    def _update(self, request: k06.UpdateMetadataRequest) -> k06.UpdateMetadataResponse:
        if request.type == FULL:
            self.cache.clear()
        for topic in request.topic_states:
            for part in topic.partition_states:
                at = (topic.topic_name, part.partition_index)
                if part.leader == DELETED_LEADER:
                    self.cache.pop(at, None)
                else:
                    self.cache[at] = (part.leader, part.leader_epoch, tuple(part.isr))
        return k06.UpdateMetadataResponse()

    # ---- records

    def leads(self, at: At) -> Role | None:
        """Its role if it leads the partition."""
        role = self.roles.get(at)
        return role if role is not None and role.leads else None

    def append(self, at: At, value: int) -> None:
        """Append a value as the leader."""
        role = self.roles[at]
        log = self.logs[at]
        log.append(Entry(role.state.leader_epoch, value))
        role.waiting.append((len(log), value))
        self._advance(at, role)

    async def _replicate(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for at, role in sorted(self.roles.items()):
                if not role.leads:
                    self._fetch(at, role)
            for at, role in sorted(self.roles.items()):
                if role.leads:
                    await self._keep_isr(at, role)

    def _fetch(self, at: At, role: Role) -> None:
        peer = next((each for each in self.peers if each.id == role.state.leader), None)
        if peer is None or not self._reaches(peer):
            return
        led = peer.leads(at)
        if led is None or led.state.leader_epoch != role.state.leader_epoch:
            return
        if peer.ids[at] != role.state.topic_id:
            return
        follow(self.logs[at], peer.logs[at])
        led.ends[self.id] = len(self.logs[at])
        led.caught_up_s[self.id] = self.world.loop.now
        peer._advance(at, led)  # noqa: SLF001 (another of this class)

    def _reaches(self, peer: "ZooKeeperBroker") -> bool:
        cut = self.world.network.cut
        links = ((self.name, peer.name), (peer.name, self.name))
        return peer.is_up and not any(link in cut for link in links)

    def _advance(self, at: At, role: Role) -> None:
        done = role.advance(self.id, len(self.logs[at]))
        self.observer.on_acknowledged(role.state.topic_id, at[1], done)

    async def _keep_isr(self, at: At, role: Role) -> None:
        """Shrink or expand the ISR of a partition that this broker leads."""
        if role.wanted_isr is None:
            state = role.state
            fresh = [each for each in state.replicas if self._is_in_sync(each, role)]
            if sorted(fresh) == sorted(state.isr):
                return
            role.wanted_isr = tuple(fresh)
        found = await self._alter_partition(at, role)
        if self.roles.get(at) is not role:
            return
        if isinstance(found, LeaderAndIsr) and found.leader_epoch == role.state.leader_epoch:
            role.state = role.state._replace(isr=found.isr, partition_epoch=found.partition_epoch)
            role.wanted_isr = None
            self._advance(at, role)
        elif found is not None:
            role.wanted_isr = None

    def _is_in_sync(self, replica: int, role: Role) -> bool:
        """Whether a replica may be in the ISR: it has all committed values, and fetches."""
        if replica == self.id:
            return True
        lag_s = self.world.loop.now - role.caught_up_s.get(replica, 0)
        has_all = replica in role.state.isr or role.ends.get(replica, -1) >= role.high_watermark
        return has_all and lag_s < LAG_S

    async def _alter_partition(self, at: At, role: Role) -> LeaderAndIsr | int | None:
        """Return the new state, an error, or None if the controller did not answer."""
        assert role.wanted_isr is not None
        state = role.state
        wanted = LeaderAndIsr(self.id, role.wanted_isr, state.leader_epoch, state.partition_epoch)
        if self.ruler is None:
            return None
        if self.ruler.is_kraft:
            return await self._alter_in_quorum(at, state.topic_id, wanted)
        peer = next((each for each in self.peers if each.id == self.ruler.id), None)
        if peer is None or not self._reaches(peer) or peer.task is None:
            return None
        request = IsrChangeRequest(
            broker=self.id, broker_epoch=self.zookeeper_epoch, version=3, states={at: wanted}
        )
        try:
            async with asyncio.timeout(REQUEST_MS / 1000):
                results = await peer.task.request(AlterPartition(request))
        except (KafkaError, TimeoutError):
            return None
        result: LeaderAndIsr | int = results[at]
        return result

    async def _alter_in_quorum(
        self, at: At, topic_id: Uuid, wanted: LeaderAndIsr
    ) -> LeaderAndIsr | int | None:
        part = k56.AlterPartitionRequestPartitionData(
            partition_index=at[1],
            leader_epoch=wanted.leader_epoch,
            new_isr_with_epochs=[k56.BrokerState(broker_id=each) for each in wanted.isr],
            partition_epoch=wanted.partition_epoch,
        )
        request = k56.AlterPartitionRequest(
            broker_id=self.id,
            broker_epoch=self.kraft_epoch,
            topics=[k56.AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[part])],
        )
        response = await self.ask_quorum(request)
        if response is None or response.error_code:
            return None
        found = response.topics[0].partitions[0]
        if found.error_code:
            code: int = found.error_code
            return code
        return LeaderAndIsr(
            found.leader_id, tuple(found.isr), found.leader_epoch, found.partition_epoch
        )


def _response(request: Any, code: ErrorCode) -> Any:
    response = next(made for asked, made in _MESSAGES.values() if isinstance(request, asked))
    return response(error_code=code)


class _Link(asyncio.Protocol):
    """A connection of a controller; requests are handled one by one."""

    def __init__(self, broker: ZooKeeperBroker) -> None:
        self._broker = broker
        self._buffer = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:  # noqa: PLR2004 (the length)
            end = 4 + int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[4:end])
            del self._buffer[:end]
            self._handle(frame)

    def _handle(self, frame: bytes) -> None:
        key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
        client = int.from_bytes(frame[8:10], "big")
        asked, _ = _MESSAGES[key]
        # The header ends with the client id and no tagged fields.
        response = self._broker.obey(decode(asked, version, frame[10 + client + 1 :]))
        body = frame[4:8] + b"\0" + encode(response, version)
        self._transport.write(len(body).to_bytes(4, "big") + body)

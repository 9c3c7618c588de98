"""This node as a candidate for the controller of a ZooKeeper cluster, and as the controller.

With sparkraft.controllership.enable=false it never stands for the controller, and makes the changes
that any broker makes: configs, quotas, access control lists, delegation tokens.

    broker registered ─► stand for /controller ─► events of watches, brokers and requests ─►
    decisions

API handlers reach it as they reach the controller of a quorum: `OwnControllerServices` has the
parts that they use, and `submit` decides a request by its API key.

Kafka 3.9: `KafkaController`. A broker stands for the controller in each session, after it has
registered; it competes whenever /controller is deleted. If the registration is refused, it does not
stand in that session (`processRegisterBrokerAndReelect`). In an expired session it resigns before a
new session starts. At a stop its session ends, which deletes /controller.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset
from sparkraft.controller.call import Call, no_quota
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.mutation_quotas import MutationQuotas
from sparkraft.security.principal import ANONYMOUS, KafkaPrincipal
from sparkraft.server.config_pieces import ConfigPieces
from sparkraft.server.controller.driver import DurationStat
from sparkraft.server.controller.submission import set_error
from sparkraft.server.zookeeper import controller_api
from sparkraft.server.zookeeper.config_changes import ConfigChanges
from sparkraft.server.zookeeper.control_channels import ControlChannels
from sparkraft.server.zookeeper.controller_journal import (
    PartitionJournalFile,
    controller_journal_file,
)
from sparkraft.server.zookeeper.pausing import pausing
from sparkraft.server.zookeeper.scram_changes import ScramChanges
from sparkraft.server.zookeeper.topic_changes import TopicChanges
from sparkraft.zookeeper.controller.active import Active, Settings
from sparkraft.zookeeper.controller.control_messages import Sender
from sparkraft.zookeeper.controller.controller import Controller
from sparkraft.zookeeper.controller.events import (
    BalanceLeaders,
    Reelect,
    UncleanElectionEnabled,
)
from sparkraft.zookeeper.controller.journal import MALFORMED, STRANGER
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from sparkraft.zookeeper.controller_task import ControllerTask

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from sparkraft.base.env import Clock
    from sparkraft.base.ids import TopicPartition
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.security.login import Credentials
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.server.zookeeper.configs import ZooKeeperConfigs
    from sparkraft.server.zookeeper.images import ZooKeeperImages
    from sparkraft.server.zookeeper.session import EnsembleSession
    from sparkraft.tls.dialing import Connect
    from sparkraft.zookeeper.controller.context import ControllerContext
    from sparkraft.zookeeper.controller.journal import ControllerJournal, Entry

log = logging.getLogger(__name__)

BALANCE_MS_FIRST = 5_000
"""From a failover to the first check for preferred leaders, as in Kafka."""

UNCLEAN = "unclean.leader.election.enable"

IDLE = "Idle"
"""State of events without a timer, and between events."""

NOT_ACTIVE = 0
"""Epoch while another node is the controller."""

SERVED_BY_ANY = frozenset(
    {
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)
"""Changes that each broker writes to ZooKeeper itself; all others need the controller."""

Change = Callable[[Call[Any]], Awaitable[Any]]
Decide = Callable[[ControllerTask, Any, int], Awaitable[Any]]

_BY_EVENT: dict[ApiKey, Decide] = {
    ApiKey.CONTROLLED_SHUTDOWN: controller_api.controlled_shutdown,
    ApiKey.ALTER_PARTITION: controller_api.alter_partition,
    ApiKey.ALLOCATE_PRODUCER_IDS: controller_api.allocate_producer_ids,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: controller_api.alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: controller_api.list_reassignments,
    ApiKey.UPDATE_FEATURES: controller_api.update_features,
}
"""Requests that are events of the controller."""


class OwnController:
    """See the module docstring.

    Attributes:
        task: runs the core.
        channels: to the brokers, while this node is the controller.
        queue_times: how long events waited.
        state_times: how long events took, by the name of their state.
    """

    def __init__(  # noqa: PLR0913 (every collaborator, by name)
        self,
        config: "NodeConfig",
        env: "Env",
        session: "EnsembleSession",
        images: "ZooKeeperImages",
        configs: "ZooKeeperConfigs",
        *,
        cluster_id: str,
        connect: "Connect",
        login: "Credentials | None",
        changes: "Mapping[ApiKey, Change]",
        spawn: "Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]",
    ) -> None:
        """Prepare.

        Args:
            config: of the node.
            env: its clock and random numbers.
            session: with the ensemble.
            images: the published ones.
            configs: reads configs into them.
            cluster_id: as in ZooKeeper.
            connect: opens connections to the listeners of brokers for the controller.
            login: authenticates each of them; None: they are not authenticated.
            changes: more requests that any broker serves.
            spawn: runs a task of the node.
        """
        self._config = config
        self._session = session
        self._images = images
        self._configs = configs
        self._clock = env.clock
        self._spawn = spawn
        self._is_registered: Callable[[], bool] = lambda: False
        self._running: asyncio.Task[Any] | None = None
        self._writing: asyncio.Task[Any] | None = None
        self._balancing: asyncio.Task[Any] | None = None
        self.queue_times = DurationStat()
        self.state_times: dict[str, DurationStat] = {}
        self._epoch = NOT_ACTIVE
        """Of the controller that this node is, as of the last event."""
        protocol = parse_protocol_version(config.text("inter.broker.protocol.version"))
        self._active = Active(
            Settings(
                node_id=config.node_id,
                unclean_leader_election=config.flag("unclean.leader.election.enable"),
                imbalance_max=config.number("leader.imbalance.per.broker.percentage") / 100,
                deletes_topics=config.flag("delete.topic.enable"),
                protocol=protocol,
            ),
            new_topic_id=partial(random_uuid, env.entropy) if protocol.has_topic_ids else None,
        )
        self._file = controller_journal_file(env.disk, config.metadata_log_dir)
        self._active.journal.keep(self._file.read(), env.clock.wall_ms, self._record)
        self._partition_file = PartitionJournalFile(
            env.disk, config.metadata_log_dir, self._active.journal.partitions, env.clock.wall_ms
        )
        self.task = ControllerTask(
            Controller(self._active),
            env.clock,
            client=lambda: session.client,
            send=self._send,
            on_handled=self._on_handled,
            on_worked=pausing(env),
        )
        self.channels = ControlChannels(
            Sender(config.node_id, protocol, config.control_plane_listener_name),
            env.clock,
            connect=connect,
            login=login,
            timeout_ms=config.number("controller.socket.timeout.ms"),
            brokers=lambda: self._active.context.brokers,
            put=self.task.put,
            on_worked=pausing(env),
            spawn=spawn,
        )
        self._topics = TopicChanges(
            config,
            env,
            session,
            images,
            cluster_id=cluster_id,
            has_topic_ids=protocol.has_topic_ids,
        )
        in_configs = ConfigChanges(session, configs, lambda: self._topics.context)
        scram = ScramChanges(configs, in_configs, lambda: self._topics.context)
        self._changes_by_any: dict[ApiKey, Change] = {
            ApiKey.ALTER_CONFIGS: in_configs.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: in_configs.incremental_alter_configs,
            ApiKey.ALTER_CLIENT_QUOTAS: in_configs.alter_client_quotas,
            **changes,
        }
        self._changes_by_controller: dict[ApiKey, Change] = {
            ApiKey.CREATE_TOPICS: self._topics.create_topics,
            ApiKey.DELETE_TOPICS: self._topics.delete_topics,
            ApiKey.CREATE_PARTITIONS: self._topics.create_partitions,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: scram.alter,
        }

    # ---- as handlers use it

    @property
    def is_active(self) -> bool:
        """Whether this node is the controller, as far as it knows."""
        return self.task.is_active

    @property
    def context(self) -> "ControllerContext":
        """The cluster as the controller sees it; empty while this node is not the controller."""
        return self._active.context

    @property
    def state(self) -> str:
        """Kafka's name of the state of the running event."""
        return self.task.controller.state

    @property
    def journal(self) -> "ControllerJournal":
        """Its decisions and observations, also before the last restart."""
        return self._active.journal

    @property
    def elections(self) -> "Mapping[str, int]":
        """How many elections of each kind it has decided."""
        return self._active.journal.elections.counts

    @property
    def image(self) -> "ClusterImage":
        """The image of this broker, which follows the controller."""
        return self._images.image

    async def submit(
        self,
        key: ApiKey,
        request: Any,
        *,
        version: int,
        principal: KafkaPrincipal = ANONYMOUS,
        received_ms: int | None = None,
        apply_partition_change_quota: "Callable[[int], None]" = no_quota,
    ) -> Any:
        """Decide a request; see `ControllerDriver.submit`.

        Raises:
            KafkaError: NOT_CONTROLLER if this node is not the controller; UNSUPPORTED_VERSION for a
                key that this mode does not have; any error that rejects the request as a whole.
        """
        decide = _BY_EVENT.get(key)
        if decide is not None:
            return await decide(self.task, request, version)
        if key is ApiKey.ELECT_LEADERS:
            return await self._elect_leaders(request, version)
        change = self._changes_by_any.get(key)
        if change is None:
            if not self.is_active:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
            change = self._changes_by_controller.get(key)
        if change is None:
            unavailable = f"{key.name} is not available in ZooKeeper mode"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, unavailable)
        call = Call(
            request=request,
            version=version,
            now=self._clock.mono_ms() if received_ms is None else Millis(received_ms),
            wall_ms=self._clock.wall_ms(),
            next_offset=Offset(0),
            principal=principal,
            apply_partition_change_quota=apply_partition_change_quota,
        )
        return await change(call)

    async def _elect_leaders(self, request: Any, version: int) -> Any:
        """ElectLeaders: as in Kafka, wait until this broker's image shows the new leaders."""
        response, leaders = await controller_api.elect_leaders(self.task, request, version)
        await self._images.wait_for(lambda image: _has_leaders(image, leaders), request.timeout_ms)
        image = self._images.image
        for topic in response.replica_election_results:
            for each in topic.partition_result:
                at = (topic.topic, each.partition_id)
                if at in leaders and not _has_leaders(image, {at: leaders[at]}):
                    set_error(each, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        return response

    async def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Refuse kraft.version, which UpdateFeatures raises on a quorum.

        Raises:
            KafkaError: always.
        """
        del level, validate_only
        wrong = "ZooKeeper mode has no kraft.version"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, wrong)

    def serves(self, key: ApiKey) -> bool:
        """Whether this node decides such requests now."""
        return self.is_active or key in SERVED_BY_ANY

    # ---- running

    async def run(self, registered: asyncio.Event, is_registered: "Callable[[], bool]") -> None:
        """Stand for the controller from when the broker is `registered`.

        Args:
            registered: set after its first registration.
            is_registered: whether the present session has registered it.
        """
        await registered.wait()
        self._is_registered = is_registered
        self._configs.add_listener(self._on_config_change)
        self._session.add_watcher(self.task.on_watch)
        self._session.add_expiry_listener(self.task.expire)
        self._session.add_session_listener(self._stand)
        self._running = self._spawn(self.task.run(), "ZooKeeper controller")
        self._writing = self._spawn(self._partition_file.run(), "journal of partitions")
        await self._stand()

    async def _stand(self) -> None:
        """Stand in a new session, unless it has not registered the broker."""
        # Changes of configs while there was no session have no notification.
        self._allow_unclean_elections(on_start=True)
        if self._is_registered():
            self.task.put(Reelect())
        else:
            # Nothing watches /controller in this session, so its deletion has no effect either.
            log.warning(
                "Broker %d does not stand for the controller: this session has not registered it",
                self._config.node_id,
            )

    async def stop(self) -> None:
        """Stop; the end of the session deletes /controller."""
        for task in (self._balancing, self._running, self._writing):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self.task.stop()
        self.channels.retain({})
        await self._partition_file.close()

    def _record(self, entry: "Entry") -> None:
        """Store an entry of the journal; log which znodes are ignored, or have a wrong owner."""
        if entry.kind == MALFORMED:
            log.warning("A malformed znode is ignored: %s", entry.text)
        elif entry.kind == STRANGER:
            log.warning("%s", entry.text)
        self._file.append(entry)

    def _send(self, requests: Any) -> None:
        self.channels.send(requests)

    def _on_handled(self, state: str, queued_ms: int, took_ms: int) -> None:
        """Count the event; follow a change of the role, and of the brokers."""
        self._partition_file.wake()
        self.queue_times.add(queued_ms)
        if state != IDLE:
            self.state_times.setdefault(state, DurationStat()).add(took_ms)
        context = self._active.context
        self.channels.retain(context.brokers)
        epoch = context.epoch if self.is_active else NOT_ACTIVE
        if epoch == self._epoch:
            return
        self._epoch = epoch
        if self._balancing is not None:
            self._balancing.cancel()
            self._balancing = None
        if epoch == NOT_ACTIVE:
            log.info("Broker %d is not the controller any more", self._config.node_id)
            return
        log.info("Broker %d is the controller of epoch %d", self._config.node_id, epoch)
        if self._config.flag("auto.leader.rebalance.enable"):
            self._balancing = self._spawn(self._balance(), "leader balance")

    def _on_config_change(self, entity: str) -> None:
        """Elect leaders that unclean elections are now allowed for, of a topic or of all."""
        kind, _, name = entity.partition("/")
        if kind == "brokers":
            self._allow_unclean_elections(on_start=False)
        elif kind == "topics":
            values = self._images.image.config(ResourceType.TOPIC, name)
            if self.is_active and values.get(UNCLEAN, "").lower() == "true":
                self.task.put(UncleanElectionEnabled(name))

    def _allow_unclean_elections(self, *, on_start: bool) -> None:
        """Follow the default for topics: of this broker, of all brokers, or in its file."""
        image = self._images.image
        text = str(self._config.flag(UNCLEAN))
        for name in ("", str(self._config.node_id)):
            text = image.config(ResourceType.BROKER, name).get(UNCLEAN, text)
        allowed = text.lower() == "true"
        before = self._active.settings.unclean_leader_election
        self._active.allow_unclean_elections(allowed=allowed)
        if allowed and not before and not on_start:
            self.task.put(UncleanElectionEnabled())

    async def _balance(self) -> None:
        """Have the controller check for preferred leaders, as often as configured."""
        interval = self._config.number("leader.imbalance.check.interval.seconds")
        await asyncio.sleep(BALANCE_MS_FIRST / 1000)
        while True:
            self.task.put(BalanceLeaders())
            await asyncio.sleep(interval)


def _has_leaders(image: "ClusterImage", leaders: "Mapping[TopicPartition, int]") -> bool:
    """Whether the image shows these leaders."""
    for (name, index), leader in leaders.items():
        topic = image.topic(name)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is None or partition.leader != leader:
            return False
    return True


class OwnControllerServices:
    """The parts of a ZooKeeper controller that API handlers use; see `ControllerServices`."""

    def __init__(
        self, config: "NodeConfig", env: "Env", controller: OwnController, *, cluster_id: str
    ) -> None:
        self.cluster_id = cluster_id
        self.node_id = config.node_id
        self.config = config
        self.env = env
        self.controller = controller
        self.mutation_quotas = MutationQuotas(
            samples=config.number("controller.quota.window.num"),
            window_ms=config.number("controller.quota.window.size.seconds") * 1000,
        )
        self.config_pieces = ConfigPieces()

    @property
    def clock(self) -> "Clock":
        """The node's clock."""
        return self.env.clock

    @property
    def image(self) -> "ClusterImage":
        """The image of this broker."""
        return self.controller.image

"""Migrates a cluster from ZooKeeper to this controller's quorum (KIP-866).

    quorum leader, all voters ready ─► all brokers registered, all conditions met ─► /controller
    taken ─► metadata copied in one transaction ─► ZooKeeper made equal, brokers informed ─► each
    change written to ZooKeeper, then sent to brokers in ZooKeeper mode

Kafka 3.9: `KRaftMigrationDriver`. One task does everything, in the order of the log; several
changes of the metadata may be written together. A failure of ZooKeeper is retried in the same
state, with growing pauses. If another controller writes to ZooKeeper, this one takes /controller
again; if that is a KRaft controller of a later epoch, it waits.

Invariants:
    * Nothing is written to ZooKeeper before /controller is taken, except an empty /migration.
    * A broker is never sent what ZooKeeper does not have yet.

Not here: the records and the writes (`sparkraft.zookeeper.migration`).
"""

import asyncio
import logging
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, InvariantBroken, KafkaError
from sparkraft.metadata.apply import apply
from sparkraft.metadata.features import name_of as version_name
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage, MigrationState
from sparkraft.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    ZkMigrationStateRecord,
)
from sparkraft.server.identity import StartRefused
from sparkraft.server.sasl_config import inter_broker_login
from sparkraft.server.zookeeper.control_channels import ControlChannels
from sparkraft.server.zookeeper.pausing import pausing
from sparkraft.server.zookeeper.session import EnsembleSession
from sparkraft.zookeeper.controller.control_messages import Sender
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from sparkraft.zookeeper.controller.steps import PIECE_MAX, ControllerMovedError
from sparkraft.zookeeper.driver import execute
from sparkraft.zookeeper.errors import ZooKeeperError
from sparkraft.zookeeper.migration import propagation, ruling
from sparkraft.zookeeper.migration.conditions import Enforced, check_conditions, obstacle_in
from sparkraft.zookeeper.migration.reading import read_tree
from sparkraft.zookeeper.migration.records import PENDING_DELETIONS, batches_of
from sparkraft.zookeeper.migration.state import (
    DriverState,
    name_of,
    unready_brokers,
    unready_controllers,
)
from sparkraft.zookeeper.migration.writes import Change, Remove, changes_between
from sparkraft.zookeeper.znodes.brokers import BROKER_IDS
from sparkraft.zookeeper.znodes.cluster import CLUSTER_ID
from sparkraft.zookeeper.znodes.json_form import ZnodeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence

    from sparkraft.base.ids import LeaderEpoch, Uuid
    from sparkraft.controller.decision import VersionedRecord
    from sparkraft.server.broker.metadata_publisher import MetadataPublisher
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.controller.driver import ControllerDriver
    from sparkraft.server.env import Env
    from sparkraft.tls.dialing import Connect
    from sparkraft.zookeeper.controller.steps import Steps
    from sparkraft.zookeeper.migration.ruling import Rule
    from sparkraft.zookeeper.migration.tree import ZnodeTree

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_MS, PAUSE_MS_MAX = 100, 60_000
"""Between two attempts in a state: doubled each time, as in Kafka."""

RECORDS_PER_APPEND = 1_000
"""Records of the copy that are appended and committed before the next ones."""

TRANSACTION_NAME = "ZK Migration"


class MigrationDriver:
    """See the module docstring.

    Attributes:
        state: its present state.
        waits_for: why the state lasts; empty if the next one follows.
        channels: to brokers in ZooKeeper mode.
    """

    def __init__(  # noqa: PLR0913 (every collaborator, by name)
        self,
        config: "NodeConfig",
        env: "Env",
        controller: "ControllerDriver",
        publisher: "MetadataPublisher",
        *,
        cluster_id: str,
        connect: "Connect",
        spawn: "Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]",
    ) -> None:
        """Prepare.

        Args:
            config: of the node.
            env: clock, random numbers and network.
            controller: of this node.
            publisher: of the images of this node.
            cluster_id: as this node was formatted; ZooKeeper must have the same.
            connect: opens connections to inter-broker listeners.
            spawn: runs a task of the node.
        """
        self.state = DriverState.INACTIVE
        self.waits_for = ""
        self._node_id = config.node_id
        self._env = env
        self._controller = controller
        self._publisher = publisher
        self._cluster_id = cluster_id
        self._config = config
        self._session = EnsembleSession(config, env)
        self._spawn = spawn
        self._on_worked = pausing(env)
        self._wake = asyncio.Event()
        self._pause_ms = PAUSE_MS
        self._epoch: LeaderEpoch | None = None
        self._rule: Rule | None = None
        self._known = EMPTY_IMAGE
        """The image that ZooKeeper and the brokers have."""
        self._changed: set[Uuid] | None = set()
        """Topics that may have changed since; None: all."""
        self._receivers: dict[int, Any] = {}
        self._enforced = Enforced(config.has_authorizer, config.token_key is not None)
        self._listener = config.inter_broker_listener_name
        self._connect = connect
        self._login = inter_broker_login(config)
        self._timeout_ms = config.number("controller.socket.timeout.ms")
        self.channels: ControlChannels | None = None
        self._task: asyncio.Task[Any] | None = None

    # ---- running

    def start(self) -> None:
        """Migrate from now on, in a task of the node."""
        self._task = self._spawn(self.run(), "migration from ZooKeeper")

    async def run(self) -> None:
        """Migrate until cancelled."""
        await self._connect_to_zookeeper()
        self._spawn(self._session.run(), "ZooKeeper sessions of the migration")
        self._publisher.subscribe(self._on_image)
        self._publisher.add_leader_listener(lambda _: self._wake.set())
        await self._publisher.catch_up(0)
        while True:
            self._wake.clear()
            self._follow_leadership()
            try:
                goes_on = await self._step()
            except ControllerMovedError as error:
                log.warning("Another controller writes to ZooKeeper: %s", error)
                goes_on = self._return_to(DriverState.BECOME_CONTROLLER, str(error))
            except (ZooKeeperError, ZnodeError, KafkaError) as error:
                log.warning("Migration, %s: %s; retrying", self.state.value, error)
                self.waits_for, goes_on = str(error), False
            if not goes_on:
                await self._pause()

    async def close(self) -> None:
        """Stop, and end the session. /controller stays for the next active controller."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._session.close()

    async def _connect_to_zookeeper(self) -> None:
        """Open a session with the ensemble, of this cluster; wait for it without an end.

        Raises:
            StartRefused: the ensemble has another cluster, or none.
        """
        found = await self._read_cluster_id()
        if found != self._cluster_id:
            shown = "no cluster" if found is None else f"cluster {found}"
            raise StartRefused(
                f"zookeeper.connect leads to {shown}, but this controller was formatted for "
                f"cluster {self._cluster_id}"
            )

    async def _read_cluster_id(self) -> "str | None":
        while True:
            try:
                await self._session.start()
                tree = await read_tree(self._session.client, (CLUSTER_ID,))
            except (TimeoutError, ZooKeeperError) as error:
                log.warning("The migration waits for ZooKeeper: %s", error)
                await self._session.close()
                self._session = EnsembleSession(self._config, self._env)
                await asyncio.sleep(PAUSE_MS / 1000)
            else:
                found: str | None = tree.value(CLUSTER_ID)
                return found

    async def _pause(self) -> None:
        """Wait for a change of the metadata, but no longer than the pause."""
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, PAUSE_MS_MAX)
        is_failing = self.state is DriverState.DUAL_WRITE and self.waits_for
        if self.state in (DriverState.INACTIVE, DriverState.DUAL_WRITE) and not is_failing:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    def _on_image(
        self, before: ClusterImage, image: ClusterImage, changed: "Sequence[Uuid] | None"
    ) -> None:
        _ = before
        if changed is None:
            self._changed = None
        elif self._changed is not None:
            self._changed.update(changed)
        if self.state is DriverState.DUAL_WRITE or image.brokers is not self._known.brokers:
            self._wake.set()

    # ---- states

    def _move_to(self, state: DriverState) -> bool:
        log.info("Migration: %s", state.value)
        self.state, self.waits_for, self._pause_ms = state, "", PAUSE_MS
        return True

    def _return_to(self, state: DriverState, reason: str) -> bool:
        self._rule = None
        pause_ms = self._pause_ms
        self._move_to(state)
        self.waits_for, self._pause_ms = reason, pause_ms
        return False

    def _wait_for(self, reason: str) -> bool:
        if reason != self.waits_for:
            log.info("Migration, %s: %s", self.state.value, reason)
            self.waits_for = reason
        return False

    def _follow_leadership(self) -> None:
        epoch = self._controller.epoch
        if epoch == self._epoch:
            return
        self._epoch, self._rule = epoch, None
        if self.channels is not None:
            self.channels.retain({})
        self._move_to(DriverState.INACTIVE if epoch is None else DriverState.WAIT_FOR_CONTROLLERS)

    async def _step(self) -> bool:
        """Do what the state requires; return whether the next step can follow at once."""
        steps: dict[DriverState, Callable[[], Awaitable[bool]]] = {
            DriverState.WAIT_FOR_CONTROLLERS: self._check_controllers,
            DriverState.WAIT_FOR_BROKERS: self._check_brokers,
            DriverState.BECOME_CONTROLLER: self._become_controller,
            DriverState.COPY: self._copy,
            DriverState.SYNCHRONIZE: self._synchronize,
            DriverState.DUAL_WRITE: self._write_changes,
        }
        step = steps.get(self.state)
        return step is not None and await step()

    async def _check_controllers(self) -> bool:
        image = self._publisher.image
        if not image.metadata_version:
            return self._wait_for("the metadata log is empty")
        is_copied = await self._execute(ruling.is_copied())
        if image.migration == MigrationState.MIGRATION:
            if is_copied:
                return self._move_to(DriverState.BECOME_CONTROLLER)
            reason = "the metadata log was migrated, but ZooKeeper was not: it was rolled back"
            log.error("The migration stops: %s", reason)
            return self._return_to(DriverState.INACTIVE, reason)
        if image.migration != MigrationState.PRE_MIGRATION:
            reason = f"the migration state is {name_of(image.migration)}"
            log.info("Nothing to migrate: %s", reason)
            return self._return_to(DriverState.INACTIVE, reason)
        unready = unready_controllers(image, self._controller.core.config.voter_ids)
        if unready is not None:
            return self._wait_for(unready)
        return self._move_to(DriverState.WAIT_FOR_BROKERS)

    async def _check_brokers(self) -> bool:
        client = self._session.client
        registered = await read_tree(client, (BROKER_IDS,), self._on_worked)
        voters = self._controller.core.config.voter_ids
        unready = unready_brokers(self._publisher.image, _ids(registered), voters)
        if unready is not None:
            return self._wait_for(unready)
        tree = await read_tree(client, on_worked=self._on_worked)
        level = self._publisher.image.metadata_version
        enforced = self._enforced._replace(metadata_level=level)
        steps = check_conditions(tree, enforced, may_resume=True)
        obstacle = obstacle_in(await self._finish(steps))
        if obstacle is not None:
            return self._wait_for(obstacle)
        return self._move_to(DriverState.BECOME_CONTROLLER)

    async def _become_controller(self) -> bool:
        assert self._epoch is not None
        claim = ruling.claim(self._node_id, self._epoch, self._env.clock.wall_ms())
        self._rule = await self._execute(claim)
        if self._rule is None:
            return self._wait_for("another broker became the controller meanwhile")
        log.info("This controller has /controller, with epoch %d", self._rule.epoch)
        image = self._publisher.image
        if self.channels is not None:
            self.channels.retain({})  # their requests have an earlier epoch
        protocol = parse_protocol_version(version_name(image.metadata_version))
        self.channels = ControlChannels(
            Sender(self._node_id, protocol, self._listener, is_kraft=True),
            self._env.clock,
            connect=self._connect,
            login=self._login,
            timeout_ms=self._timeout_ms,
            brokers=lambda: self._receivers,
            put=self._on_response,
            on_worked=self._on_worked,
            spawn=self._spawn,
        )
        copied = image.migration == MigrationState.MIGRATION
        return self._move_to(DriverState.SYNCHRONIZE if copied else DriverState.COPY)

    async def _copy(self) -> bool:
        """Copy all metadata in one transaction, unless an earlier attempt has done it."""
        if self._controller.core.latest.migration != MigrationState.MIGRATION:
            await self._append_copy()
        image = self._publisher.image
        if image.migration != MigrationState.MIGRATION:
            return self._wait_for("the copied metadata is not committed yet")
        await self._record_offset(image.offset, image.epoch)
        return self._move_to(DriverState.SYNCHRONIZE)

    async def _append_copy(self) -> None:
        """Read everything, then write it: a znode that cannot be copied leaves no transaction."""
        assert self._epoch is not None
        begun = self._env.clock.mono_ms()
        tree = await read_tree(self._session.client, on_worked=self._on_worked)
        records: list[VersionedRecord] = []
        if self._controller.core.in_transaction:  # an earlier attempt timed out
            records.append((AbortTransactionRecord(reason="Another attempt"), 0))
        records.append((BeginTransactionRecord(name=TRANSACTION_NAME), 0))
        image = EMPTY_IMAGE
        try:
            for batch in batches_of(tree, self._env.entropy):
                for record, _ in batch:
                    image = apply(image, record)
                records += batch
                await self._on_worked(len(batch))
        except (ZnodeError, InvariantBroken) as error:
            # No controller could ever replay it.
            raise StartRefused(f"the metadata cannot be copied from ZooKeeper: {error}") from error
        state = ZkMigrationStateRecord(zk_migration_state=MigrationState.MIGRATION)
        records += [(state, 0), (EndTransactionRecord(), 0)]
        for start in range(0, len(records), RECORDS_PER_APPEND):
            part = records[start : start + RECORDS_PER_APPEND]
            await self._controller.append(part, epoch=self._epoch)
        took_ms = self._env.clock.mono_ms() - begun
        log.info("Copied %d records from ZooKeeper in %d ms", len(records), took_ms)

    async def _synchronize(self) -> bool:
        assert self._rule is not None
        assert self._epoch is not None
        await self._controller.elect_after_copy(epoch=self._epoch)
        image = self._publisher.image
        self._changed = set()
        tree = await read_tree(self._session.client, on_worked=self._on_worked)
        present = await self._image_of(tree)
        removals = tuple(
            Remove(f"{PENDING_DELETIONS}/{name}") for name in tree.children(PENDING_DELETIONS)
        )
        pending = [Change((removals,), is_removal=True)] if removals else []
        differences = changes_between(present, image, None, self._rule.kraft_epoch)
        count = await self._write(chain(pending, differences))
        log.info("Made ZooKeeper equal to the metadata log: %d differences", count)
        await self._record_offset(image.offset, image.epoch)
        await self._send(image, propagation.full_requests(image, self._rule.epoch))
        self._known = image
        return self._move_to(DriverState.DUAL_WRITE)

    async def _write_changes(self) -> bool:
        assert self._rule is not None
        before, image = self._known, self._publisher.image
        if image is before:
            return False
        changed, self._changed = self._changed, set()
        try:
            changes = changes_between(before, image, changed, self._rule.kraft_epoch)
            await self._write(changes)
            await self._record_offset(image.offset, image.epoch)
        except BaseException:
            self._changed = None
            raise
        requests = propagation.changed_requests(before, image, changed, self._rule.epoch)
        await self._send(image, requests)
        self._known, self.waits_for, self._pause_ms = image, "", PAUSE_MS
        return True

    async def _image_of(self, tree: "ZnodeTree") -> ClusterImage:
        """The image of what ZooKeeper has; see `as_stored` of `batches_of`."""
        image = EMPTY_IMAGE
        try:
            for batch in batches_of(tree, self._env.entropy, as_stored=True):
                for record, _ in batch:
                    image = apply(image, record)
                await self._on_worked(len(batch))
        except (ZnodeError, InvariantBroken) as error:
            text = f"ZooKeeper cannot be compared: {error}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error
        return image

    async def _finish(self, steps: "Generator[int, None, T]") -> T:
        """Run work to its end; other tasks run between its pieces."""
        while True:
            try:
                units = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            await self._on_worked(units)

    # ---- ZooKeeper and brokers

    async def _execute(self, steps: "Steps[T]") -> T:
        return await execute(self._session.client, steps, lambda _: None, on_worked=self._on_worked)

    async def _write(self, changes: "Iterable[Change | None]") -> int:
        assert self._rule is not None
        return await self._execute(ruling.write(self._rule, changes))

    async def _record_offset(self, offset: int, epoch: int) -> None:
        assert self._rule is not None
        self._rule = await self._execute(ruling.record_offset(self._rule, offset, epoch))

    async def _send(self, image: ClusterImage, requests: propagation.Requests) -> None:
        """Queue requests for brokers in ZooKeeper mode; close the channels of all others."""
        assert self.channels is not None
        self._receivers = propagation.receivers_of(image)
        self.channels.retain(self._receivers)
        for some in requests:
            if some is None:
                await self._on_worked(PIECE_MAX)
            else:
                self.channels.send(some)

    def _on_response(self, event: Any) -> None:
        """Log errors: the broker repeats what it failed to do when it registers again."""
        codes = {event.error, *event.errors.values()} - {ErrorCode.NONE}
        for code in sorted(codes):
            name = ErrorCode(code).name
            log.warning("Broker %d: %s: %s", event.broker, type(event).__name__, name)


def _ids(tree: "ZnodeTree") -> list[int]:
    return [int(name) for name in tree.children(BROKER_IDS) if name.isdecimal()]

"""A broker in ZooKeeper mode that is being migrated to KRaft (KIP-866): two registrations at once.

    /brokers/ids/N → RUNNING → stop → SHUT_DOWN
    registration with the quorum → heartbeats, as an observer of the metadata log

It serves from the first registration on. The second one is tried again without an end, because the
controllers may start later. The controlled shutdown goes to the kind of controller that rules. As
in Kafka 3.9 (`KafkaServer`) the broker follows the requests of the controller only; it reads the
metadata log because heartbeats contain the offset.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.server.broker.lifecycle import BrokerState
from sparkraft.server.identity import StartRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparkraft.base.ids import Uuid
    from sparkraft.server.broker.lifecycle import BrokerLifecycle
    from sparkraft.server.zookeeper.controllers import KnownController
    from sparkraft.server.zookeeper.lifecycle import ZooKeeperLifecycle

log = logging.getLogger(__name__)

REGISTRATION_RETRY_MS = 500
"""Between attempts to register with the quorum."""


class NoReplicas:
    """The metadata log assigns no replicas to a broker in ZooKeeper mode."""

    async def settle(self) -> None:
        """Nothing to wait for."""

    async def set_strays_aside(self) -> None:
        """A full LeaderAndIsr does it."""


class MigratingLifecycle:
    """See the module docstring, and `Lifecycle`."""

    def __init__(
        self,
        zookeeper: "ZooKeeperLifecycle",
        quorum: "BrokerLifecycle",
        controller: "KnownController",
        spawn: "Callable[[Coroutine[Any, Any, Any], str], asyncio.Task[Any]]",
    ) -> None:
        """Prepare.

        Args:
            zookeeper: registers in ZooKeeper.
            quorum: registers with the quorum.
            controller: of the cluster.
            spawn: runs a task of the node.
        """
        self._zookeeper = zookeeper
        self._quorum = quorum
        self._controller = controller
        self._spawn = spawn
        self._is_stopping = False
        self.settled = zookeeper.settled
        self.running = zookeeper.running

    @property
    def state(self) -> BrokerState:
        """See `Lifecycle`."""
        state = self._zookeeper.state
        is_leaving = self._is_stopping and state is BrokerState.RUNNING
        return BrokerState.CONTROLLED_SHUTDOWN if is_leaving else state

    @property
    def is_registered(self) -> bool:
        """Whether the present session has registered the broker in ZooKeeper."""
        return self._zookeeper.is_registered

    @property
    def broker_epoch(self) -> int:
        """-1, so that the next registration with a quorum does not claim a clean stop."""
        return -1

    async def run(self) -> None:
        """Register twice, wait for `stop`, shut down.

        Raises:
            StartRefused: another broker has the id or an endpoint.
        """
        beating = self._spawn(self._beat(), "registration with the quorum")
        try:
            await self._zookeeper.run()
        finally:
            beating.cancel()

    def stop(self) -> None:
        """See `Lifecycle`."""
        self._is_stopping = True
        is_kraft = self._controller.is_kraft
        if is_kraft and self._quorum.running.is_set():
            self._quorum.stop()  # `_beat` continues when the leaderships have moved
        else:
            self._zookeeper.stop(has_left=is_kraft)

    def report_offline(self, directory: "Uuid | None") -> None:
        """Nothing: a migrating broker stops when a log directory fails (KAFKA-16431)."""

    async def _beat(self) -> None:
        """Register with the quorum, and send heartbeats until `stop`."""
        reason = ""
        while not self._is_stopping:
            try:
                await self._quorum.run()
            except (StartRefused, KafkaError) as error:
                if str(error) != reason:
                    reason = str(error)
                    log.warning("This broker is not registered with the quorum yet: %s", reason)
                await asyncio.sleep(REGISTRATION_RETRY_MS / 1000)
            else:
                self._zookeeper.stop(has_left=True)

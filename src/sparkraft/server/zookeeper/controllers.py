"""The controller as a broker in ZooKeeper mode knows it: from the last UpdateMetadata.

It is a broker, or a KRaft controller that migrates the cluster (KIP-866). As in Kafka 3.9
(`MetadataCacheControllerNodeProvider`), requests go to a broker's control.plane.listener.name if it
is set, else to its inter-broker listener, and in a migration to the leader of the quorum.
Between an election and the first UpdateMetadata they reach the former controller, which refuses
them with NOT_CONTROLLER; the `ControllerChannel` then looks here again.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.security.login import Credentials
    from sparkraft.server.broker.controller_channel import ControllerTarget
    from sparkraft.server.zookeeper.images import ZooKeeperImages
    from sparkraft.tls.dialing import Connect


class ControllerNode(NamedTuple):
    """The controller and its endpoint."""

    id: int
    host: str
    port: int


class ControllerAndEpoch(NamedTuple):
    """As the quorum's `LeaderAndEpoch`."""

    leader_id: int | None
    epoch: int


class KnownController:
    """See the module docstring.

    Attributes:
        id: of the controller; -1 if it is not known.
        is_kraft: whether it is a KRaft controller.
    """

    def __init__(self) -> None:
        self.id = -1
        self.is_kraft = False
        self._listeners: list[Callable[[int], None]] = []

    def add_listener(self, listener: "Callable[[int], None]") -> None:
        """Call `listener` with each new controller's id."""
        self._listeners.append(listener)

    def on_update(self, controller_id: int, *, is_kraft: bool) -> None:
        """Note the controller of an UpdateMetadata."""
        if (controller_id, is_kraft) == (self.id, self.is_kraft):
            return
        self.id, self.is_kraft = controller_id, is_kraft
        for listener in self._listeners:
            listener(controller_id)


class BrokerTarget:
    """The controller among the brokers; none while a KRaft controller rules."""

    takes_envelopes = False
    """A broker of ours serves none; one of Kafka 3.9 takes the requests themselves, too."""

    def __init__(
        self,
        known: KnownController,
        images: "ZooKeeperImages",
        listener: str,
        *,
        connect: "Connect",
        login: "Credentials | None",
    ) -> None:
        """Follow `known`.

        Args:
            known: the controller.
            images: with the endpoints of brokers.
            listener: of brokers, for such requests.
            connect: see `ControllerTarget`.
            login: likewise.
        """
        self._known = known
        self._images = images
        self._listener = listener
        self.connect = connect
        self.login = login

    @property
    def leader_and_epoch(self) -> ControllerAndEpoch:
        """See `ControllerTarget`."""
        known = self._known
        return ControllerAndEpoch(None if known.id < 0 or known.is_kraft else known.id, -1)

    @property
    def leader_node(self) -> ControllerNode | None:
        """Its endpoint; None if it is not live."""
        known = self._known.id
        broker = self._images.image.brokers.get(known)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        return None if endpoint is None else ControllerNode(known, endpoint.host, endpoint.port)

    def describe(self) -> str:
        """See `ControllerTarget`."""
        node = self.leader_node
        if node is None:
            return (
                f"No endpoint of controller {self._known.id} is known"
                if self._known.id >= 0
                else ("No controller has sent UpdateMetadata yet")
            )
        return f"The controller is broker {node.id} at {node.host}:{node.port}"


class MigratingTarget:
    """A broker, or the leader of the quorum once it rules."""

    def __init__(
        self, known: KnownController, broker: "ControllerTarget", quorum: "ControllerTarget"
    ) -> None:
        """Choose by what `known` is."""
        self._known = known
        self._broker = broker
        self._quorum = quorum

    @property
    def _present(self) -> "ControllerTarget":
        return self._quorum if self._known.is_kraft else self._broker

    @property
    def leader_and_epoch(self) -> Any:
        """See `ControllerTarget`."""
        return self._present.leader_and_epoch

    @property
    def leader_node(self) -> Any:
        """See `ControllerTarget`."""
        return self._present.leader_node

    @property
    def connect(self) -> "Connect":
        """See `ControllerTarget`."""
        return self._present.connect

    @property
    def login(self) -> "Credentials | None":
        """See `ControllerTarget`."""
        return self._present.login

    @property
    def takes_envelopes(self) -> bool:
        """See `ControllerTarget`."""
        return self._present.takes_envelopes

    def describe(self) -> str:
        """See `ControllerTarget`."""
        return self._present.describe()

"""The controller as a broker in ZooKeeper mode knows it: from the last UpdateMetadata.

As Kafka 3.9 (`MetadataCacheControllerNodeProvider`), requests go to control.plane.listener.name if
it is set, else to its inter-broker listener.
Between an election and the first UpdateMetadata they reach the former controller, which refuses
them with NOT_CONTROLLER; the `ControllerChannel` then looks here again.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.server.zookeeper.images import ZooKeeperImages


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
        id: the controller's broker id; -1 if it is not known.
    """

    def __init__(self, images: "ZooKeeperImages", listener: str) -> None:
        self.id = -1
        self._images = images
        self._listener = listener
        self._listeners: list[Callable[[int], None]] = []

    def add_listener(self, listener: "Callable[[int], None]") -> None:
        """Call `listener` with each new controller's id."""
        self._listeners.append(listener)

    def on_update(self, controller_id: int) -> None:
        """Note the controller of an UpdateMetadata."""
        if controller_id == self.id:
            return
        self.id = controller_id
        for listener in self._listeners:
            listener(controller_id)

    # ---- as `ControllerChannel` reads it

    @property
    def leader_and_epoch(self) -> ControllerAndEpoch:
        return ControllerAndEpoch(None if self.id < 0 else self.id, -1)

    @property
    def leader_node(self) -> ControllerNode | None:
        """Its endpoint; None if it is not live."""
        broker = self._images.image.brokers.get(self.id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        return None if endpoint is None else ControllerNode(self.id, endpoint.host, endpoint.port)

    def describe(self) -> str:
        """A sentence about it, for clients."""
        node = self.leader_node
        if node is None:
            return (
                f"No endpoint of controller {self.id} is known"
                if self.id >= 0
                else ("No controller has sent UpdateMetadata yet")
            )
        return f"The controller is broker {node.id} at {node.host}:{node.port}"

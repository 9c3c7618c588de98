"""The broker epoch of a broker in ZooKeeper mode that also registers with a quorum (KIP-866)."""

from typing import TYPE_CHECKING

from sparkraft.server.broker.broker_epoch import BrokerEpoch

if TYPE_CHECKING:
    from sparkraft.server.zookeeper.controllers import KnownController


class MigratingBrokerEpoch(BrokerEpoch):
    """The epoch that the present controller knows: of the quorum, or of ZooKeeper.

    Kafka 3.9: `ZkBrokerEpochManager`.

    Attributes:
        zookeeper: of the registration in ZooKeeper.
        quorum: of the registration with the quorum.
    """

    __slots__ = ("_controller", "quorum", "zookeeper")

    def __init__(self, controller: "KnownController") -> None:
        super().__init__()
        self._controller = controller
        self.zookeeper = BrokerEpoch()
        self.quorum = BrokerEpoch()

    @property
    def value(self) -> int:
        """See `BrokerEpoch`."""
        return (self.quorum if self._controller.is_kraft else self.zookeeper).value

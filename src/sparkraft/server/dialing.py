"""How a node connects to other nodes: secured as the listeners that it connects to.

This node's configs of such a listener (`listener.name.<name>.ssl.*`) give the certificate that it
presents and the authorities that it trusts. The peer's certificate must be for the host it
advertises, unless `ssl.endpoint.identification.algorithm` is empty.
"""

from typing import TYPE_CHECKING

from sparkraft.tls.dialing import TlsDialer

if TYPE_CHECKING:
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Network
    from sparkraft.server.node_tls import NodeTls
    from sparkraft.tls.dialing import Connect


class NodeDialing:
    """See the module docstring.

    Attributes:
        to_brokers: connects to the inter-broker listeners of other nodes.
        to_controllers: connects to their controller listeners; not in plain ZooKeeper mode.
        to_zookeeper_controller: in ZooKeeper mode, connects brokers and the controller among them,
            to control.plane.listener.name if it is set.
    """

    def __init__(self, config: "NodeConfig", network: "Network", tls: "NodeTls") -> None:
        self._network = network
        self._tls = tls
        self.to_brokers: Connect = network.connect
        if config.is_broker or config.migrates:
            self.to_brokers = self._to(config.inter_broker_listener_name)
        self.to_controllers: Connect = network.connect
        if config.controller_listener_names:
            self.to_controllers = self._to(config.controller_listener_names[0])
        self.to_zookeeper_controller: Connect = network.connect
        if config.is_zookeeper:
            self.to_zookeeper_controller = self._to(config.control_plane_listener_name)

    def _to(self, listener: str) -> "Connect":
        if self._tls.settings_of(listener) is None:
            return self._network.connect
        return TlsDialer(self._tls.client_context_of(listener), self._network.connect).connect

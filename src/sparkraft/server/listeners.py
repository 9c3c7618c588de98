"""A node's listeners: binds them, applies connection limits, knows their advertised addresses."""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.server.config import TELEMETRY_ENABLE, ConfigError, ListenerAddress
from sparkraft.server.limits import connections_max, per_ip_overrides
from sparkraft.server.network.connection_rate import ConnectionRates
from sparkraft.server.network.gathering import Gathering
from sparkraft.server.network.listener import Limits, Listener
from sparkraft.server.network.loop_budget import LoopBudget
from sparkraft.server.network.request_memory import RequestMemory, bound_of
from sparkraft.server.network.response_memory import ResponseMemory
from sparkraft.server.network.tls import ListenerTls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkraft.security.authorizer import Authorizer
    from sparkraft.security.client_quotas import ClientQuotas
    from sparkraft.server.broker.dynamic_configs import ConnectionConfigs
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.server.loop_monitor import LoopMonitor
    from sparkraft.server.node_tls import NodeTls
    from sparkraft.server.sasl_config import ListenerSasl


class NodeListeners:
    """See the module docstring.

    Attributes:
        all: in the order of `listeners`, once bound.
        ports: listener name → port it is bound to.
        rates: limits of max.connection.creation.rate.
    """

    def __init__(self, config: "NodeConfig", env: "Env", monitor: "LoopMonitor") -> None:
        self._config = config
        self._monitor = monitor
        self._env = env
        self._budget = LoopBudget(env.clock, env.thread_s)
        self._gathering = Gathering(self._budget)
        self.all: list[Listener] = []
        self.ports: dict[str, int] = {}
        self.rates = ConnectionRates(config)

    async def bind(  # noqa: PLR0913 (called in one place)
        self,
        limits: Limits,
        *,
        sasl: "Mapping[str, ListenerSasl]",
        tls: "NodeTls",
        authorizer: "Authorizer",
        fail: "Callable[[BaseException], None]",
        translate: "Callable[[Exception, str], KafkaError]",
        on_unreadable: "Callable[[], None]",
    ) -> None:
        """Take the ports without serving yet.

        Args:
            limits: as returned by `limits_of`.
            sasl: how the connections of listeners authenticate, by their names.
            tls: the TLS of listeners.
            authorizer: decides for every session.
            fail: called when an invariant of ours is broken.
            translate: returns a client's error for an exception other than KafkaError.
            on_unreadable: called when records of a response cannot be read from their file.

        Raises:
            OSError: a port is taken.
        """
        bound = bound_of(self._config)
        of_nodes = RequestMemory(bound)
        memory = RequestMemory(bound, of_nodes)
        responses = ResponseMemory(self._config.number("sparkraft.queued.max.response.bytes"))
        for address in self._config.listeners:
            controller_listener = address.name in self._config.controller_listener_names
            listener = Listener(
                address.name,
                controller_listener=controller_listener,
                limits=limits,
                clock=self._env.clock,
                budget=self._budget,
                monitor=self._monitor,
                on_invariant_broken=fail,
                security_protocol=address.security_protocol,
                sasl=sasl.get(address.name),
                tls=listener_tls(tls, address.name),
                authorizer=authorizer,
                rates=self.rates.of(address.name),
                memory=of_nodes if controller_listener else memory,
                response_memory=responses,
                gathering=self._gathering,
                translate=translate,
                on_unreadable=on_unreadable,
                zookeeper=self._config.is_zookeeper,
                telemetry=self._config.flag(TELEMETRY_ENABLE),
            )
            self.all.append(listener)
            await listener.bind(self._env.network, address.host or None, address.port)
            self.ports[address.name] = listener.port

    def advertised(
        self, *, controller: bool, config: "NodeConfig | None" = None
    ) -> tuple[ListenerAddress, ...]:
        """The advertised listeners of one kind, with the ports that were 0 filled in.

        Args:
            controller: whether those of the quorum, or those of brokers and clients.
            config: with other advertised.listeners than the node started with.
        """
        config = config or self._config
        names = set(config.controller_listener_names)
        return tuple(
            ListenerAddress(
                name=a.name,
                host=a.host,
                port=a.port or self.ports[a.name],
                security_protocol=a.security_protocol,
            )
            for a in config.advertised_listeners
            if (a.name in names) == controller and a.name in self.ports
        )

    def limit(self, configs: "ConnectionConfigs", overrides: "Mapping[str, int]") -> None:
        """Apply dynamic limits to new connections.

        Args:
            configs: the values in force.
            overrides: max.connections.per.ip.overrides, by address.
        """
        self.rates.limit(configs.number, configs.number_of)
        connections = configs.number("max.connections")
        for listener in self.all:
            listener.limit(
                connections_max=connections_max(connections, listeners=len(self.all)),
                connections_per_ip_max=configs.number("max.connections.per.ip"),
                per_ip_overrides=overrides,
            )

    async def serve(
        self, services: Any, *, controller: bool, quotas: "ClientQuotas | None" = None
    ) -> None:
        """Accept connections on the listeners of one kind, with `services` for their handlers."""
        for listener in self.all:
            if listener.controller_listener == controller:
                await listener.serve(services, quotas)

    async def close_brokers(self) -> None:
        """Close the broker listeners; controllers still need theirs to hand over."""
        for listener in self.all:
            if not listener.controller_listener:
                await listener.close()

    async def close(self) -> None:
        """Close all listeners; harmless for those already closed."""
        for listener in self.all:
            await listener.close()


def listener_tls(tls: "NodeTls", listener: str) -> ListenerTls | None:
    """The TLS of a listener; None if it has none."""
    settings = tls.settings_of(listener)
    if settings is None:
        return None
    return ListenerTls(tls.server_context_of(listener), settings.mapping_rules)


def limits_of(config: "NodeConfig") -> Limits:
    """The connection limits of server.properties.

    Raises:
        ConfigError: max.connections.per.ip.overrides is invalid.
        FileLimitTooLow: the process may open too few files.
    """
    try:
        overrides = per_ip_overrides(config.text("max.connections.per.ip.overrides"))
    except KafkaError as error:
        raise ConfigError(error.detail) from error
    return Limits(
        connections_max=connections_max(
            config.number("max.connections"), listeners=len(config.listeners)
        ),
        connections_per_ip_max=config.number("max.connections.per.ip"),
        per_ip_overrides=overrides,
        request_bytes_max=config.number("socket.request.max.bytes"),
        idle_ms_max=config.number("connections.max.idle.ms"),
        handshakes_max=config.number("sparkraft.unauthenticated.connections.max"),
    )

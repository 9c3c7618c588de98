"""SASL on listeners: which mechanisms, with whose credentials, within which limits.

    listener.name.<listener>.<mechanism>.sasl.jaas.config    users of a mechanism (server side), and
                                                             the credentials of this node itself
    listener.name.<listener>.<key> or <key>                  everything else

Names of listeners and mechanisms are in lower case in keys. As in Kafka, a server ignores
`sasl.jaas.config` without listener and mechanism. Any value that is not understood stops the start.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from sparkraft.kerberos.login import KerberosLogin
from sparkraft.metadata.configs import BROKER_CONFIGS, parse_value
from sparkraft.metadata.configs.broker import listener_key
from sparkraft.security.jaas import JaasError, LoginModule, parse_jaas
from sparkraft.security.login import Credentials, Login, login_of
from sparkraft.security.plain import PlainServer, plain_users
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.sasl import GSSAPI, MECHANISMS, OAUTHBEARER, PLAIN, SaslServer
from sparkraft.security.scram import BY_NAME
from sparkraft.server.bearer_config import bearer_login_of
from sparkraft.server.config import ConfigError
from sparkraft.server.kerberos_config import gssapi_on, kerberos_login_of, user_of

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.server.config import ListenerAddress, NodeConfig
    from sparkraft.server.oauth_config import OAuthListeners
    from sparkraft.server.scram_logins import ScramLogins

SASL_PROTOCOLS = frozenset({SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSasl:
    """How the connections of one listener authenticate.

    Attributes:
        mechanisms: name → begins an exchange.
        receive_bytes_max: `sasl.server.max.receive.size`: the longest frame before authentication.
        failure_delay_ms: `connection.failed.authentication.delay.ms`.
        unauthenticated_max: connections that may be authenticating at once.
        reauth_ms_max: mechanism → `connections.max.reauth.ms`; 0: sessions last (KIP-368).
    """

    mechanisms: Mapping[str, Callable[[], SaslServer]]
    receive_bytes_max: int
    failure_delay_ms: int
    unauthenticated_max: int
    reauth_ms_max: Mapping[str, int]


def sasl_of_listeners(
    config: "NodeConfig", scram: "ScramLogins", clock: "Clock"
) -> dict[str, ListenerSasl]:
    """The SASL settings of each listener that uses SASL, by its name.

    Raises:
        ConfigError: a mechanism is unknown or lacks its login module, or the credentials for other
            nodes are missing.
    """
    mechanisms = _Mechanisms(config, scram, clock)
    found = {
        address.name: _listener_sasl(config, address, mechanisms)
        for address in config.listeners
        if address.security_protocol in SASL_PROTOCOLS
    }
    inter_broker_login(config)
    if config.is_zookeeper:
        control_plane_login(config)
    if not config.is_zookeeper or config.is_migrating_broker:
        controller_login(config)
    return found


def _listener_sasl(
    config: "NodeConfig", address: "ListenerAddress", mechanisms: "_Mechanisms"
) -> ListenerSasl:
    names = mechanisms_of(config, address.name)
    if not names:
        raise ConfigError(
            f"listener {address.name} uses SASL, but sasl.enabled.mechanisms is empty"
        )
    return ListenerSasl(
        mechanisms={name: mechanisms.beginning(address.name, name) for name in names},
        receive_bytes_max=config.number_of(address.name, "sasl.server.max.receive.size"),
        failure_delay_ms=config.number("connection.failed.authentication.delay.ms"),
        unauthenticated_max=config.number("sparkraft.unauthenticated.connections.max"),
        reauth_ms_max={name: _reauth_ms_max(config, address.name, name) for name in names},
    )


def mechanisms_of(config: "NodeConfig", listener: str) -> tuple[str, ...]:
    """The mechanisms that a listener with SASL offers."""
    return _words(config, listener, "sasl.enabled.mechanisms")


def _reauth_ms_max(config: "NodeConfig", listener: str, mechanism: str) -> int:
    """The value for the mechanism on the listener, else for the listener, else the node's."""
    key = "connections.max.reauth.ms"
    text = config.properties.get(listener_key(listener, f"{mechanism.lower()}.{key}"))
    if text is None:
        return config.number_of(listener, key)
    value = parse_value(BROKER_CONFIGS[key], text)
    assert isinstance(value, int)
    return value


def inter_broker_login(config: "NodeConfig") -> Credentials | None:
    """The credentials with which this broker connects to others; None: it does not authenticate.

    As in Kafka, they are in the inter-broker listener's login module for
    sasl.mechanism.inter.broker.protocol, or with OAUTHBEARER in `sasl.oauthbearer.*`.

    Raises:
        ConfigError: they are missing, or the listener does not offer the mechanism.
    """
    name = config.inter_broker_listener_name
    return _node_login(config, name, "sasl.mechanism.inter.broker.protocol")


def control_plane_login(config: "NodeConfig") -> Credentials | None:
    """The credentials between brokers and the controller in ZooKeeper mode; None as above.

    As in Kafka 3.9 (`MetadataCacheControllerNodeProvider`), with
    sasl.mechanism.inter.broker.protocol on control.plane.listener.name, if it is set.

    Raises:
        ConfigError: as above.
    """
    name = config.control_plane_listener_name
    return _node_login(config, name, "sasl.mechanism.inter.broker.protocol")


def controller_login(config: "NodeConfig") -> Credentials | None:
    """The credentials with which this node connects to controllers; None as above.

    They are in the login module of the first of controller.listener.names for
    sasl.mechanism.controller.protocol, also on nodes that are only brokers.

    Raises:
        ConfigError: as above, or the mechanism is SCRAM: controllers find its credentials in the
            metadata log, which they have only after they have elected a leader.
    """
    key = "sasl.mechanism.controller.protocol"
    login = _node_login(config, config.controller_listener_names[0], key)
    if login is not None and login.mechanism in BY_NAME:
        raise ConfigError(
            f"{key}={login.mechanism}: controllers cannot authenticate each other by SCRAM, since "
            "its users are in the metadata log, which needs an elected controller; use another"
        )
    return login


def _node_login(config: "NodeConfig", listener: str, key: str) -> Credentials | None:
    """The credentials of this node for other nodes' `listener`, with the mechanism in `key`."""
    if not config.protocol_of(listener).uses_sasl:
        return None
    mechanism = config.text(key)
    offered = {address.name for address in config.listeners}
    if listener in offered and mechanism not in mechanisms_of(config, listener):
        raise ConfigError(
            f"{key}={mechanism} is not in the sasl.enabled.mechanisms of listener {listener}"
        )
    try:
        module = login_module(config, listener, mechanism)
        if mechanism == GSSAPI:
            return kerberos_login_of(config, listener, module)
        if mechanism == OAUTHBEARER:
            return bearer_login_of(config, listener, module)
        login = login_of(mechanism, module)
    except JaasError as error:
        raise ConfigError(f"{key}={mechanism}: {error}") from None
    if login.by_token:
        raise ConfigError(
            f"{key}={mechanism}: nodes cannot authenticate with delegation tokens, which expire"
        )
    return login


def node_user(config: "NodeConfig", listener: str, login: Credentials) -> str | None:
    """The user as which other nodes know this one; None if the configuration does not say.

    Raises:
        ConfigError: no rule gives the user of its Kerberos principal.
    """
    if isinstance(login, Login):
        return login.user
    if isinstance(login, KerberosLogin):
        return user_of(config, listener, login)
    return None


class _Mechanisms:
    """The mechanisms of a node's listeners."""

    def __init__(self, config: "NodeConfig", scram: "ScramLogins", clock: "Clock") -> None:
        self._config = config
        self._scram = scram
        self._clock = clock

    @cached_property
    def _oauth(self) -> "OAuthListeners":
        """Loaded at first use: most nodes do not need the libraries."""
        from sparkraft.server.oauth_config import OAuthListeners

        return OAuthListeners(self._config, self._clock)

    def beginning(self, listener: str, name: str) -> Callable[[], SaslServer]:
        """Return the start of an exchange; ConfigError if the listener cannot have it."""
        if name not in MECHANISMS:
            raise ConfigError(
                f"listener {listener}: SASL mechanism {name} is not implemented; set "
                f"sasl.enabled.mechanisms to some of {', '.join(MECHANISMS)}"
            )
        module = login_module(self._config, listener, name)
        if name == PLAIN:
            return partial(PlainServer, plain_users(module))
        if name == OAUTHBEARER:
            return self._oauth.begin_on(listener)
        if name == GSSAPI:
            return gssapi_on(self._config, listener, module)
        return partial(self._scram.begin, BY_NAME[name])


def login_module(config: "NodeConfig", listener: str, mechanism: str) -> LoginModule:
    """The login module of a mechanism on a listener.

    Raises:
        ConfigError: it is missing or invalid.
    """
    key = listener_key(listener, f"{mechanism.lower()}.sasl.jaas.config")
    text = config.properties.get(key)
    if text is None:
        raise ConfigError(f"{key} is missing: it names the users of SASL mechanism {mechanism}")
    try:
        module = parse_jaas(text)
        module.check_mechanism(mechanism)
    except JaasError as error:
        raise ConfigError(f"{key}: {error}") from None
    return module


def _words(config: "NodeConfig", listener: str, key: str) -> tuple[str, ...]:
    text = config.properties.get(listener_key(listener, key))
    value = config[key] if text is None else parse_value(BROKER_CONFIGS[key], text)
    assert isinstance(value, tuple), key
    return tuple(dict.fromkeys(word for word in value if word))

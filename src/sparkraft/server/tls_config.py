"""TLS on listeners: the `ssl.*` configs of each.

    listener.name.<listener>.<key>    dynamic, of this broker; then in server.properties
    <key>                             otherwise

Names of listeners are in lower case there.

Any value that cannot be honored stops the start.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkraft.metadata.configs.broker import listener_key
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.tls_settings import (
    TlsConfigError,
    TlsSettings,
    check_listener,
    read_tls_settings,
)
from sparkraft.server.config import ConfigError

if TYPE_CHECKING:
    from sparkraft.server.config import NodeConfig


HTTP_LISTENER = "HTTP"
"""The name of `sparkraft.http.listener` in keys: `listener.name.http.ssl.keystore.location`."""


def serves_https(config: "NodeConfig") -> bool:
    """Whether `sparkraft.http.listener` is https."""
    return config.text("sparkraft.http.listener").lower().startswith("https://")


def check_tls(config: "NodeConfig") -> None:
    """Raise `ConfigError` unless the TLS settings of all listeners are valid; reads no store."""
    for address in config.listeners:
        if address.security_protocol.uses_tls:
            try:
                check_listener(tls_settings_of(config, address.name))
            except TlsConfigError as error:
                raise ConfigError(f"listener {address.name}: {error}") from error
    if serves_https(config) and HTTP_LISTENER in {each.name for each in config.listeners}:
        raise ConfigError(
            f"listeners has {HTTP_LISTENER}, which is also the name of sparkraft.http.listener in "
            "listener.name.http.ssl.*; rename it"
        )
    for controller in config.controller_listener_names[:1]:
        if config.protocol_of(controller).uses_tls:
            tls_settings_of(config, controller)  # a broker connects to it without binding it


def tls_settings_of(
    config: "NodeConfig", listener: str, dynamic: Mapping[str, str] = MappingProxyType({})
) -> TlsSettings:
    """The settings of a listener, for both sides of its connections.

    Args:
        config: the static configs.
        listener: its name.
        dynamic: the dynamic configs of this broker, which win if they have the listener's prefix.

    Raises:
        ConfigError: a value is invalid, or values contradict each other.
    """
    try:
        return read_tls_settings(partial(_text, config, listener, dynamic))
    except TlsConfigError as error:
        raise ConfigError(f"listener {listener}: {error}") from error


def _text(config: "NodeConfig", listener: str, dynamic: Mapping[str, str], key: str) -> str | None:
    prefixed = listener_key(listener, key)
    own = dynamic.get(prefixed, config.properties.get(prefixed))
    if own is not None:
        return own
    if listener == HTTP_LISTENER and serves_https(config):
        return config.properties.get(key)
    if key == "ssl.client.auth" and config.protocol_of(listener) is SecurityProtocol.SASL_SSL:
        return None  # as in Kafka's ChannelBuilders: SASL authenticates there
    return config.properties.get(key)

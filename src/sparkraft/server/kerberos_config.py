"""GSSAPI on listeners and between nodes: the login module and the `sasl.kerberos.*` configs.

    listener.name.<listener>.gssapi.sasl.jaas.config    the node's principal and its keytab
    listener.name.<listener>.<key> or <key>             everything else

As in Kafka, one module has the key with which a node accepts clients and the one with which it
connects to other nodes.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sparkraft.kerberos.contexts import Acceptor, KerberosError, default_realm
from sparkraft.kerberos.login import (
    SERVICE_NAME,
    KerberosLogin,
    kerberos_login,
    keytab_of,
    service_principal,
)
from sparkraft.kerberos.renewal import renewal_policy
from sparkraft.metadata.configs import BROKER_CONFIGS, parse_value
from sparkraft.metadata.configs.broker import listener_key
from sparkraft.security.gssapi import GssapiServer
from sparkraft.security.jaas import JaasError, LoginModule
from sparkraft.security.kerberos_names import (
    RULES,
    PrincipalError,
    RuleError,
    ShortNames,
)
from sparkraft.security.sasl import GSSAPI
from sparkraft.server.config import ConfigError

if TYPE_CHECKING:
    from sparkraft.metadata.configs import ConfigValue
    from sparkraft.server.config import NodeConfig


def gssapi_on(
    config: "NodeConfig", listener: str, module: LoginModule
) -> Callable[[], GssapiServer]:
    """Return what begins an exchange on a listener; reads the keytab.

    Raises:
        ConfigError: a config is missing or invalid, or Kerberos cannot be used.
    """
    try:
        acceptor = Acceptor(service_principal(module), keytab_of(module))
    except (JaasError, KerberosError) as error:
        raise ConfigError(f"listener {listener}: {GSSAPI}: {error}") from None
    return partial(GssapiServer, acceptor.begin, _names(config, listener))


def kerberos_login_of(config: "NodeConfig", listener: str, module: LoginModule) -> KerberosLogin:
    """The credentials of this node for other nodes' `listener`.

    Raises:
        JaasError: an option of the login module or the service is missing.
        ConfigError: Kerberos cannot be used.
    """
    service = _value(config, listener, SERVICE_NAME)
    try:
        renewal = renewal_policy(lambda key: _text(config, listener, key))
        return kerberos_login(module, None if service is None else str(service), renewal)
    except KerberosError as error:
        raise ConfigError(f"listener {listener}: {error}") from None


def user_of(config: "NodeConfig", listener: str, login: KerberosLogin) -> str | None:
    """The user as which other nodes know this one; None if it is that of a ticket cache.

    Raises:
        ConfigError: no rule applies to its principal.
    """
    if login.principal is None:
        return None
    realm = "" if "@" in login.principal else f"@{_realm(listener)}"
    try:
        return _names(config, listener).user_of(login.principal + realm)
    except PrincipalError as error:
        raise ConfigError(f"listener {listener}: {error}") from None


def _names(config: "NodeConfig", listener: str) -> ShortNames:
    rules = _value(config, listener, RULES)
    assert isinstance(rules, tuple)
    try:
        return ShortNames([rule for rule in rules if rule], _realm(listener))
    except RuleError as error:
        raise ConfigError(f"listener {listener}: {error}") from None


def _realm(listener: str) -> str:
    try:
        return default_realm()
    except KerberosError as error:
        raise ConfigError(f"listener {listener}: {GSSAPI}: {error}") from None


def _text(config: "NodeConfig", listener: str, key: str) -> str | None:
    return config.properties.get(listener_key(listener, key), config.properties.get(key))


def _value(config: "NodeConfig", listener: str, key: str) -> "ConfigValue":
    text = config.properties.get(listener_key(listener, key))
    return config[key] if text is None else parse_value(BROKER_CONFIGS[key], text)

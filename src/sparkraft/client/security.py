"""How a client secures its connections: Kafka's `security.protocol`, `ssl.*` and `sasl.*`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from sparkraft.client.bearer_login import BEARER_KEYS, BearerError, bearer_login
from sparkraft.kerberos.contexts import KerberosError
from sparkraft.kerberos.login import SERVICE_NAME, kerberos_login
from sparkraft.security.jaas import JaasError, parse_jaas
from sparkraft.security.login import Credentials, login_of
from sparkraft.security.protocols import SecurityProtocol, implemented_names, is_implemented
from sparkraft.security.sasl import GSSAPI, OAUTHBEARER
from sparkraft.security.tls_settings import TlsConfigError, TlsSettings, read_tls_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.tls.dialing import Connect


SASL_KEYS = (
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.kerberos.service.name",
    *BEARER_KEYS,
)
"""The `sasl.*` configs of Kafka's clients that have an effect."""


ALLOWING: Final = "SPARKRAFT_OAUTHBEARER_ALLOWED_URLS"
"""Comma-separated URLs of tokens; Kafka: the system property
`org.apache.kafka.sasl.oauthbearer.allowed.urls`."""


class SecurityConfigError(ValueError):
    """A client cannot be secured like this; the message names the configs."""


def secured_connect(properties: Mapping[str, str]) -> Connect | None:
    """Return the `connect` of a client's connections; None: plain ones of the running loop.

    Args:
        properties: a client's configs.

    Raises:
        SecurityConfigError: a value is invalid or not supported, or a store cannot be used.
    """
    settings = tls_settings_of(properties)
    if settings is None:
        return None
    from sparkraft.tls.contexts import client_context
    from sparkraft.tls.dialing import TlsDialer

    try:
        context = client_context(settings)
    except TlsConfigError as error:
        raise SecurityConfigError(str(error)) from error
    return TlsDialer(lambda: context).connect


def tls_settings_of(properties: Mapping[str, str]) -> TlsSettings | None:
    """A client's `ssl.*` configs; None if its connections are not encrypted.

    Raises:
        SecurityConfigError: a value is invalid or not supported.
    """
    if not protocol_of(properties).uses_tls:
        return None
    try:
        return read_tls_settings(properties.get)
    except TlsConfigError as error:
        raise SecurityConfigError(str(error)) from error


def login_of_properties(properties: Mapping[str, str]) -> Credentials | None:
    """A client's `sasl.*` configs: its credentials; None if its protocol does not use SASL.

    Raises:
        SecurityConfigError: they are missing or invalid, or of a mechanism we do not implement. The
            text has no value of `sasl.jaas.config`.
    """
    protocol = protocol_of(properties)
    if not protocol.uses_sasl:
        return None
    text = properties.get("sasl.jaas.config")
    if text is None:
        raise SecurityConfigError(f"security.protocol={protocol.name} needs sasl.jaas.config")
    mechanism = properties.get("sasl.mechanism", GSSAPI)
    try:
        module = parse_jaas(text)
        if mechanism == OAUTHBEARER:
            allowed = {each.strip() for each in os.environ.get(ALLOWING, "").split(",")}
            allowing = f"the environment variable {ALLOWING}"
            return bearer_login(properties.get, module, allowed=allowed, allowing=allowing)
        if mechanism == GSSAPI:
            return kerberos_login(module, properties.get(SERVICE_NAME))
        return login_of(mechanism, module)
    except JaasError as error:
        raise SecurityConfigError(f"sasl.jaas.config: {error}") from None
    except (BearerError, KerberosError) as error:
        raise SecurityConfigError(str(error)) from None


def protocol_of(properties: Mapping[str, str]) -> SecurityProtocol:
    """A client's `security.protocol`; SecurityConfigError if it is not implemented."""
    name = properties.get("security.protocol", SecurityProtocol.PLAINTEXT.name).strip().upper()
    if not is_implemented(name):
        raise SecurityConfigError(
            f"security.protocol={name} is not implemented, only {implemented_names()}"
        )
    return SecurityProtocol[name]

"""How a client secures its connections: Kafka's `security.protocol`, `ssl.*` and `sasl.*`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from sparkraft.client.bearer_login import BEARER_KEYS, Allowance, BearerError, bearer_login
from sparkraft.kerberos.contexts import KerberosError
from sparkraft.kerberos.login import SERVICE_NAME, kerberos_login
from sparkraft.kerberos.renewal import RENEWAL_KEYS, renewal_policy
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
    SERVICE_NAME,
    *RENEWAL_KEYS,
    *BEARER_KEYS,
)
"""The `sasl.*` configs of Kafka's clients that have an effect."""


ALLOWING: Final = "SPARKRAFT_OAUTHBEARER_ALLOWED_URLS"
"""Comma-separated URLs of tokens; Kafka: the system property
`org.apache.kafka.sasl.oauthbearer.allowed.urls`."""

ALLOWING_FILES: Final = "SPARKRAFT_OAUTHBEARER_ALLOWED_FILES"
"""Comma-separated files of assertions, keys and templates; Kafka: the system property
`org.apache.kafka.sasl.oauthbearer.allowed.files`."""


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
    from sparkraft.tls.dialing import client_dialing

    try:
        return client_dialing(settings)
    except TlsConfigError as error:
        raise SecurityConfigError(str(error)) from error


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
            return bearer_login(properties.get, module, _allowance())
        if mechanism == GSSAPI:
            service, renewal = properties.get(SERVICE_NAME), renewal_policy(properties.get)
            return kerberos_login(module, service, renewal)
        return login_of(mechanism, module)
    except JaasError as error:
        raise SecurityConfigError(f"sasl.jaas.config: {error}") from None
    except (BearerError, KerberosError) as error:
        raise SecurityConfigError(str(error)) from None


def _allowance() -> Allowance:
    urls, files = (
        {each.strip() for each in os.environ.get(name, "").split(",")}
        for name in (ALLOWING, ALLOWING_FILES)
    )
    return Allowance(
        urls=urls,
        files=files,
        urls_by=f"the environment variable {ALLOWING}",
        files_by=f"the environment variable {ALLOWING_FILES}",
    )


def protocol_of(properties: Mapping[str, str]) -> SecurityProtocol:
    """A client's `security.protocol`; SecurityConfigError if it is not implemented."""
    name = properties.get("security.protocol", SecurityProtocol.PLAINTEXT.name).strip().upper()
    if not is_implemented(name):
        raise SecurityConfigError(
            f"security.protocol={name} is not implemented, only {implemented_names()}"
        )
    return SecurityProtocol[name]

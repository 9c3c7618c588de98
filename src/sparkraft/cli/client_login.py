"""`security.protocol` and `sasl.*` of a client's properties: the credentials it logs in with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError
from sparkraft.security.jaas import JaasError, parse_jaas
from sparkraft.security.login import Login, login_of
from sparkraft.security.protocols import SecurityProtocol, is_implemented

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGIN_KEYS = frozenset({"security.protocol", "sasl.mechanism", "sasl.jaas.config"})
"""The configs of Kafka's clients about SASL that have an effect here."""

_SECURITY = ("sasl.", "security.")

_SASL = {SecurityProtocol.SASL_PLAINTEXT.name, SecurityProtocol.SASL_SSL.name}


def client_login(properties: Mapping[str, str]) -> Login | None:
    """The credentials in a client's properties; None if its protocol does not use SASL.

    Raises:
        CommandError: they are missing or invalid, or require what we do not implement.
    """
    protocol = properties.get("security.protocol", SecurityProtocol.PLAINTEXT.name).upper()
    if not is_implemented(protocol):
        raise CommandError(f"security.protocol={protocol} is not implemented")
    for key in properties:
        if key.startswith(_SECURITY) and key not in LOGIN_KEYS:
            raise CommandError(f"{key} is not implemented")
    if protocol not in _SASL:
        return None
    text = properties.get("sasl.jaas.config")
    if text is None:
        raise CommandError(f"security.protocol={protocol} needs sasl.jaas.config")
    try:
        return login_of(properties.get("sasl.mechanism", "GSSAPI"), parse_jaas(text))
    except JaasError as error:
        raise CommandError(f"sasl.jaas.config: {error}") from None

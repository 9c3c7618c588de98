"""`security.protocol` and `sasl.*` of a client's properties: the credentials it logs in with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError
from sparkraft.client.security import (
    SASL_KEYS,
    SecurityConfigError,
    login_of_properties,
    protocol_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.security.login import Credentials

LOGIN_KEYS = frozenset({"security.protocol", *SASL_KEYS})
"""The configs of Kafka's clients about SASL that have an effect here."""

_SECURITY = ("sasl.", "security.")


def client_login(properties: Mapping[str, str]) -> Credentials | None:
    """The credentials in a client's properties; None if its protocol does not use SASL.

    Raises:
        CommandError: they are missing or invalid, or require what we do not implement.
    """
    try:
        protocol_of(properties)
        for key in properties:
            if key.startswith(_SECURITY) and key not in LOGIN_KEYS:
                raise CommandError(f"{key} is not implemented")
        return login_of_properties(properties)
    except SecurityConfigError as error:
        raise CommandError(str(error)) from None

"""The security protocols of listeners, with Kafka's names and ids."""

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """How the connections of a listener are secured; the id stands in registration records."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


IMPLEMENTED = frozenset({SecurityProtocol.PLAINTEXT, SecurityProtocol.SASL_PLAINTEXT})
"""Protocols that listeners and clients support so far."""


def is_implemented(name: str) -> bool:
    """Whether `name`, in upper case, is a security protocol we support."""
    return any(protocol.name == name for protocol in IMPLEMENTED)

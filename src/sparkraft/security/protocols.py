"""The security protocols of listeners, with Kafka's names and ids."""

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """How the connections of a listener are secured; the id stands in registration records."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_sasl(self) -> bool:
        """Whether clients authenticate by SASL."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}


IMPLEMENTED = frozenset(SecurityProtocol)
"""Protocols that listeners and clients support so far."""


def implemented_names() -> str:
    """Their names, for a message."""
    return ", ".join(protocol.name for protocol in sorted(IMPLEMENTED))


def is_implemented(name: str) -> bool:
    """Whether `name`, in upper case, is a security protocol we support."""
    return any(protocol.name == name for protocol in IMPLEMENTED)

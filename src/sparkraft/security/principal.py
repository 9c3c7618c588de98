"""Kafka's principals, `Type:name`: the authenticated sender of a request."""

from dataclasses import dataclass, field

USER = "User"


@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """An authenticated user, or `ANONYMOUS`.

    Attributes:
        type: case-sensitive; `User` for every principal of a connection.
        name: case-sensitive; may contain colons.
        token_authenticated: whether it authenticated with a delegation token (KIP-48). Not part of
            its identity, as in Kafka.
    """

    type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        """The form used in access control lists: `User:alice`."""
        return f"{self.type}:{self.name}"


ANONYMOUS = KafkaPrincipal(USER, "ANONYMOUS")
"""The principal of every connection that does not authenticate."""

"""The rights of visitors of the console."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Role(IntEnum):
    """Each role includes those before it."""

    VIEWER = 1
    """Sees the cluster, its topics and groups; no records."""

    READER = 2
    """Reads and exports records too."""

    EDITOR = 3
    """Changes the cluster too."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request."""

    name: str | None
    """None without a sign-in."""

    role: Role


def role_named(text: str) -> Role:
    """Return the role of a name in lower case.

    Raises:
        ValueError: it is not the name of a role.
    """
    for role in Role:
        if role.name.lower() == text:
            return role
    raise ValueError(f"{text!r} is not a role: viewer, reader or editor")

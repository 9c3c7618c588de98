"""The file of users that sign in to the console: one `NAME:ROLE:PASSWORD` per line.

PASSWORD is `scrypt$N$R$P$SALT$KEY` with the last two in base64. It is absent for users that a proxy
authenticates. The name `*` stands for all other users of the proxy. Empty lines and lines that
begin with # are ignored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkraft.console.roles import Role, role_named

if TYPE_CHECKING:
    from pathlib import Path

OTHERS = "*"
"""The name of the line for all users that no other line names."""

_COST, _BLOCK, _LANES = 1 << 14, 8, 1
"""scrypt's parameters for interactive sign-in: 16 MiB and about 50 ms (RFC 7914, section 2)."""

_COST_MAX = 1 << 20
_BLOCK_MAX = 32
_LANES_MAX = 16
_MEMORY_MAX = 256 << 20
_SALT_BYTES = 16
_KEY_BYTES = 32
_NAME_MAX = 249


@dataclass(frozen=True, slots=True)
class Password:
    """The key that scrypt derives from a password."""

    cost: int
    block: int
    lanes: int
    salt: bytes
    key: bytes

    @classmethod
    def of(cls, text: str) -> Password:
        """Derive the key of a new password."""
        salt = secrets.token_bytes(_SALT_BYTES)
        return cls(_COST, _BLOCK, _LANES, salt, _derived(text, _COST, _BLOCK, _LANES, salt))

    @classmethod
    def parse(cls, text: str) -> Password:
        """Parse what `str` returns; ValueError if it is malformed."""
        name, *numbers, salt, key = text.split("$")
        if name != "scrypt":
            raise ValueError("the password does not begin with scrypt$")
        cost, block, lanes = map(int, numbers)
        is_cost = 1 < cost <= _COST_MAX and not cost & (cost - 1)
        if not (is_cost and 0 < block <= _BLOCK_MAX and 0 < lanes <= _LANES_MAX):
            raise ValueError("the parameters of scrypt are out of range")
        try:
            decoded = [base64.b64decode(part, validate=True) for part in (salt, key)]
        except binascii.Error as error:
            raise ValueError("the salt and the key are not base64") from error
        return cls(cost, block, lanes, *decoded)

    def __str__(self) -> str:
        salt, key = (base64.b64encode(part).decode() for part in (self.salt, self.key))
        return f"scrypt${self.cost}${self.block}${self.lanes}${salt}${key}"

    def matches(self, text: str) -> bool:
        """Compare in constant time; takes about 50 ms and releases the GIL."""
        found = _derived(text, self.cost, self.block, self.lanes, self.salt, len(self.key))
        return hmac.compare_digest(found, self.key)


def _derived(
    text: str, cost: int, block: int, lanes: int, salt: bytes, length: int = _KEY_BYTES
) -> bytes:
    return hashlib.scrypt(
        text.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=_MEMORY_MAX, dklen=length
    )


@dataclass(frozen=True, slots=True)
class User:
    """A line of the file."""

    name: str
    role: Role
    password: Password | None = None

    def __str__(self) -> str:
        words = [self.name, self.role.name.lower()]
        return ":".join(words if self.password is None else [*words, str(self.password)])


def parse_users(text: str) -> dict[str, User]:
    """Parse a file of users.

    Raises:
        ValueError: a line is malformed, or names a user a second time; the text names the line.
    """
    found: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            user = _parse_line(line.strip())
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
        if user.name in found:
            raise ValueError(f"line {number}: user {user.name!r} is in the file already")
        found[user.name] = user
    return found


def _parse_line(line: str) -> User:
    name, _, rest = line.partition(":")
    role, has_password, password = rest.partition(":")
    check_name(name)
    if name == OTHERS and has_password:
        raise ValueError("the line of all other users has no password")
    return User(name, role_named(role), Password.parse(password) if has_password else None)


def check_name(name: str) -> None:
    """Raise ValueError for a name that does not fit into a line."""
    if not name or len(name) > _NAME_MAX or ":" in name or not name.isprintable():
        raise ValueError(f"{name[:50]!r} is not a user's name: 1 to 249 characters without a colon")


def write_users(path: Path, users: dict[str, User]) -> None:
    """Replace the file at once; only its owner can read it."""
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(f"{user}\n" for user in users.values())
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)

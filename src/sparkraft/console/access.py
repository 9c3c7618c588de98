"""Identifies visitors: by a cookie of a sign-in, a header of a trusted proxy, or as anonymous.

* Without `--users` and `--trusted-proxy` the console listens on loopback only. Every user of the
  machine may read there; the one-time token of the printed address makes its bearer an editor.
* With `--users` visitors sign in with a password. Five failures a minute close a name, and
  fifty close the sign-in, for a minute.
* With `--trusted-proxy` a header names the visitor; it counts only from the addresses of proxies.

A session is a cookie that scripts cannot read and that other sites cannot send.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkraft.console.roles import Role, Visitor
from sparkraft.console.users import OTHERS, Password, User

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SESSIONS_MAX = 1000
"""The session that was used least recently ends first."""

SESSION_SECONDS = 12 * 3600.0
"""A session ends if it is not used for this time."""

FAILURES_MAX = 5
"""Of one name in `FAILURE_SECONDS`."""

FAILURES_OF_ALL_MAX = 50
FAILURE_SECONDS = 60.0

TOKEN_NAME = "editor"
"""The name of a visitor that signed in with the token of the address."""


_TOKEN = ""
"""Failures with tokens are counted under the name that no user has."""


class TooManyFailuresError(Exception):
    """The sign-in is closed for a while."""


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """The options of the console about visitors."""

    users: Mapping[str, User] | None = None
    """None without `--users`."""

    proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    user_header: str = "x-forwarded-user"
    """Of the proxies; in lower case."""

    role_max: Role = Role.EDITOR
    token: str | None = None
    """Of the printed address."""

    @property
    def is_open(self) -> bool:
        """Whether a visitor need not sign in to read."""
        return self.users is None and not self.proxies


@dataclass(slots=True)
class _Session:
    name: str
    role: Role
    used: float


@dataclass(slots=True)
class _Failures:
    """Times of failed sign-ins, oldest first."""

    times: deque[float] = field(default_factory=deque)

    def count(self, now: float) -> int:
        while self.times and self.times[0] <= now - FAILURE_SECONDS:
            self.times.popleft()
        return len(self.times)


class Access:
    """Knows visitors by their requests, and signs them in and out."""

    def __init__(
        self, settings: AccessSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._sessions: dict[bytes, _Session] = {}
        self._token = None if settings.token is None else _digest(settings.token)
        self._failures: dict[str, _Failures] = {}
        self._failures_of_all = _Failures()
        self._absent = Password.of(secrets.token_hex())

    @property
    def accepts_passwords(self) -> bool:
        return self._settings.users is not None

    def visitor(
        self, address: str, cookie: str | None, headers: Mapping[str, str]
    ) -> Visitor | None:
        """Return who sent a request; None if it must sign in first.

        Args:
            address: of the connection's other end.
            cookie: the session's, if the request has one.
            headers: of the request, with names in any case.
        """
        found = self._of_session(cookie) or self._of_proxy(address, headers)
        if found is None and self._settings.is_open:
            found = Visitor(None, Role.READER)
        if found is None:
            return None
        return Visitor(found.name, min(found.role, self._settings.role_max))

    def _of_session(self, cookie: str | None) -> Visitor | None:
        if cookie is None:
            return None
        key = _digest(cookie)
        session = self._sessions.pop(key, None)
        now = self._clock()
        if session is None or session.used <= now - SESSION_SECONDS:
            return None
        session.used = now
        self._sessions[key] = session  # the last one was used most recently
        return Visitor(session.name, session.role)

    def _of_proxy(self, address: str, headers: Mapping[str, str]) -> Visitor | None:
        name = headers.get(self._settings.user_header)
        if not name or not self._is_proxy(address):
            return None
        users = self._settings.users or {}
        user = users.get(name) or users.get(OTHERS)
        if user is None and users:
            return None
        return Visitor(name, Role.VIEWER if user is None else user.role)

    def _is_proxy(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._settings.proxies)

    def sign_in_with_token(self, token: str) -> str | None:
        """Return the cookie of a new session, or None; the token is void afterwards.

        Raises:
            TooManyFailuresError: too many sign-ins failed.
        """
        self._check_failures(_TOKEN)
        if self._token is None or not secrets.compare_digest(_digest(token), self._token):
            self._note_failure(_TOKEN)
            return None
        self._token = None
        return self._new_session(TOKEN_NAME, Role.EDITOR)

    async def sign_in(self, name: str, password: str) -> str | None:
        """Return the cookie of a new session; None if name or password is wrong.

        Raises:
            TooManyFailuresError: too many sign-ins failed, of this name or of all.
        """
        self._check_failures(name)
        # The attempt counts before its answer is known: requests sent side by side count too.
        self._note_failure(name)
        user = (self._settings.users or {}).get(name)
        stored = user.password if user is not None else None
        # An unknown name takes as long as a known one.
        matches = await asyncio.to_thread((stored or self._absent).matches, password)
        if user is None or stored is None or not matches:
            return None
        self._failures.pop(name, None)
        self._failures_of_all.times.pop()
        return self._new_session(name, user.role)

    def sign_out(self, cookie: str | None) -> None:
        """End the session of a cookie."""
        if cookie is not None:
            self._sessions.pop(_digest(cookie), None)

    def _new_session(self, name: str, role: Role) -> str:
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(32)
        self._sessions[_digest(cookie)] = _Session(name, role, self._clock())
        return cookie

    def _check_failures(self, name: str) -> None:
        now = self._clock()
        known = self._failures.get(name)
        if (known is not None and known.count(now) >= FAILURES_MAX) or (
            self._failures_of_all.count(now) >= FAILURES_OF_ALL_MAX
        ):
            raise TooManyFailuresError

    def _note_failure(self, name: str) -> None:
        now = self._clock()
        if len(self._failures) >= FAILURES_OF_ALL_MAX:
            self._failures = {one: kept for one, kept in self._failures.items() if kept.count(now)}
        for failures in (self._failures.setdefault(name, _Failures()), self._failures_of_all):
            failures.times.append(now)


def _digest(secret: str) -> bytes:
    """The stored form of a token or a cookie: a lookup by it takes no longer for a near miss."""
    return hashlib.sha256(secret.encode()).digest()

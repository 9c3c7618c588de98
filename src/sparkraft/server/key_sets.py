"""The JWKS of OAUTHBEARER listeners: the public keys of those who issue access tokens.

A key set is read at the start of the node, which fails without it, and then again every
sasl.oauthbearer.jwks.endpoint.refresh.ms. A token with an unknown key id also causes a read, once a
minute for each id. Logins only use the keys that have been read, so they never wait.

As in Kafka, a URL is only read if it is allowed by name, `file:` included. The list cannot be
changed by clients (CVE-2025-27817), and no error quotes what was read.
"""

import asyncio
import logging
import ssl
import urllib.request
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sparkraft.security.access_tokens import VerificationKey, read_key_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkraft.base.env import Clock

log = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 1 << 20
ANSWER_SECONDS_MAX = 10

UNKNOWN_KEYS_MAX = 16
"""Key ids whose last read is remembered, as in Kafka's `RefreshingHttpsJwks`."""

UNKNOWN_KEY_INTERVAL_MS = 60_000


class KeySetError(ValueError):
    """A key set that cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """The address of a key set, and the times of its reads.

    Attributes:
        url: `https:`, `http:` or `file:`.
        refresh_ms: the interval.
        retry_ms: the first wait after a failure; it doubles.
        retry_ms_max: the longest one.
    """

    url: str
    refresh_ms: int
    retry_ms: int
    retry_ms_max: int


class KeySet:
    """The keys of one source."""

    def __init__(self, source: KeySource, clock: "Clock") -> None:
        """Read it for the first time.

        Raises:
            KeySetError: it cannot be read.
        """
        self._source = source
        self._clock = clock
        self._keys = read(source.url)
        self._unknown_ms: dict[str, int] = {}
        self._is_reading = False
        self._failures = 0
        asyncio.get_running_loop().call_later(source.refresh_ms / 1000, self._refresh)

    def find(self, key_id: str) -> "Iterable[VerificationKey]":
        """The keys with that id; all if it is ""."""
        if not key_id:
            return self._keys
        found = [key for key in self._keys if key.id == key_id]
        if not found:
            self._on_unknown(key_id)
        return found

    def _on_unknown(self, key_id: str) -> None:
        now = self._clock.mono_ms()
        if now - self._unknown_ms.get(key_id, now - UNKNOWN_KEY_INTERVAL_MS) < (
            UNKNOWN_KEY_INTERVAL_MS
        ):
            return
        self._unknown_ms.pop(key_id, None)
        while len(self._unknown_ms) >= UNKNOWN_KEYS_MAX:
            self._unknown_ms.pop(next(iter(self._unknown_ms)))
        self._unknown_ms[key_id] = now
        self._read_soon(lambda: None)

    def _refresh(self) -> None:
        self._read_soon(self._schedule)

    def _schedule(self) -> None:
        source = self._source
        wait_ms = source.refresh_ms
        if self._failures:
            doubled = source.retry_ms << min(self._failures - 1, 20)
            wait_ms = min(doubled, source.retry_ms_max, source.refresh_ms)
        asyncio.get_running_loop().call_later(wait_ms / 1000, self._refresh)

    def _read_soon(self, then: "Callable[[], None]") -> None:
        """Read it in a thread, unless that is being done, and call `then`."""
        if self._is_reading:
            then()
            return
        self._is_reading = True
        work = asyncio.get_running_loop().run_in_executor(None, read, self._source.url)
        work.add_done_callback(partial(self._on_read, then))

    def _on_read(
        self, then: "Callable[[], None]", work: "asyncio.Future[list[VerificationKey]]"
    ) -> None:
        self._is_reading = False
        if work.cancelled():
            return
        error = work.exception()
        if error is None:
            self._keys, self._failures = work.result(), 0
        else:
            self._failures += 1
            log.warning("%s; the keys read before are used", error)
        then()


def read(url: str) -> list[VerificationKey]:
    """Read a key set; blocks up to `ANSWER_SECONDS_MAX` for each part of an answer.

    Raises:
        KeySetError: it cannot be read.
    """
    try:
        keys = read_key_set(_content(url).decode())
    except (OSError, HTTPException, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else None
        why = reason or type(error).__name__
        raise KeySetError(f"cannot read the JWKS of {url}: {why}") from None
    if not keys:
        raise KeySetError(f"the JWKS of {url} has no public key that can be used")
    return keys


def _content(url: str) -> bytes:
    parts = urlsplit(url)
    if parts.scheme == "file":
        with Path(unquote(parts.path)).open("rb") as file:
            return _bounded(file.read(ANSWER_BYTES_MAX + 1))
    if parts.scheme not in {"http", "https"}:
        raise ValueError("unknown scheme")
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):  # neither proxies nor redirects
        opener.add_handler(handler)
    with opener.open(url, timeout=ANSWER_SECONDS_MAX) as answer:
        return _bounded(answer.read(ANSWER_BYTES_MAX + 1))


def _bounded(content: bytes) -> bytes:
    if len(content) > ANSWER_BYTES_MAX:
        raise ValueError("too long")
    return content

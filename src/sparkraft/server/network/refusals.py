"""Log lines about bytes that are not a request this listener serves."""

import logging
from typing import TYPE_CHECKING

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.network.hexdump import hexdump

if TYPE_CHECKING:
    from sparkraft.base.errors import DecodeError
    from sparkraft.server.network.frames import BadLengthError

log = logging.getLogger(__name__)

SHOWN_BYTES_MAX = 4096
"""Bytes of a malformed request in a debug log."""

SECRET_KEYS = frozenset(
    {
        ApiKey.ALTER_CONFIGS,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.ENVELOPE,
    }
)
"""APIs whose requests may contain passwords: their bytes are not logged (CVE-2026-33558)."""

_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI ")
_TLS_HANDSHAKE = b"\x16\x03"

_NOT_TLS = frozenset({"wrong version number", "http request", "record layer failure"})
"""OpenSSL's reasons for first bytes that are not TLS, by its versions."""


def log_bad_length(connection: object, error: "BadLengthError", limit: str) -> None:
    """Log which protocol the peer speaks, or how long its request would be."""
    if error.start[:4] in _HTTP:
        what = "it speaks HTTP, and this is a Kafka listener"
    elif error.start.startswith(_TLS_HANDSHAKE):
        what = "it speaks TLS, and this is a PLAINTEXT listener"
    elif error.size < 0:
        what = f"a request of negative length {error.size}"
    else:
        what = f"a request of {error.size} bytes; {limit}"
    log.warning("Closing %s: %s", connection, what)


def log_malformed(connection: object, error: "DecodeError", frame: memoryview) -> None:
    """Log why a request cannot be decoded, and its bytes at level DEBUG."""
    log.warning("Closing %s: a request of %d bytes is invalid: %s", connection, len(frame), error)
    if log.isEnabledFor(logging.DEBUG) and int.from_bytes(frame[:2], "big") not in SECRET_KEYS:
        log.debug("The request:\n%s", hexdump(bytes(frame[:SHOWN_BYTES_MAX]), error.at))


def log_tls_failure(connection: object, reason: str) -> None:
    """Log why a TLS handshake failed."""
    if reason in _NOT_TLS:
        reason = f"{reason}: it does not speak TLS, and this is a TLS listener"
    log.warning("Closing %s: TLS handshake failed: %s", connection, reason)


def log_unserved(connection: object, key: int, version: int, listener: str) -> None:
    """Log which API the peer requested."""
    try:
        name = ApiKey(key).name
    except ValueError:
        name = "no such API"
    log.warning(
        "Closing %s: it requested key %d (%s) version %d, which listener %s does not serve",
        connection, key, name, version, listener,
    )  # fmt: skip

"""OAUTHBEARER with an access token in a file, as `FileJwtRetriever` of Kafka's clients.

The file is read at each authentication, so whatever renews the token only has to replace it. As in
Kafka, the URL must be allowed by name, outside of the client's configs, which other users may write
(CVE-2025-27817): by the environment variable `ALLOWING`. No error quotes the file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.security.bearer_client import OAuthBearerClient
from sparkraft.security.sasl import OAUTHBEARER
from sparkraft.security.secret import Secret

ALLOWING: Final = "SPARKRAFT_OAUTHBEARER_ALLOWED_URLS"
"""Comma-separated URLs; Kafka: the system property
`org.apache.kafka.sasl.oauthbearer.allowed.urls`."""

TOKEN_BYTES_MAX: Final = 1 << 19
"""The most that a server reads before authentication (sasl.server.max.receive.size)."""

_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*", re.ASCII)


class TokenFileError(ValueError):
    """A token cannot be taken from there; the message names the config."""


@dataclass(frozen=True, slots=True)
class TokenFileLogin:
    """Credentials in a file.

    Attributes:
        path: of the file.
        mechanism: OAUTHBEARER.
    """

    path: str
    mechanism: str = OAUTHBEARER

    @property
    def blocks(self) -> bool:
        """The file is local."""
        return False

    def client(self, nonce: str, host: str) -> OAuthBearerClient:
        """Read the token and begin an exchange.

        Raises:
            KafkaError: SASL_AUTHENTICATION_FAILED if the file has no token.
        """
        try:
            with Path(self.path).open("rb") as file:
                text = file.read(TOKEN_BYTES_MAX).decode().strip()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "not text"
            raise _no_token(self.path, why) from None
        if _TOKEN.fullmatch(text) is None:
            raise _no_token(self.path, "not an access token")
        return OAuthBearerClient(Secret(text))


def _no_token(path: str, why: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the token file {path}: {why}")


def token_file_login(url: str | None) -> TokenFileLogin:
    """Return the credentials for a value of sasl.oauthbearer.token.endpoint.url.

    Raises:
        TokenFileError: it is missing, is not a file, or is not allowed.
    """
    key = "sasl.oauthbearer.token.endpoint.url"
    parts = urlsplit(url or "")
    if parts.scheme != "file" or not parts.path:
        raise TokenFileError(f"{OAUTHBEARER} needs {key}, the file: URL of an access token")
    allowed = {each.strip() for each in os.environ.get(ALLOWING, "").split(",")}
    if url not in allowed:
        raise TokenFileError(f"{key} is not in the environment variable {ALLOWING}")
    return TokenFileLogin(unquote(parts.path))

"""OAUTHBEARER with an access token in a file, as `FileJwtRetriever` of Kafka's clients.

The file is read at each authentication, so whatever renews the token only has to replace it. No
error quotes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.security.bearer_client import OAuthBearerClient
from sparkraft.security.sasl import OAUTHBEARER
from sparkraft.security.secret import Secret

TOKEN_BYTES_MAX: Final = 1 << 19
"""The most that a server reads before authentication (sasl.server.max.receive.size)."""

_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*", re.ASCII)


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


def token_file_login(url: str) -> TokenFileLogin:
    """Return the credentials in the file of a `file:` URL."""
    return TokenFileLogin(unquote(urlsplit(url).path))

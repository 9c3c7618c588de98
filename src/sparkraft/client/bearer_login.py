"""The `sasl.oauthbearer.*` configs of clients: a token in a file, or from a token endpoint.

    sasl.oauthbearer.token.endpoint.url              file:, http: or https:, one that is allowed
    sasl.oauthbearer.client.credentials.client.id    the account at an endpoint; in its place the
    sasl.oauthbearer.client.credentials.client.secret  login module may have the options clientId,
    sasl.oauthbearer.scope                             clientSecret and scope

As in Kafka, the URL must be allowed by name, outside of configs that other users may write
(CVE-2025-27817).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sparkraft.client.token_endpoint import TokenEndpoint, TokenEndpointLogin
from sparkraft.client.token_file import token_file_login
from sparkraft.security.sasl import OAUTHBEARER
from sparkraft.security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sparkraft.client.token_file import TokenFileLogin
    from sparkraft.security.jaas import LoginModule

URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
URL_ENCODES: Final = "sasl.oauthbearer.header.urlencode"
CONNECT_TIMEOUT: Final = "sasl.login.connect.timeout.ms"
READ_TIMEOUT: Final = "sasl.login.read.timeout.ms"
RETRY: Final = "sasl.login.retry.backoff.ms"
RETRY_MAX: Final = "sasl.login.retry.backoff.max.ms"

BEARER_KEYS: Final = (
    URL,
    CLIENT_ID,
    CLIENT_SECRET,
    SCOPE,
    URL_ENCODES,
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    RETRY,
    RETRY_MAX,
)
"""The configs that have an effect."""


class BearerError(ValueError):
    """The configs give no token; the message names one and has no secret."""


def bearer_login(
    read: Callable[[str], str | None],
    module: LoginModule,
    *,
    allowed: Collection[str],
    allowing: str,
) -> TokenFileLogin | TokenEndpointLogin:
    """Return the credentials for OAUTHBEARER.

    Args:
        read: the text of one of `BEARER_KEYS`; None if it is not set.
        module: the login module.
        allowed: the URLs that may be used.
        allowing: the name of what allows them, for an error.

    Raises:
        JaasError: the module is for other mechanisms.
        BearerError: a config is missing, invalid or not allowed.
    """
    module.check_mechanism(OAUTHBEARER)
    url = read(URL)
    parts = urlsplit(url or "")
    if not url or parts.scheme not in {"file", "http", "https"}:
        raise BearerError(f"{OAUTHBEARER} needs {URL}, a file: URL or that of a token endpoint")
    if url not in allowed:
        raise BearerError(f"{URL} is not in {allowing}")
    if parts.scheme == "file":
        return token_file_login(url)
    defaults = TokenEndpoint(url=url, client_id="", client_secret=Secret(""))
    return TokenEndpointLogin(
        TokenEndpoint(
            url=url,
            client_id=_needed(read, CLIENT_ID, module, "clientId"),
            client_secret=Secret(_needed(read, CLIENT_SECRET, module, "clientSecret")),
            scope=(read(SCOPE) or module.text("scope")).strip() or None,
            url_encodes=(read(URL_ENCODES) or "").strip().lower() == "true",
            connect_timeout_ms=_number(read, CONNECT_TIMEOUT, defaults.connect_timeout_ms),
            read_timeout_ms=_number(read, READ_TIMEOUT, defaults.read_timeout_ms),
            retry_ms=_number(read, RETRY, defaults.retry_ms),
            retry_ms_max=_number(read, RETRY_MAX, defaults.retry_ms_max),
        )
    )


def _needed(read: Callable[[str], str | None], key: str, module: LoginModule, option: str) -> str:
    """A config, or in its place an option of the login module."""
    value = (read(key) or module.text(option)).strip()
    if not value:
        raise BearerError(f"{URL} is that of a token endpoint, which needs {key}")
    return value


def _number(read: Callable[[str], str | None], key: str, default: int) -> int:
    text = read(key)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise BearerError(f"{key} must be a positive number of milliseconds")
    return value

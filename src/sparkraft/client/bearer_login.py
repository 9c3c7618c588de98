"""The `sasl.oauthbearer.*` configs of clients: a token in a file, or from a token endpoint.

    sasl.oauthbearer.token.endpoint.url              file:, http: or https:, one that is allowed
    sasl.oauthbearer.jwt.retriever.class             one of `RETRIEVERS`; default: by the URL
    sasl.oauthbearer.client.credentials.client.id    the account at an endpoint; in its place the
    sasl.oauthbearer.client.credentials.client.secret  login module may have the options clientId,
    sasl.oauthbearer.scope                             clientSecret and scope
    sasl.oauthbearer.assertion.*                     in place of the secret (KIP-1258), or exchanged
                                                     for a token by JwtBearerJwtRetriever (KIP-1139)

An assertion file, or the claim `iss` of assertions that are signed here, takes the place of the
secret: the order of Kafka's `ClientCredentialsRequestFormatterFactory`. No Java class is loaded.

As in Kafka, URLs and files must be allowed by name, outside of configs that other users may write
(CVE-2025-27817): the content of a file goes to the URL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sparkraft.client.assertions import (
    ALGORITHMS,
    BACKDATED_S,
    BACKDATED_S_MAX,
    LIFETIME_S,
    LIFETIME_S_MAX,
    AssertionFile,
    Assertions,
    SignedAssertions,
)
from sparkraft.client.token_endpoint import TokenEndpoint, TokenEndpointLogin
from sparkraft.client.token_file import token_file_login
from sparkraft.client.token_requests import (
    AssertionRequest,
    BearerRequest,
    SecretRequest,
    TokenRequest,
)
from sparkraft.security.sasl import OAUTHBEARER
from sparkraft.security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from sparkraft.client.token_file import TokenFileLogin
    from sparkraft.security.jaas import LoginModule

URL: Final = "sasl.oauthbearer.token.endpoint.url"
RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
URL_ENCODES: Final = "sasl.oauthbearer.header.urlencode"
CONNECT_TIMEOUT: Final = "sasl.login.connect.timeout.ms"
READ_TIMEOUT: Final = "sasl.login.read.timeout.ms"
RETRY: Final = "sasl.login.retry.backoff.ms"
RETRY_MAX: Final = "sasl.login.retry.backoff.max.ms"

_ASSERTION: Final = "sasl.oauthbearer.assertion."
ASSERTION_FILE: Final = f"{_ASSERTION}file"
KEY_FILE: Final = f"{_ASSERTION}private.key.file"
PASSPHRASE: Final = f"{_ASSERTION}private.key.passphrase"
ALGORITHM: Final = f"{_ASSERTION}algorithm"
TEMPLATE_FILE: Final = f"{_ASSERTION}template.file"
AUDIENCE: Final = f"{_ASSERTION}claim.aud"
ISSUER: Final = f"{_ASSERTION}claim.iss"
SUBJECT: Final = f"{_ASSERTION}claim.sub"
LIFETIME: Final = f"{_ASSERTION}claim.exp.seconds"
BACKDATED: Final = f"{_ASSERTION}claim.nbf.seconds"
HAS_ID: Final = f"{_ASSERTION}claim.jti.include"

BEARER_KEYS: Final = (
    URL,
    RETRIEVER,
    CLIENT_ID,
    CLIENT_SECRET,
    SCOPE,
    URL_ENCODES,
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    RETRY,
    RETRY_MAX,
    ASSERTION_FILE,
    KEY_FILE,
    PASSPHRASE,
    ALGORITHM,
    TEMPLATE_FILE,
    AUDIENCE,
    ISSUER,
    SUBJECT,
    LIFETIME,
    BACKDATED,
    HAS_ID,
)
"""The configs that have an effect."""

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
DEFAULT, OF_FILE, CLIENT_CREDENTIALS, JWT_BEARER = RETRIEVERS = (
    f"{_PACKAGE}.DefaultJwtRetriever",
    f"{_PACKAGE}.FileJwtRetriever",
    f"{_PACKAGE}.ClientCredentialsJwtRetriever",
    f"{_PACKAGE}.JwtBearerJwtRetriever",
)
"""Values of `RETRIEVER`."""


class BearerError(ValueError):
    """The configs give no token; the message names one and has no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The URLs and files that may be used.

    Attributes:
        urls: exact values of `URL`.
        files: exact values of configs that name files.
        urls_by: the name of the list of URLs, for an error.
        files_by: the name of the list of files.
    """

    urls: Collection[str]
    files: Collection[str]
    urls_by: str
    files_by: str

    def check_url(self, url: str) -> None:
        """Raise `BearerError` unless `url` is allowed."""
        if url not in self.urls:
            raise BearerError(f"{URL} is not in {self.urls_by}")

    def check_file(self, key: str, path: str) -> str:
        """Return `path`, the value of `key`, if it is allowed; otherwise raise `BearerError`."""
        if path not in self.files:
            raise BearerError(f"{key} is not in {self.files_by}")
        return path


def bearer_login(
    read: Callable[[str], str | None], module: LoginModule, allowance: Allowance
) -> TokenFileLogin | TokenEndpointLogin:
    """Return the credentials for OAUTHBEARER.

    Args:
        read: the text of one of `BEARER_KEYS`; None if it is not set.
        module: the login module.
        allowance: the URLs and files that may be used.

    Raises:
        JaasError: the module is for other mechanisms.
        BearerError: a config is missing, invalid or not allowed.
    """
    module.check_mechanism(OAUTHBEARER)
    url = read(URL)
    parts = urlsplit(url or "")
    if not url or parts.scheme not in {"file", "http", "https"}:
        raise BearerError(f"{OAUTHBEARER} needs {URL}, a file: URL or that of a token endpoint")
    allowance.check_url(url)
    retriever = _retriever(read, is_file=parts.scheme == "file")
    if retriever == OF_FILE:
        return token_file_login(url)
    request: TokenRequest
    if retriever == JWT_BEARER:
        request = BearerRequest(scope=_scope(read, module), assertions=_assertions(read, allowance))
    else:
        request = _client_credentials(read, module, allowance)
    defaults = TokenEndpoint(url=url, request=request)
    return TokenEndpointLogin(
        TokenEndpoint(
            url=url,
            request=request,
            connect_timeout_ms=_milliseconds(read, CONNECT_TIMEOUT, defaults.connect_timeout_ms),
            read_timeout_ms=_milliseconds(read, READ_TIMEOUT, defaults.read_timeout_ms),
            retry_ms=_milliseconds(read, RETRY, defaults.retry_ms),
            retry_ms_max=_milliseconds(read, RETRY_MAX, defaults.retry_ms_max),
        )
    )


def _retriever(read: Callable[[str], str | None], *, is_file: bool) -> str:
    """The class that is not the default one, checked against the URL."""
    given = _text(read, RETRIEVER) or DEFAULT
    if given not in RETRIEVERS:
        raise BearerError(f"{RETRIEVER}={given}: the class cannot be loaded")
    if given == DEFAULT:
        return OF_FILE if is_file else CLIENT_CREDENTIALS
    if (given == OF_FILE) is not is_file:
        raise BearerError(f"{RETRIEVER}={given} does not fit {URL}")
    return given


def _client_credentials(
    read: Callable[[str], str | None], module: LoginModule, allowance: Allowance
) -> TokenRequest:
    scope = _scope(read, module)
    if _text(read, ASSERTION_FILE) or read(ISSUER) is not None:
        client_id = _text(read, CLIENT_ID) or module.text("clientId").strip() or None
        assertions = _assertions(read, allowance)
        return AssertionRequest(assertions=assertions, client_id=client_id, scope=scope)
    return SecretRequest(
        client_id=_needed(read, CLIENT_ID, module, "clientId"),
        client_secret=Secret(_needed(read, CLIENT_SECRET, module, "clientSecret")),
        scope=scope,
        url_encodes=_flag(read, URL_ENCODES),
    )


def _assertions(read: Callable[[str], str | None], allowance: Allowance) -> Assertions:
    """The source of assertions (`AssertionSupplierFactory`); a file of them has priority."""
    if path := _text(read, ASSERTION_FILE):
        return AssertionFile(allowance.check_file(ASSERTION_FILE, path))
    key_path = _text(read, KEY_FILE)
    if not key_path:
        raise BearerError(f"an assertion needs {ASSERTION_FILE} or {KEY_FILE}")
    algorithm = (_text(read, ALGORITHM) or ALGORITHMS[0]).upper()
    if algorithm not in ALGORITHMS:
        raise BearerError(f"{ALGORITHM} must be one of {', '.join(ALGORITHMS)}")
    template = _text(read, TEMPLATE_FILE)
    passphrase = read(PASSPHRASE)
    claims = {"aud": _text(read, AUDIENCE), "iss": _text(read, ISSUER), "sub": _text(read, SUBJECT)}
    return SignedAssertions(
        key_path=allowance.check_file(KEY_FILE, key_path),
        passphrase=None if passphrase is None else Secret(passphrase),
        algorithm=algorithm,
        template_path=allowance.check_file(TEMPLATE_FILE, template) if template else None,
        claims=tuple((name, value) for name, value in claims.items() if value),
        lifetime_s=_seconds(read, LIFETIME, LIFETIME_S, LIFETIME_S_MAX),
        backdated_s=_seconds(read, BACKDATED, BACKDATED_S, BACKDATED_S_MAX),
        has_id=_flag(read, HAS_ID),
    )


def _scope(read: Callable[[str], str | None], module: LoginModule) -> str | None:
    return (read(SCOPE) or module.text("scope")).strip() or None


def _text(read: Callable[[str], str | None], key: str) -> str:
    return (read(key) or "").strip()


def _flag(read: Callable[[str], str | None], key: str) -> bool:
    return _text(read, key).lower() == "true"


def _needed(read: Callable[[str], str | None], key: str, module: LoginModule, option: str) -> str:
    """A config, or in its place an option of the login module."""
    value = (read(key) or module.text(option)).strip()
    if not value:
        raise BearerError(f"{URL} is that of a token endpoint, which needs {key}")
    return value


def _milliseconds(read: Callable[[str], str | None], key: str, default: int) -> int:
    value = _whole_number(read, key, default)
    if value <= 0:
        raise BearerError(f"{key} must be a positive number of milliseconds")
    return value


def _seconds(read: Callable[[str], str | None], key: str, default: int, most: int) -> int:
    value = _whole_number(read, key, default)
    if not 0 <= value <= most:
        raise BearerError(f"{key} must be from 0 to {most} seconds")
    return value


def _whole_number(read: Callable[[str], str | None], key: str, default: int) -> int:
    """The value of a config; -1, which none of them may have, if it is not a number."""
    text = read(key)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        return -1

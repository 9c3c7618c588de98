"""A token endpoint on loopback: HTTP, with secrets (RFC 6749, 4.4) and assertions (RFC 7523)."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from tests.support.access_tokens import Issuer

if TYPE_CHECKING:
    from collections.abc import Callable

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@dataclass(frozen=True, slots=True)
class Answer:
    """What it sends; `text` is the body."""

    status: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)


class TokenServer:
    """Gives tokens to the accounts it knows, or what `answers` has next."""

    def __init__(
        self,
        issuer: Issuer,
        accounts: dict[str, str],
        certificate: Path | None = None,
        keys: Mapping[str, RSAKey | ECKey] | None = None,
    ) -> None:
        """Listen.

        Args:
            issuer: signs the tokens.
            accounts: client id → secret; the id becomes the claim `sub`.
            certificate: with its key, for HTTPS; None: HTTP.
            keys: the claim `iss` of assertions → the key that verifies them.
        """
        self.keys = dict(keys or {})
        self._used: set[str] = set()
        """The ids of assertions: each is accepted once."""
        self.wall: Callable[[], float] = time.time
        self.issuer = issuer
        self.accounts = accounts
        self.requests: list[dict[str, list[str]]] = []
        """Fields of the requests of known accounts."""
        self.seen = 0
        self.answers: list[Answer] = []
        self.claims: Callable[[], dict[str, object]] = dict
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                fields = parse_qs(self.rfile.read(size).decode())
                answer = server.answer(self.headers.get("Authorization", ""), fields)
                self.send_response(answer.status)
                self.send_header("Content-Type", "application/json")
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self._http.server_port}/token"

    def answer(self, authorization: str, fields: dict[str, list[str]]) -> Answer:
        """The answer to a request."""
        self.seen += 1
        if self.answers:
            return self.answers.pop(0)
        if "client_assertion" in fields or fields.get("grant_type") == [GRANT]:
            return self._by_assertion(authorization, fields)
        account = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        client_id, _, secret = account.partition(":")
        if fields.get("grant_type") != ["client_credentials"]:
            return Answer(400, json.dumps({"error": "unsupported_grant_type"}))
        if self.accounts.get(client_id) != secret:
            return Answer(401, json.dumps({"error": "invalid_client", "error_description": "no!"}))
        return self._granted(fields, client_id)

    def _granted(self, fields: dict[str, list[str]], user: str) -> Answer:
        self.requests.append(fields)
        token = self.issuer.token(sub=user, **self.claims())
        return Answer(200, json.dumps({"access_token": token, "token_type": "Bearer"}))

    def _by_assertion(self, authorization: str, fields: dict[str, list[str]]) -> Answer:
        """With a client assertion, or with one that is the grant: never with both."""
        if fields.get("grant_type") == [GRANT]:
            expected, name = {"grant_type": [GRANT]}, "assertion"
        else:
            expected = {
                "grant_type": ["client_credentials"],
                "client_assertion_type": [ASSERTION_TYPE],
            }
            name = "client_assertion"
        is_form = not authorization and expected.items() <= fields.items()
        user = self._user_of(*fields.get(name, [""])) if is_form else None
        if user is None:
            return Answer(401, json.dumps({"error": "invalid_client"}))
        return self._granted(fields, user)

    def _user_of(self, assertion: str) -> str | None:
        """The claim `sub` of an assertion that is signed, meant for this endpoint, and unused."""
        try:
            claims = json.loads(jws.extract_compact(assertion.encode()).payload)
            key = self.keys[claims["iss"]]
            algorithms = ["RS256" if key.key_type == "RSA" else "ES256"]
            registry = jws.JWSRegistry(algorithms=algorithms, strict_check_header=False)
            jws.deserialize_compact(assertion, key, registry=registry)
        except (JoseError, KeyError, ValueError):
            return None
        now, used = self.wall(), claims.get("jti", "")
        is_timely = claims["nbf"] <= now and claims["iat"] <= now < claims["exp"]
        if claims.get("aud") != self.url or not is_timely or used in self._used:
            return None
        if used:
            self._used.add(used)
        return str(claims["sub"])

    def __enter__(self) -> Self:
        """Serve."""
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._http.shutdown()
        self._http.server_close()

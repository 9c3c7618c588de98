"""Checks every request before the application sees it, and adds the security headers.

* The Host header must be exactly one of the allowed ones, port included: against DNS rebinding.
* An Origin header must be of such a host, and `Sec-Fetch-Site: cross-site` is accepted only for a
  page that a visitor opens by a link: other sites can neither read nor trigger anything here.
* The content security policy allows scripts, styles and requests of this origin only, and no inline
  code, so a topic or a record that contains markup cannot run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}


class RequestGuard:
    """ASGI middleware; see the module docstring."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str]) -> None:
        """Guard `app`, which is reached as one of `hosts` (`HOST:PORT`, lower case)."""
        self._app = app
        self._hosts = hosts
        self._origins = frozenset(f"{scheme}://{h}" for h in hosts for scheme in ("http", "https"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self.refusal(dict(scope["headers"]))
        app = self._app if refusal is None else PlainTextResponse(refusal[1], refusal[0])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *SECURITY_HEADERS.items()]
            await send(message)

        await app(scope, receive, send_with_headers)

    def refusal(self, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Return status and reason if a request with these headers is refused."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if host not in self._hosts:
            return 400, (
                "The Host header does not name this console. If a tunnel or a proxy leads here, "
                "start the console with --host HOST:PORT.\n"
            )
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() not in self._origins:
            return 403, "Requests of other origins are refused.\n"
        is_foreign = headers.get(b"sec-fetch-site") in {b"cross-site", b"same-site"}
        if is_foreign and headers.get(b"sec-fetch-mode") != b"navigate":
            return 403, "Requests of other sites are refused.\n"
        return None

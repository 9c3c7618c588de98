"""The routes of visitors, and the check of roles that every route passes.

/api/me         the visitor's name and role, and how to sign in
/api/sign-in    POST `{"token"}` or `{"user", "password"}`: sets the cookie of a session
/api/sign-out   POST: ends it

A POST must have the header `X-Sparkraft-Console`: pages of other sites cannot send it.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from sparkraft.console.access import TooManyFailuresError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from sparkraft.console.access import Access
    from sparkraft.console.roles import Role, Visitor

    Handler = Callable[[Request], Awaitable[Response]]

POST_HEADER = "x-sparkraft-console"
BODY_BYTES_MAX = 1 << 20

_NO_STORE = {"Cache-Control": "no-store"}


class SignIn:
    """Makes the routes of an application: each with the role it takes."""

    def __init__(self, access: Access, cookie: str) -> None:
        """Know visitors by `access`; `cookie` is the name of the session's cookie."""
        self._access = access
        self._cookie = cookie

    def route(
        self, path: str, handler: Handler, role: Role | None, *, method: str = "GET"
    ) -> Route:
        """Return a route for visitors of at least this role; None is everyone."""

        async def checked(request: Request) -> Response:
            if method == "POST" and POST_HEADER not in request.headers:
                return _refused(HTTPStatus.FORBIDDEN, f"the header {POST_HEADER} is missing")
            if role is not None:
                visitor = self.visitor(request)
                if visitor is None:
                    return _refused(HTTPStatus.UNAUTHORIZED, "sign in first")
                if visitor.role < role:
                    return _refused(
                        HTTPStatus.FORBIDDEN,
                        f"this takes the role {role.name.lower()}, and you are a"
                        f" {visitor.role.name.lower()}",
                    )
            return await handler(request)

        return Route(path, checked, methods=[method])

    def routes(self) -> list[Route]:
        """The routes of this module."""
        return [
            self.route("/api/me", self.me, None),
            self.route("/api/sign-in", self.sign_in, None, method="POST"),
            self.route("/api/sign-out", self.sign_out, None, method="POST"),
        ]

    def visitor(self, request: Request) -> Visitor | None:
        address = request.client.host if request.client is not None else ""
        return self._access.visitor(address, request.cookies.get(self._cookie), request.headers)

    def audit(self, request: Request, change: str) -> None:
        """Print one line about a change or a failed one, with the visitor that made it."""
        visitor = self.visitor(request)
        name = "?" if visitor is None or visitor.name is None else visitor.name
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        address = request.client.host if request.client is not None else "?"
        line = f"{at} audit: {name!r} at {address} {change}"
        # A reason may quote a name that contains line breaks.
        sys.stderr.write("".join(c if c.isprintable() else repr(c)[1:-1] for c in line) + "\n")
        sys.stderr.flush()

    async def me(self, request: Request) -> Response:
        visitor = self.visitor(request)
        document = {
            "name": None if visitor is None else visitor.name,
            "role": None if visitor is None else visitor.role.name.lower(),
            "acceptsPasswords": self._access.accepts_passwords,
        }
        return JSONResponse(document, headers=_NO_STORE)

    async def sign_in(self, request: Request) -> Response:
        try:
            body = await json_body(request)
            if "token" in body:
                cookie = self._access.sign_in_with_token(str(body["token"]))
            else:
                cookie = await self._access.sign_in(str(body["user"]), str(body["password"]))
        except (KeyError, ValueError) as error:
            return _refused(HTTPStatus.BAD_REQUEST, f"bad request: {error}")
        except TooManyFailuresError:
            return _refused(
                HTTPStatus.TOO_MANY_REQUESTS, "too many sign-ins failed; wait for a minute"
            )
        if cookie is None:
            wrong = "token is wrong or used" if "token" in body else "user or password is wrong"
            return _refused(HTTPStatus.UNAUTHORIZED, f"the {wrong}")
        response = Response(status_code=HTTPStatus.NO_CONTENT, headers=_NO_STORE)
        response.set_cookie(self._cookie, cookie, httponly=True, samesite="strict", path="/")
        return response

    async def sign_out(self, request: Request) -> Response:
        self._access.sign_out(request.cookies.get(self._cookie))
        response = Response(status_code=HTTPStatus.NO_CONTENT, headers=_NO_STORE)
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", path="/")
        return response


async def json_body(request: Request) -> dict[str, Any]:
    """Read a JSON object; ValueError if it is too large or is not one."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise ValueError(f"the body has more than {BODY_BYTES_MAX} bytes")
    try:
        found = json.loads(body)
    except RecursionError:
        raise ValueError("the body has too many nested arrays and objects") from None
    if not isinstance(found, dict):
        raise ValueError("the body is not a JSON object")  # noqa: TRY004 (a bad request)
    return found


def _refused(status: HTTPStatus, reason: str) -> Response:
    return PlainTextResponse(f"{reason}\n", status, headers=_NO_STORE)

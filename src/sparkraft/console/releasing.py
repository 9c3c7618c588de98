"""A streamed response that occupies one of a limited number of places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive, Scope, Send


class ReleasingResponse(StreamingResponse):
    """Releases its place at the end.

    A body cannot do that in a `finally`: that of a page that has disconnected never begins.
    """

    def __init__(
        self, body: AsyncIterator[bytes], *, media_type: str, release: Callable[[], None]
    ) -> None:
        """Stream `body`, then call `release` once."""
        super().__init__(body, media_type=media_type, headers={"Cache-Control": "no-store"})
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()

"""Opens TLS connections over any `connect`: of asyncio's loop, or of a node's network."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from sparkraft.tls.stream import RECEIVE_BYTES, TlsFailedError, TlsSide, TlsStream

if TYPE_CHECKING:
    import ssl

    from sparkraft.security.tls_settings import TlsSettings

    Connect = Callable[[Callable[[], asyncio.Protocol], str, int], Awaitable[Any]]
    """Opens a transport for the factory's protocol, to a host and port; OSError if it fails."""


def client_dialing(settings: "TlsSettings", connect: "Connect | None" = None) -> "Connect":
    """Return the `connect` of a client with these settings, above another one.

    Raises:
        TlsConfigError: a store is missing, cannot be read or is invalid.
    """
    from sparkraft.tls.contexts import client_context

    context = client_context(settings)
    return TlsDialer(lambda: context, connect).connect


class TlsDialer:
    """A client's TLS: its connections share the context and the buffer they receive into."""

    def __init__(
        self, context: "Callable[[], ssl.SSLContext]", connect: "Connect | None" = None
    ) -> None:
        """Use `context()` for each new connection.

        Args:
            context: returns the context to use.
            connect: opens the transport below, by default the running loop's `create_connection`.
        """
        self._context = context
        self._connect = connect
        self._buffer = bytearray(RECEIVE_BYTES)

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> TlsStream:
        """Connect, and complete the handshake; the certificate must be for `host`.

        Raises:
            OSError: the connection is refused or lost, or the handshake fails.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        side = TlsSide(
            context=self._context,
            server_side=False,
            buffer=self._buffer,
            may_work=lambda _: True,
            on_secured=lambda _: _finish(done, None),
            on_failed=lambda _, error: _finish(done, error),
        )
        made: list[TlsStream] = []

        def stream() -> asyncio.Protocol:
            made.append(TlsStream(factory(), side, server_hostname=host))
            return cast("asyncio.Protocol", made[-1])  # transports take buffered protocols, too

        dial = self._connect or asyncio.get_running_loop().create_connection
        await dial(stream, host, port)
        try:
            await done
        except asyncio.CancelledError:
            made[-1].abort()
            raise
        return made[-1]


def _finish(done: "asyncio.Future[None]", error: TlsFailedError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)

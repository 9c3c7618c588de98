"""TLS between an asyncio transport and a protocol: transport for the protocol, and the reverse.

    raw transport ──buffer_updated──▶ incoming BIO ──read──▶ protocol.data_received
    raw transport ◀────write───────── outgoing BIO ◀─write── protocol

The protocol gets `connection_made` at once, so that a listener counts the connection, and its first
bytes after the handshake.

Invariants:
    * Nothing that arrives before the handshake is complete reaches the protocol. In TLS 1.3 a
      client may send its first request before the server has checked its certificate.
    * An alert is flushed before the connection closes; without it the peer sees a lost connection
      and retries, although its certificate will never be accepted.
    * A handshake is bounded in time (`HANDSHAKE_S_MAX`) and bytes (`HANDSHAKE_BYTES_MAX`).

Not here: contexts (`sparkraft.tls.contexts`); limits of listeners (`server.network.listener`).
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from sparkraft.base.loop_work import LoopBound

RECEIVE_BYTES: LoopBound = 256 * 1024
"""Ciphertext received at once, into a buffer that all streams of one owner share."""

RECORD_BYTES = 16 * 1024
"""The longest plaintext of a TLS record; one read from OpenSSL returns at most a record."""

PIECE_BYTES: LoopBound = 64 * 1024
"""Plaintext encrypted and sent at once: larger pieces leave the processor's cache before that."""

HANDSHAKE_S_MAX = 30.0
"""The peer must finish its handshake within this time; reading may be paused meanwhile."""

HANDSHAKE_BYTES_MAX = 256 * 1024
"""Bytes a peer may send before the handshake ends: certificate chains have some 10 KB."""

ALERT_S_MAX = 1.0
"""How long a failed connection stays open for the peer to read the alert."""


class TlsFailedError(OSError):
    """A handshake failed, or the peer was refused after it; the message has the reason."""


class _State(Enum):
    """A stream's use of the bytes that arrive."""

    HANDSHAKE = "passes them to OpenSSL; ends with the handshake or its failure"
    OPEN = "decrypts them for the protocol; ends when either side closes"
    CLOSING = "drops them; ends when the transport is closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSide:
    """The common parts of the streams of one listener or client.

    Attributes:
        context: returns the context of a new connection.
        server_side: whether they accept connections.
        buffer: receives their ciphertext, one stream at a time.
        may_work: whether a stream may continue its handshake now; if not, `run` is called later.
        on_secured: called once the handshake is complete, before the protocol gets any data. A
            `TlsFailedError` refuses the peer.
        on_failed: called when the handshake fails or the peer is refused.
    """

    context: Callable[[], ssl.SSLContext]
    server_side: bool
    buffer: bytearray
    may_work: Callable[["TlsStream"], bool]
    on_secured: Callable[["TlsStream"], None]
    on_failed: Callable[["TlsStream", TlsFailedError], None]


class TlsStream(asyncio.BufferedProtocol, asyncio.Transport):
    """See the module docstring.

    Attributes:
        protocol: sends and receives plaintext.
        max_size: bytes that are received at once, as asyncio's own transports call it.
    """

    max_size = RECEIVE_BYTES

    def __init__(
        self, protocol: asyncio.Protocol, side: TlsSide, *, server_hostname: str | None = None
    ) -> None:
        """Start when the transport is connected.

        Args:
            protocol: sends and receives plaintext.
            side: shared by the streams of a listener or client.
            server_hostname: of the server, on its client; compared with its certificate if the
                context checks host names.
        """
        asyncio.Transport.__init__(self)
        self.protocol = protocol
        self._side = side
        self._state = _State.HANDSHAKE
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = side.context().wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=side.server_side,
            server_hostname=server_hostname,
        )
        self._raw: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._handshake_bytes = 0
        self._failure: TlsFailedError | None = None
        self._reading_paused = False

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's own certificate (DER), which the context has verified; None without one."""
        return self._tls.getpeercert(binary_form=True)

    def run(self) -> None:
        """Continue the handshake with what has arrived."""
        if self._state is _State.HANDSHAKE:
            self._shake_hands()

    # ---- called by the transport below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)
        self._set_timer(HANDSHAKE_S_MAX, self._on_late)
        self.protocol.connection_made(self)
        if not self._side.server_side and not self._raw.is_closing():
            self._shake_hands()

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        buffer = self._side.buffer
        return buffer if self.max_size >= len(buffer) else memoryview(buffer)[: self.max_size]

    def buffer_updated(self, nbytes: int) -> None:
        if self._state is _State.CLOSING:
            return
        self._incoming.write(memoryview(self._side.buffer)[:nbytes])
        if self._state is _State.OPEN:
            self._read()
            return
        self._handshake_bytes += nbytes
        if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._fail(f"more than {HANDSHAKE_BYTES_MAX} bytes before the end of the handshake")
        elif self._side.may_work(self):
            self._shake_hands()

    def eof_received(self) -> bool | None:
        if self._state is _State.HANDSHAKE:
            self._fail("the peer closed the connection during the handshake")
        elif self._state is _State.OPEN:
            return self.protocol.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._state is _State.HANDSHAKE:
            self._fail(str(exc or "the connection was lost during the handshake"))
        self._state = _State.CLOSING
        self._stop_timer()
        self.protocol.connection_lost(self._failure or exc)

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()

    # ---- called by the protocol above

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send `data`; nothing is sent any more once the stream is closing."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt and send the parts; a small one leaves with the next one, uncopied."""
        if self._state is not _State.OPEN:
            return
        encrypt, outgoing = self._tls.write, self._outgoing
        try:
            for data in list_of_data:
                view = memoryview(data)
                for at in range(0, len(view), PIECE_BYTES):
                    encrypt(view[at : at + PIECE_BYTES])
                    if outgoing.pending >= PIECE_BYTES:
                        self._raw.write(outgoing.read())
            if outgoing.pending:
                self._raw.write(outgoing.read())
        except ssl.SSLError as error:
            self._fail(_reason(error))

    def pause_reading(self) -> None:
        """Stop `data_received`; all decrypted bytes were delivered already."""
        self._reading_paused = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._reading_paused = False
        if self._state is not _State.CLOSING:
            self._raw.resume_reading()

    def is_reading(self) -> bool:
        return not self._reading_paused

    def is_closing(self) -> bool:
        return self._state is _State.CLOSING or self._raw.is_closing()

    def close(self) -> None:
        """Send close_notify and close once all is sent."""
        if self._state is _State.CLOSING:
            return
        if self._state is _State.OPEN:
            with suppress(ssl.SSLError):  # the peer's own close_notify is not waited for
                self._tls.unwrap()
            self._flush()
        self._state = _State.CLOSING
        self._stop_timer()
        self._raw.close()

    def can_write_eof(self) -> bool:
        """TLS 1.2 has no end of one direction alone; `close` ends both."""
        return False

    def abort(self) -> None:
        """Close at once."""
        self._state = _State.CLOSING
        self._raw.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        if name == "sslcontext":
            return self._tls.context
        return self._raw.get_extra_info(name, default)

    # ---- the handshake

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._fail(_reason(error))
            return
        self._flush()
        self._stop_timer()
        try:
            self._side.on_secured(self)
        except TlsFailedError as error:
            self._fail(str(error))
            return
        self._state = _State.OPEN
        self._read()

    def _on_late(self) -> None:
        """Time is up; a connection whose reading is paused waits for us, not we for it."""
        if self._reading_paused:
            self._set_timer(HANDSHAKE_S_MAX, self._on_late)
        else:
            self._fail(f"the handshake took longer than {HANDSHAKE_S_MAX:g} s")

    def _read(self) -> None:
        """Pass on everything that can be decrypted, in one piece."""
        chunks: list[bytes] = []
        ended, failure = False, ""
        try:
            while chunk := self._tls.read(RECORD_BYTES):
                chunks.append(chunk)
                if not (self._incoming.pending or self._tls.pending()):
                    break  # cheaper than the exception
            else:
                ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            failure = _reason(error)
        if self._outgoing.pending:
            self._flush()
        if chunks:
            self.protocol.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if failure:
            self._fail(failure)
        elif ended and not self.protocol.eof_received():
            self.close()

    # ---- the end

    def _fail(self, reason: str) -> None:
        """Send the alert, and close when the peer has had time to read it."""
        if self._state is _State.CLOSING:
            return
        self._state = _State.CLOSING
        self._failure = TlsFailedError(reason)
        self._flush()
        self._side.on_failed(self, self._failure)
        if self._raw.is_closing():
            return
        # Closing a socket with unread bytes resets the connection, and the alert may be lost.
        if self._raw.can_write_eof():
            self._raw.write_eof()
        if self._reading_paused:
            self._raw.resume_reading()
        self._set_timer(ALERT_S_MAX, self._raw.abort)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def _set_timer(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(delay_s, callback)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def limit_reads(transport: asyncio.Transport | None, bytes_max: int) -> None:
    """Receive at most `bytes_max` bytes at once.

    `max_size` is an attribute of asyncio's transports and of `TlsStream`; others have no limit.
    """
    if transport is not None and hasattr(transport, "max_size"):
        transport.max_size = bytes_max


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's reason in words, such as `certificate verify failed: self-signed certificate`."""
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        return f"{reason}: {error.verify_message}"
    return reason

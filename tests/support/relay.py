"""A port of this host that passes its connections on to another one: a second address of a node."""

import socket
import threading
from contextlib import suppress
from typing import Self

CHUNK_BYTES = 65536


class Relay:
    """Listens on 127.0.0.1 until the block ends.

    Attributes:
        port: that it listens on.
        connections: how many it has accepted.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._sockets: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.connections = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listening, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return  # the block has ended
            try:
                target = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                accepted.close()  # nothing listens there, for now
                continue
            self.connections += 1
            self._sockets += [accepted, target]
            for source, sink in ((accepted, target), (target, accepted)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(CHUNK_BYTES):
            sink.sendall(received)
        sink.shutdown(socket.SHUT_WR)

"""`zookeeper.connect`: `HOST:PORT,HOST:PORT/chroot`; the chroot is written once, at the end."""

from typing import NamedTuple

PORT = 2181


class ConnectString(NamedTuple):
    """An ensemble and the znode below which everything is.

    Attributes:
        servers: (host, port); at least one.
        chroot: without a trailing slash; empty for the root.
    """

    servers: tuple[tuple[str, int], ...]
    chroot: str

    def __str__(self) -> str:
        hosts = (
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers
        )
        return ",".join(hosts) + self.chroot


def parse_connect_string(text: str) -> ConnectString:
    """Parse `zookeeper.connect`.

    Raises:
        ValueError: no server, a port that is not one, or a chroot that is not a path.
    """
    hosts, slash, rest = text.strip().partition("/")
    chroot = f"/{rest}".rstrip("/") if slash else ""
    if "//" in chroot:
        raise ValueError(f"{text!r}: empty name in the chroot {chroot}")
    servers = tuple(_server(part.strip()) for part in hosts.split(",") if part.strip())
    if not servers:
        raise ValueError(f"{text!r} names no server; expected HOST:PORT[,HOST:PORT...][/chroot]")
    return ConnectString(servers, chroot)


def _server(text: str) -> tuple[str, int]:
    host, port = text, str(PORT)
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{text!r} is not HOST:PORT of a ZooKeeper server")
    return host, int(port)

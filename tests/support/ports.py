"""Free loopback ports, and waiting with a bound."""

import random
import socket
import time
from collections.abc import Callable


def free_ports(count: int) -> list[int]:
    """`count` different ports nobody listens on now."""
    sockets = []
    try:
        for _ in range(count):
            listener = socket.socket()
            listener.bind(("127.0.0.1", 0))
            sockets.append(listener)
        return [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


def wait_until(
    condition: Callable[[], object], what: str, seconds: float = 60.0, *, pause: float = 0.05
) -> None:
    """Poll `condition` every `pause` until it holds; fail with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s still not: {what}")
        time.sleep(pause)


def accepts(port: int) -> bool:
    """Whether something on loopback accepts connections on `port`."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def lasting_ports(count: int) -> list[int]:
    """`count` free ports below those that systems hand out: a node may come back to them."""
    found: list[int] = []
    for port in random.sample(range(15_000, 32_000), 1_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"no {count} free ports")

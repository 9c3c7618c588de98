"""Free loopback ports, and waiting with a bound."""

import random
import socket
import time
from collections import deque
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


_BLOCK_PORTS = 100
_LASTING = range(15_000, 32_000, _BLOCK_PORTS)
"""Starts of blocks of ports, below those that systems hand out."""

_claims: list[socket.socket] = []
_claimed: deque[int] = deque()


def lasting_ports(count: int) -> list[int]:
    """`count` free ports that a node may come back to: no other process of tests gets them.

    A process claims a block of ports by holding its first one for as long as it lives, and takes
    from its blocks in turn.
    """
    found: list[int] = []
    untried = len(_claimed)
    while len(found) < count:
        if not untried:
            untried = _claim_a_block()
        port = _claimed.popleft()
        _claimed.append(port)
        untried -= 1
        if _can_be_bound(port):
            found.append(port)
    return found


def _can_be_bound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _claim_a_block() -> int:
    """Put a block's ports in front; how many there are."""
    for first in random.sample(_LASTING, len(_LASTING)):
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", first))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        _claimed.extendleft(range(first + 1, first + _BLOCK_PORTS))
        return _BLOCK_PORTS - 1
    raise AssertionError("every block of ports is taken")

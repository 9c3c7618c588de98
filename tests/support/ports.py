"""Free loopback ports, and waiting with a bound."""

import random
import socket
import time
from collections import deque
from collections.abc import Callable, Collection


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


class _Pool:
    """Ports of one range, of which a process claims a block after another as it needs them.

    A block is claimed by holding its first port for as long as the process lives, so no other
    process of tests gets the rest: a node may come back to its ports. Ports are given in turn, the
    longest unused first. One that was just given is not given again, though it can still be bound:
    where the others wait for the kernel (TIME_WAIT), the turn would come round to it at once.
    """

    def __init__(self, ports: range, block: int, step: int = 1) -> None:
        """Claim nothing yet.

        Args:
            ports: all of them, below those that systems hand out.
            block: ports in a block, the claiming one included.
            step: distance of two ports that are given.
        """
        self._starts = range(ports.start, ports.stop, block)
        self._block = block
        self._step = step
        self._claims: list[socket.socket] = []
        self._claimed: deque[int] = deque()
        self._given: deque[int] = deque(maxlen=block // step // 3)

    def take(self, count: int) -> list[int]:
        """`count` different ports that can be bound now."""
        found: list[int] = []
        untried = len(self._claimed)
        while len(found) < count:
            if not untried:
                untried = self._claim_a_block()
            port = self._claimed.popleft()
            self._claimed.append(port)
            untried -= 1
            if port not in self._given and _can_be_bound(port):
                found.append(port)
                self._given.append(port)
        return found

    def retire(self, ports: Collection[int]) -> None:
        """Never give these ports again."""
        self._claimed = deque(port for port in self._claimed if port not in ports)

    def _claim_a_block(self) -> int:
        """Put a block's ports in front; how many there are."""
        for first in random.sample(self._starts, len(self._starts)):
            claim = socket.socket()
            try:
                claim.bind(("127.0.0.1", first))
            except OSError:
                claim.close()
                continue
            self._claims.append(claim)
            ports = range(first + 1, first + self._block, self._step)
            self._claimed.extendleft(reversed(ports))
            return len(ports)
        raise AssertionError("every block of ports is taken")


def _can_be_bound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_lasting = _Pool(range(15_000, 32_000), block=100)
_of_clusters = _Pool(range(10_000, 11_000), block=50, step=5)


def lasting_ports(count: int) -> list[int]:
    """`count` free ports that a node may come back to: no other process of tests gets them."""
    return _lasting.take(count)


def retire_ports(ports: Collection[int]) -> None:
    """Keep ports of `lasting_ports` from other clusters: a client in this process still uses them.

    A librdkafka client whose call never returns cannot be closed. It lives as long as the process
    and would create its topics in whatever cluster gets the ports.
    """
    _lasting.retire(ports)


def cluster_port() -> int:
    """A port for `sparkraft up`, of which no other process of tests gets what a cluster takes:

    this one, the next four, and the five that lie 1,000, 2,000 and 3,000 above.
    """
    return _of_clusters.take(1)[0]

"""Quotas of new connections by address: `connection_creation_rate` of ip entities (KIP-612).

A connection that exceeds the rate of its address is not served: it is held for the throttle, at
most one window, and then closed, as in Kafka. It does not count against the rate.
"""

from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address

from sparkraft.security.leaky_bucket import LeakyBucket

ADDRESSES_MAX = 10_000
"""Addresses with a rate; the least recently used are dropped."""


class ConnectionQuotas:
    """The quotas of addresses, and their rates of new connections.

    Attributes:
        is_active: some address, or the default, has a quota.
    """

    def __init__(self, *, samples: int, window_ms: int) -> None:
        self.is_active = False
        self._window_ms = window_ms
        self._burst_s = (samples - 1) * window_ms / 1000
        self._limits: Mapping[str | None, float] = {}
        self._used: OrderedDict[str, LeakyBucket] = OrderedDict()

    def update(self, limits: Mapping[str | None, float]) -> None:
        """Use these limits of addresses from now on; rates are kept.

        Args:
            limits: by `plain_address`; None: of all others.
        """
        self._limits = limits
        self.is_active = bool(limits)

    def record(self, host: str, now: int) -> int:
        """Count a connection; how many ms to hold it before it is closed, 0: serve it."""
        address = plain_address(host)
        limit = self._limits.get(address, self._limits.get(None))
        if limit is None:
            return 0
        bucket = self._used.get(address)
        if bucket is None:
            bucket = self._used[address] = LeakyBucket()
            if len(self._used) > ADDRESSES_MAX:
                self._used.popitem(last=False)
        else:
            self._used.move_to_end(address)
        burst = limit * self._burst_s
        throttle_ms = bucket.add(1, limit, burst, now)
        if throttle_ms:
            bucket.add(-1, limit, burst, now)
        return min(throttle_ms, self._window_ms)


def plain_address(host: str) -> str:
    """An address without its zone, and IPv4 in IPv6 as IPv4; other text is unchanged."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)

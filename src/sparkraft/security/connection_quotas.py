"""Quotas of new connections by address: `connection_creation_rate` of ip entities (KIP-612).

A connection that exceeds the rate of its address is not served: it is held for the throttle, at
most one window, and then closed, as in Kafka. It does not count against the rate.
"""

from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address

from sparkraft.security.windowed_rate import WindowedRate

ADDRESSES_MAX = 10_000
"""Addresses with a rate; the least recently used are dropped."""


class ConnectionQuotas:
    """The quotas of addresses, and their rates of new connections.

    Attributes:
        is_active: some address, or the default, has a quota.
    """

    def __init__(self, *, samples: int, window_ms: int) -> None:
        self.is_active = False
        self._samples = samples
        self._window_ms = window_ms
        self._limits: Mapping[str | None, float] = {}
        self._rates: OrderedDict[str, WindowedRate] = OrderedDict()

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
        rate = self._rates.get(address)
        if rate is None:
            rate = self._rates[address] = WindowedRate(
                samples=self._samples, window_ms=self._window_ms
            )
            if len(self._rates) > ADDRESSES_MAX:
                self._rates.popitem(last=False)
        else:
            self._rates.move_to_end(address)
        rate.record(1, now)
        throttle_ms = min(rate.throttle_ms(limit, now), self._window_ms)
        if throttle_ms:
            rate.record(-1, now)
        return throttle_ms


def plain_address(host: str) -> str:
    """An address without its zone, and IPv4 in IPv6 as IPv4; other text is unchanged."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)

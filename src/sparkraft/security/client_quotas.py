"""Byte rates of clients against their quotas, and how long a client must wait (KIP-55, KIP-219).

    windows   |  1 s: 8 MB  |  1 s: 12 MB  | … |  now: 2 MB     quota.window.num of them

A rate is the bytes of the windows, divided by the time since the oldest began, at least all windows
but one. So a client that was idle may send for ten seconds at once. Bytes are recorded first: the
request that exceeds the quota is served, and its client then waits until the rate has dropped to
the quota. The arithmetic is that of Kafka's Rate and QuotaUtils.

Which quota is in force is in `quotas`. Not here: holding a connection up (`server.network`).
"""

from collections import OrderedDict
from collections.abc import Generator, Mapping
from hashlib import sha256
from itertools import islice

from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.security.connection_quotas import ConnectionQuotas, plain_address
from sparkraft.security.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    IP,
    REQUEST_PERCENTAGE,
    USER,
    USER_AND_CLIENT_KEYS,
    QuotaEntity,
    quota_entity,
)
from sparkraft.security.windowed_rate import WindowedRate

BUCKETS_MAX = 10_000
"""Rates kept, 1.5 KB each; the least recently used are dropped, since clients choose their ids."""

KNOWN_MAX = 10_000
"""Looked-up quotas kept until quotas change; all are dropped at once when there are more."""

ID_LENGTH_MAX = 256
"""Of a client id that is kept. Ids may have 32 KB, and 10,000 of them would take 320 MB."""

BURST_MAX = (1 << 31) - 1
"""Bytes of the largest response."""

Bucket = tuple[str, str | None, str | None]
"""Key of the quota, user and client id; None if clients of all users or all ids share it."""


class ClientQuotas:
    """The quotas of users and client ids, and the rates of a broker's clients.

    Attributes:
        is_active: some quota is set; if not, nothing needs to be recorded.
        measures_time: some of them is a `request_percentage`.
        addresses: the quotas of addresses, which follow `update`, too.
    """

    def __init__(self, *, samples: int = 11, window_ms: int = 1000) -> None:
        """Limit nothing until `update`.

        Args:
            samples: `quota.window.num`.
            window_ms: the length of a window.
        """
        self.is_active = False
        self.measures_time = False
        self.addresses = ConnectionQuotas(samples=samples, window_ms=window_ms)
        self._samples = samples
        self._window_ms = window_ms
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._known: dict[Bucket, tuple[float, Bucket] | None] = {}
        self._rates: OrderedDict[Bucket, WindowedRate] = OrderedDict()

    def update(
        self, quotas: Mapping[QuotaEntity, Mapping[str, float]]
    ) -> Generator[int, None, None] | None:
        """Use these quotas from now on; rates are kept.

        Returns None, or for very many quotas steps that yield how many they have looked through.
        Before these end, the quotas of addresses are the old ones, and requests may be measured
        without need.
        """
        if quotas is self._quotas:
            return None
        self._quotas = quotas
        self._known.clear()
        for rate in self._rates.values():
            rate.hold_until(0)
        self.is_active = self.measures_time = True
        steps = self._look_through(quotas)
        if len(quotas) > LOOP_WORK_MAX.partitions:
            return steps
        for _ in steps:
            pass
        return None

    def _look_through(
        self, quotas: Mapping[QuotaEntity, Mapping[str, float]]
    ) -> Generator[int, None, None]:
        """Find out which kinds of quotas are set, unless others are in use meanwhile."""
        keys: set[str] = set()
        addresses: dict[str | None, float] = {}
        for entity in quotas:
            limits = quotas[entity]
            keys.update(limits)
            limit = limits.get(CONNECTION_CREATION_RATE)
            if limit is not None and [kind for kind, _ in entity] == [IP]:
                name = entity[0][1]
                addresses[None if name is None else plain_address(name)] = limit
            yield 1
            if self._quotas is not quotas:
                return
        self.is_active = not USER_AND_CLIENT_KEYS.isdisjoint(keys)
        self.measures_time = REQUEST_PERCENTAGE in keys
        self.addresses.update(addresses)

    def record_time(self, user: str, client_id: str | None, seconds: float, now: int) -> int:
        """Add a request's time, and return how long its client must wait, in ms (KIP-124).

        That is one window at most; a client above its quota then waits after each request.
        """
        percent = seconds * 100
        return min(self.record(REQUEST_PERCENTAGE, user, client_id, percent, now), self._window_ms)

    def record(self, key: str, user: str, client_id: str | None, amount: float, now: int) -> int:
        """Add an amount to a client's rate, and return how long it must wait, in ms; 0: not."""
        found = self.limit_of(key, user, client_id or "")
        if found is None:
            return 0
        limit, bucket = found
        rate = self._rates.get(bucket)
        if rate is None:
            rate = self._rates[bucket] = WindowedRate(
                samples=self._samples, window_ms=self._window_ms
            )
            if len(self._rates) > BUCKETS_MAX:
                self._rates.popitem(last=False)
        else:
            self._rates.move_to_end(bucket)
        rate.record(amount, now)
        throttle_ms = rate.throttle_ms(limit, now)
        rate.hold_until(now + throttle_ms)
        return throttle_ms

    def throttle_left(self, key: str, user: str, client_id: str | None, now: int) -> int:
        """How long a client must still wait for what it got before, in ms.

        Its connection is held up for that time, so such a client has come on another one.
        """
        found = self.limit_of(key, user, client_id or "")
        rate = None if found is None else self._rates.get(found[1])
        return 0 if rate is None else max(0, rate.held_until - now)

    def rates(self, count_max: int, now: int) -> list[tuple[Bucket, float]]:
        """The rates of the most recently active clients with a quota, sorted by bucket."""
        latest = islice(reversed(self._rates.items()), count_max)
        found = [(bucket, rate.per_second(now)) for bucket, rate in latest]
        return sorted(found, key=lambda one: [part or "" for part in one[0]])

    def burst_max(self, key: str, user: str, client_id: str | None) -> int | None:
        """The most that an idle client may get at once; None: it has no quota."""
        found = self.limit_of(key, user, client_id or "")
        if found is None:
            return None
        most = found[0] * (self._samples - 1) * self._window_ms / 1000
        return int(most) if most < BURST_MAX else BURST_MAX

    def limit_of(self, key: str, user: str, client_id: str) -> tuple[float, Bucket] | None:
        """The limit in force for a client, and the bucket it shares."""
        asked = (key, user, client_id)
        if len(client_id) > ID_LENGTH_MAX:
            return self._look_up(key, user, client_id)
        if asked not in self._known:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[asked] = self._look_up(key, user, client_id)
        return self._known[asked]

    def _look_up(self, key: str, user: str, client_id: str) -> tuple[float, Bucket] | None:
        kept_id = client_id if len(client_id) <= ID_LENGTH_MAX else _digest(client_id)
        both = (key, user, kept_id)
        of_user, of_id = (key, user, None), (key, None, kept_id)
        for entity, bucket in (
            ({USER: user, CLIENT_ID: client_id}, both),
            ({USER: user, CLIENT_ID: None}, both),
            ({USER: user}, of_user),
            ({USER: None, CLIENT_ID: client_id}, both),
            ({USER: None, CLIENT_ID: None}, both),
            ({USER: None}, of_user),
            ({CLIENT_ID: client_id}, of_id),
            ({CLIENT_ID: None}, of_id),
        ):
            limit = self._quotas.get(quota_entity(entity.items()), {}).get(key)
            if limit is not None:
                return limit, bucket
        return None


def _digest(client_id: str) -> str:
    """A short name for a client id that is too long to be kept."""
    return f"{client_id[:32]}… sha256 {sha256(client_id.encode()).hexdigest()}"

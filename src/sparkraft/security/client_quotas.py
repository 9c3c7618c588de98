"""Quotas of clients, and how long those above them must wait (KIP-55, KIP-124, KIP-219).

Amounts are recorded first: the request that exceeds the quota is served, and its client then waits.
A client that was idle may take ten seconds of its quota at once, quota.window.num windows but one,
as in Kafka; from then on its quota (`leaky_bucket`, in which ours differs from Kafka's). Metrics
show rates over these windows (`windowed_rate`).

Which quota is in force is in `quotas`. Not here: holding a connection up (`server.network`).
"""

from collections import OrderedDict
from collections.abc import Generator, Mapping
from hashlib import sha256
from itertools import islice

from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.security.connection_quotas import ConnectionQuotas, plain_address
from sparkraft.security.leaky_bucket import LeakyBucket
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


class ClientUse:
    """The use of one quota, by all clients that share it.

    Attributes:
        bucket: their amounts that have not drained yet.
        held_until: the end of the last throttle, monotonic ms.
    """

    __slots__ = ("_recent", "bucket", "held_until")

    def __init__(self, *, samples: int, window_ms: int) -> None:
        self._recent = WindowedRate(samples=samples, window_ms=window_ms)
        self.bucket = LeakyBucket()
        self.held_until = 0

    def add(self, amount: float, per_second: float, burst: float, now: int) -> int:
        """Add an amount, and return how long the clients must wait; see `LeakyBucket.add`."""
        self._recent.record(amount, now)
        throttle_ms = self.bucket.add(amount, per_second, burst, now)
        self.held_until = now + throttle_ms
        return throttle_ms

    def release(self) -> None:
        """End the last throttle: the quota may have changed."""
        self.held_until = 0

    def recent(self, now: int) -> float:
        """The rate of the last windows, per second."""
        return self._recent.per_second(now)


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
        self._burst_s = (samples - 1) * window_ms / 1000
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._known: dict[Bucket, tuple[float, Bucket] | None] = {}
        self._used: OrderedDict[Bucket, ClientUse] = OrderedDict()

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
        for used in self._used.values():
            used.release()
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

        That is one window at most; a client above its quota then waits after each request. It may
        not wait for all that it took, so no more than a burst of that is kept against it.
        """
        percent = seconds * 100
        return min(self.record(REQUEST_PERCENTAGE, user, client_id, percent, now), self._window_ms)

    def record(self, key: str, user: str, client_id: str | None, amount: float, now: int) -> int:
        """Add an amount to a client's rate, and return how long it must wait, in ms; 0: not."""
        found = self.limit_of(key, user, client_id or "")
        if found is None:
            return 0
        limit, bucket = found
        used = self._used.get(bucket)
        if used is None:
            used = self._used[bucket] = ClientUse(samples=self._samples, window_ms=self._window_ms)
            if len(self._used) > BUCKETS_MAX:
                self._used.popitem(last=False)
        else:
            self._used.move_to_end(bucket)
        burst = limit * self._burst_s
        throttle_ms = used.add(amount, limit, burst, now)
        if key == REQUEST_PERCENTAGE:
            used.bucket.forgive(2 * burst)
        return throttle_ms

    def throttle_left(self, key: str, user: str, client_id: str | None, now: int) -> int:
        """How long a client must still wait for what it got before, in ms.

        Its connection is held up for that time, so such a client has come on another one.
        """
        found = self.limit_of(key, user, client_id or "")
        used = None if found is None else self._used.get(found[1])
        return 0 if used is None else max(0, used.held_until - now)

    def rates(self, count_max: int, now: int) -> list[tuple[Bucket, float]]:
        """The rates of the most recently active clients with a quota, sorted by bucket."""
        latest = islice(reversed(self._used.items()), count_max)
        found = [(bucket, used.recent(now)) for bucket, used in latest]
        return sorted(found, key=lambda one: [part or "" for part in one[0]])

    def burst_max(self, key: str, user: str, client_id: str | None) -> int | None:
        """The most that an idle client may get at once; None: it has no quota."""
        found = self.limit_of(key, user, client_id or "")
        if found is None:
            return None
        most = found[0] * self._burst_s
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

"""Quotas of partitions created and deleted: token buckets (KIP-599).

A bucket fills by `controller_mutation_rate` a second up to controller.quota.window.num windows of
it. A topic may be changed while the bucket is not below zero, whatever the number of its
partitions, and then costs a token for each. The arithmetic is that of Kafka's TokenBucket; a
request is strict or permissive as in ControllerMutationQuotaManager:

    strict       a topic that finds the bucket below zero fails, and costs nothing
    permissive   older versions, which cannot report the error: everything is done

In both cases the response reports how long the client must wait.
"""

import math
from collections import OrderedDict
from collections.abc import Callable

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.security.client_quotas import BUCKETS_MAX, Bucket, ClientQuotas
from sparkraft.security.quotas import CONTROLLER_MUTATION_RATE
from sparkraft.security.windowed_rate import whole_ms

EXCEEDED = "The throttling quota has been exceeded."
"""Kafka's text of THROTTLING_QUOTA_EXCEEDED."""


class TokenBucket:
    """Tokens of one client; below zero it must wait."""

    __slots__ = ("_last_ms", "tokens")

    def __init__(self, burst: float, now: int) -> None:
        self.tokens = burst
        self._last_ms = now

    def fill(self, per_second: float, burst: float, now: int) -> None:
        """Add the tokens of the time since the last call, up to `burst`."""
        self.tokens = min(burst, self.tokens + per_second * (now - self._last_ms) / 1000)
        self._last_ms = now

    def take(self, count: float) -> None:
        """Remove tokens, also below zero."""
        self.tokens -= count


class MutationQuota:
    """The quota of one request; without a limit it accepts everything."""

    def __init__(
        self,
        bucket: TokenBucket | None,
        per_second: float,
        burst: float,
        *,
        is_strict: bool,
        now_ms: Callable[[], int],
    ) -> None:
        self._bucket = bucket
        self._per_second = per_second
        self._burst = burst
        self._is_strict = is_strict
        self._now_ms = now_ms
        self._throttled_until_ms = 0

    def apply(self, changes: int) -> None:
        """Take the tokens of `changes` partitions.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED if the request is strict.
        """
        bucket = self._bucket
        if bucket is None:
            return
        now = self._now_ms()
        bucket.fill(self._per_second, self._burst, now)
        if not self._is_strict:
            bucket.take(changes)
        if bucket.tokens < 0:
            needed_s = -bucket.tokens / self._per_second if self._per_second else math.inf
            self._throttled_until_ms = now + whole_ms(needed_s * 1000)
            if self._is_strict:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, EXCEEDED)
        elif self._is_strict:
            bucket.take(changes)

    @property
    def throttle_ms(self) -> int:
        """How long the client must wait from now on."""
        return max(0, self._throttled_until_ms - self._now_ms())


class MutationQuotas:
    """The buckets of a controller's clients."""

    def __init__(self, *, samples: int, window_ms: int) -> None:
        """Limit nothing until `limits` has quotas.

        Args:
            samples: `controller.quota.window.num`.
            window_ms: the length of a window.
        """
        self.limits = ClientQuotas()
        self._burst_s = samples * window_ms / 1000
        self._buckets: OrderedDict[Bucket, TokenBucket] = OrderedDict()

    def quota_of(
        self, user: str, client_id: str | None, *, is_strict: bool, now_ms: Callable[[], int]
    ) -> MutationQuota:
        """The quota of a client's request."""
        found = self.limits.limit_of(CONTROLLER_MUTATION_RATE, user, client_id or "")
        if found is None:
            return MutationQuota(None, 0, 0, is_strict=is_strict, now_ms=now_ms)
        per_second, key = found
        burst = per_second * self._burst_s
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(burst, now_ms())
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return MutationQuota(bucket, per_second, burst, is_strict=is_strict, now_ms=now_ms)

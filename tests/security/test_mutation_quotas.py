"""Token buckets of partition changes: Kafka's TokenBucket, strict or permissive (KIP-599)."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.security.client_quotas import BUCKETS_MAX
from sparkraft.security.mutation_quotas import MutationQuota, MutationQuotas
from sparkraft.security.quotas import CONTROLLER_MUTATION_RATE


class Clients:
    """Clients of a controller whose users may change two partitions a second."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.quotas = MutationQuotas(samples=11, window_ms=1000)
        self.quotas.limits.update({(("user", None),): {CONTROLLER_MUTATION_RATE: 2.0}})

    def request(self, user: str = "u", *, is_strict: bool = True) -> MutationQuota:
        return self.quotas.quota_of(user, "c", is_strict=is_strict, now_ms=lambda: self.now)


def is_refused(quota: MutationQuota, changes: int) -> bool:
    try:
        quota.apply(changes)
    except KafkaError as error:
        return error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return False


def test_a_request_is_admitted_while_the_bucket_is_not_below_zero():
    clients = Clients()
    first = clients.request()
    assert not is_refused(first, 22), "all windows"
    assert not is_refused(first, 10), "at zero, whatever it costs"
    assert first.throttle_ms == 0
    assert is_refused(first, 1)
    assert first.throttle_ms == 5_000
    clients.now += 1_000
    assert first.throttle_ms == 4_000
    assert is_refused(clients.request(), 1)
    assert not is_refused(clients.request("v"), 1), "another user has a bucket of its own"
    clients.now += 4_000
    assert not is_refused(clients.request(), 1), "the refused ones have cost nothing"


def test_a_permissive_request_is_done_and_reports_the_wait():
    clients = Clients()
    quota = clients.request(is_strict=False)
    quota.apply(22)
    assert quota.throttle_ms == 0
    quota.apply(10)
    assert quota.throttle_ms == 5_000


def test_a_bucket_holds_no_more_than_its_burst():
    clients = Clients()
    clients.request().apply(1)
    clients.now += 10**9
    quota = clients.request()
    assert not is_refused(quota, 23)
    assert is_refused(quota, 1)


def test_without_a_quota_everything_is_admitted():
    quotas = MutationQuotas(samples=11, window_ms=1000)
    quota = quotas.quota_of("u", None, is_strict=True, now_ms=lambda: 0)
    quota.apply(10**6)
    assert quota.throttle_ms == 0


@pytest.mark.parametrize("count", [BUCKETS_MAX + 10])
def test_buckets_are_bounded(count):
    clients = Clients()
    for number in range(count):
        clients.request(f"u{number}").apply(1)
    assert len(clients.quotas._buckets) == BUCKETS_MAX


@pytest.mark.parametrize("limit", [1e-9, 5e-324])
def test_a_throttle_has_room_in_a_response(limit):
    """An infinite one would fail after the topics were made."""
    clients = Clients()
    clients.quotas.limits.update({(("user", None),): {CONTROLLER_MUTATION_RATE: limit}})
    quota = clients.request(is_strict=False)
    quota.apply(1)
    assert quota.throttle_ms == 2**31 - 1

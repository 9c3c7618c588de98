"""Rates of new connections by address (KIP-612)."""

from bisect import bisect_left
from heapq import heapreplace

from sparkraft.security.client_quotas import ClientQuotas
from sparkraft.security.connection_quotas import ADDRESSES_MAX, ConnectionQuotas, plain_address

KEY = "connection_creation_rate"


def quotas_of(limits: dict[str | None, float], **others: float) -> ConnectionQuotas:
    """Quotas by address, None: of all others; and of a user."""
    made = ClientQuotas()
    made.update(
        {(("ip", name),): {KEY: limit} for name, limit in limits.items()}
        | {(("user", "u"),): others}
    )
    return made.addresses


def refused_of(made: ConnectionQuotas, host: str, count: int, now: int = 5_000) -> int:
    return sum(made.record(host, now) > 0 for _ in range(count))


def test_an_address_has_its_own_quota_or_the_default():
    made = quotas_of({"10.0.0.1": 2.0, None: 1.0})
    assert refused_of(made, "10.0.0.1", 25) == 5
    assert refused_of(made, "10.0.0.2", 25) == 15
    assert refused_of(made, "10.0.0.3", 10) == 0


def test_an_address_without_a_quota_and_no_default_is_not_limited():
    made = quotas_of({"::ffff:10.0.0.1": 1.0}, producer_byte_rate=1.0)
    assert made.is_active
    assert refused_of(made, "10.0.0.2", 1000) == 0
    assert refused_of(made, "10.0.0.1", 1000) > 900
    made.update({})
    assert not made.is_active


def test_refused_connections_do_not_count_and_are_held_for_a_window_at_most():
    made = quotas_of({None: 1})
    assert refused_of(made, "10.0.0.1", 10) == 0
    assert 0 < made.record("10.0.0.1", 5_000) <= 1_000
    assert refused_of(made, "10.0.0.1", 1_000) == 1_000
    assert refused_of(made, "10.0.0.1", 10, now=17_000) == 0


def test_clients_that_connect_all_the_time_get_the_quota_in_any_half_minute():
    """After the burst. A rate of windows would give them ten seconds of it again and again."""
    made = quotas_of({None: 30})
    attempts, served = [(0, client) for client in range(12)], []
    while (now := attempts[0][0]) < 50_000:
        wait = made.record("10.0.0.1", now)
        heapreplace(attempts, (now + max(wait, 20), attempts[0][1]))
        if not wait:
            served.append(now)
    for begun in range(11_000, 20_000, 500):
        count = bisect_left(served, begun + 30_000) - bisect_left(served, begun)
        assert 0.97 * 900 <= count <= 1.03 * 900


def test_the_same_address_in_other_forms_shares_its_quota():
    assert plain_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_address("fe80::1%eth0") == "fe80::1"
    assert plain_address("0:0:0:0:0:0:0:1") == "::1"
    assert plain_address("?") == "?"


def test_addresses_are_bounded():
    made = quotas_of({None: 1})
    for number in range(ADDRESSES_MAX + 5):
        made.record(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0)
    assert len(made._used) == ADDRESSES_MAX

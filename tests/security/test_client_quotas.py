"""Rates of clients and their quotas: Kafka's arithmetic, precedence, and bounds."""

import math

import pytest

from sparkraft.security.client_quotas import BUCKETS_MAX, KNOWN_MAX, ClientQuotas
from sparkraft.security.quotas import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, quota_entity
from sparkraft.security.windowed_rate import WindowedRate

KEY = PRODUCER_BYTE_RATE
RATE = "connection_creation_rate"


def quotas_of(*limits: tuple[dict[str, str | None], float]) -> ClientQuotas:
    made = ClientQuotas()
    made.update({quota_entity(entity.items()): {KEY: limit} for entity, limit in limits})
    return made


def test_an_idle_client_may_send_for_all_windows_but_one_at_once():
    rate = WindowedRate(samples=11, window_ms=1000)
    rate.record(10_000, 5_000)
    assert rate.throttle_ms(1_000, 5_000) == 0
    rate.record(1, 5_000)
    assert rate.throttle_ms(1_000, 5_000) == 1


def test_the_throttle_is_the_time_until_the_rate_is_the_quota():
    rate = WindowedRate(samples=11, window_ms=1000)
    rate.record(15_000, 0)
    assert rate.throttle_ms(1_000, 0) == 5_000
    assert rate.throttle_ms(1_000, 5_000) == 5_000, "as in Kafka: windows that are missing count"
    assert rate.throttle_ms(1_000, 10_999) < 5_000
    assert rate.throttle_ms(1_000, 11_000) == 0, "the window is forgotten"


@pytest.mark.parametrize(("limit", "size"), [(1_000, 100), (50_000, 100), (50_000, 40_000)])
def test_a_client_that_waits_as_it_is_told_gets_its_quota(limit, size):
    """Within 2 % over thirty times all windows; within one, Kafka's rate allows bursts."""
    rate = WindowedRate(samples=11, window_ms=1000)
    now, sent, begun, end = 0, 0, 22_000, 352_000
    while now < end:
        if now >= begun:
            sent += size
        rate.record(size, now)
        now += max(1, rate.throttle_ms(limit, now))
    assert sent * 1000 / (now - begun) == pytest.approx(limit, rel=0.02)


ENTITIES = [
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
]
"""In the order of KIP-55, the strongest first."""


@pytest.mark.parametrize("place", range(len(ENTITIES)))
def test_the_first_quota_that_is_set_is_in_force(place):
    made = quotas_of(*((entity, 100 + n) for n, entity in enumerate(ENTITIES) if n >= place))
    assert made.burst_max(KEY, "u", "c") == (100 + place) * 10
    assert made.is_active


@pytest.mark.parametrize(
    ("entity", "shared"),
    [
        ({"user": "u", "client-id": None}, set()),
        ({"user": "u"}, {("u", "d")}),
        ({"user": None}, {("u", "d")}),
        ({"client-id": "c"}, {("v", "c")}),
        ({"client-id": None}, {("v", "c")}),
        ({"user": None, "client-id": None}, set()),
    ],
)
def test_clients_share_the_bucket_of_the_level_in_force(entity, shared):
    for user, client_id in (("u", "d"), ("v", "c"), ("v", "d")):
        made = quotas_of((entity, 100))
        assert made.record(KEY, "u", "c", 5_000, 0) == 40_000
        is_held_up = made.record(KEY, user, client_id, 1, 0) > 0
        assert is_held_up is ((user, client_id) in shared)


def test_a_client_without_an_id_has_the_empty_one():
    made = quotas_of(({"client-id": None}, 100))
    made.record(KEY, "u", None, 5_000, 0)
    assert made.record(KEY, "v", "", 1, 0) > 0


def test_another_quota_applies_at_once_and_keeps_the_rate():
    made = quotas_of(({"user": "u"}, 100))
    assert made.record(KEY, "u", "c", 5_000, 0) > 0
    made.update({(("user", "u"),): {KEY: 10_000.0}})
    assert made.record(KEY, "u", "c", 1, 0) == 0
    made.update({})
    assert not made.is_active
    assert made.record(KEY, "u", "c", 10**9, 0) == 0


def test_quotas_of_addresses_alone_measure_nothing():
    made = ClientQuotas()
    made.update({(("ip", None),): {"connection_creation_rate": 5.0}})
    assert not made.is_active


def test_what_is_kept_of_clients_is_bounded():
    made = quotas_of(({"client-id": None}, 100))
    for number in range(BUCKETS_MAX + 50):
        made.record(KEY, "u", f"c{number}", 1, 0)
    assert len(made._rates) == BUCKETS_MAX
    assert len(made._known) <= KNOWN_MAX


def test_a_client_over_its_share_of_time_waits_one_window_at_most():
    quotas = ClientQuotas()
    quotas.update({quota_entity([("user", "u")]): {REQUEST_PERCENTAGE: 10.0}})
    assert quotas.measures_time
    assert quotas.record_time("u", "c", 1.0, 0) == 0, "ten seconds of its share at once"
    assert quotas.record_time("u", "c", 0.05, 0) == 500
    assert quotas.record_time("u", "c", 5.0, 0) == 1_000
    assert quotas.record_time("v", "c", 5.0, 0) == 0, "without a quota"
    quotas.update({quota_entity([("user", "u")]): {KEY: 1.0}})
    assert not quotas.measures_time


@pytest.mark.parametrize("percent", [1, 20, 50])
@pytest.mark.parametrize(("seconds", "within"), [(30, 0.1), (330, 0.03)])
def test_a_busy_client_gets_its_share_of_time(percent, seconds, within):
    """Kafka's own system tests allow its rate 10 % over half a minute."""
    quotas = ClientQuotas()
    quotas.update({quota_entity([("client-id", "c")]): {REQUEST_PERCENTAGE: percent}})
    now, used, begun, end = 0, 0, 22_000, 22_000 + seconds * 1000
    while now < end:
        took = 5
        if now >= begun:
            used += took
        now += took + quotas.record_time("u", "c", took / 1000, now + took)
    assert used * 100 / (now - begun) == pytest.approx(percent, rel=within)


@pytest.mark.parametrize("limit", [1.0, 1e-9, 5e-324, 0.0])
def test_a_throttle_has_room_in_a_response(limit):
    """3 MB over 1 byte a second are 35 days; the number overflows in Kafka: no wait at all."""
    made = quotas_of(({"user": "u"}, limit))
    assert made.record(KEY, "u", "c", 3_000_000, 0) == 2**31 - 1


@pytest.mark.parametrize("limit", [math.nan, math.inf, -1.0])
def test_a_limit_that_is_not_a_rate_limits_nothing(limit):
    """Kafka's controllers accept "not a number", and their records reach our brokers."""
    made = quotas_of(({"user": "u"}, limit))
    assert made.record(KEY, "u", "c", 3_000_000, 0) == 0
    assert made.burst_max(KEY, "u", "c") in {2**31 - 1, -10}


def test_long_client_ids_are_not_kept():
    """10,000 ids of 32 KB would take 320 MB; each still has a rate and its own quota."""
    made = quotas_of(({"client-id": None}, 100), ({"client-id": "x" * 32_000}, 10_000))
    ids = [letter * 32_000 for letter in "abx"]
    throttles = [made.record(KEY, "u", each, 5_000, 0) for each in ids]
    assert throttles == [40_000, 40_000, 0]
    assert made.record(KEY, "u", ids[0], 1, 0) > 40_000
    assert not made._known
    assert max(len(bucket[2] or "") for bucket in made._rates) < 128


def test_a_client_must_wait_for_what_it_got_on_another_connection():
    made = quotas_of(({"user": "u"}, 100))
    assert made.throttle_left(KEY, "u", "c", 0) == 0
    assert made.record(KEY, "u", "c", 2_000, 0) == 10_000
    assert made.throttle_left(KEY, "u", "d", 4_000) == 6_000
    assert made.throttle_left(KEY, "v", "c", 4_000) == 0
    assert made.throttle_left(KEY, "u", "c", 10_000) == 0
    made.update({(("user", "u"),): {KEY: 200.0}})
    assert made.throttle_left(KEY, "u", "c", 4_000) == 0, "another quota"


def test_very_many_quotas_are_looked_through_in_steps():
    """100,000 of them in one piece would hold the event loop for 0.1 s at each change of one."""
    many = {(("user", f"u{n}"),): {KEY: 100.0} for n in range(5_000)}
    of_addresses = {(("ip", f"10.0.{n >> 8}.{n & 255}"),): {RATE: 5.0} for n in range(5_000)}
    made = ClientQuotas()
    assert made.update({(("ip", None),): {RATE: 1.0}}) is None
    steps = made.update(many | of_addresses)
    assert steps is not None
    assert made.limit_of(KEY, "u4999", "c") == (100.0, (KEY, "u4999", None)), "at once"
    assert made.is_active
    assert made.measures_time, "perhaps"
    assert made.addresses.record("10.9.9.9", 0) == 0
    assert made.addresses._limits == {None: 1.0}, "until the end"
    assert sum(steps) == 10_000
    assert made.is_active
    assert not made.measures_time
    assert len(made.addresses._limits) == 5_000


def test_steps_through_quotas_end_when_others_are_in_use():
    many = {(("user", f"u{n}"),): {KEY: 100.0} for n in range(5_000)}
    made = ClientQuotas()
    steps = made.update(many)
    assert steps is not None
    next(steps)
    assert made.update({}) is None
    assert sum(steps) == 0
    assert not made.is_active

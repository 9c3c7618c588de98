"""Rates of clients and their quotas: Kafka's arithmetic, precedence, and bounds."""

import math
from bisect import bisect_left

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


def test_a_rate_is_that_of_the_recent_windows_as_in_kafka():
    rate = WindowedRate(samples=11, window_ms=1000)
    rate.record(15_000, 0)
    assert rate.per_second(0) == 1_500, "at least ten windows count"
    assert rate.per_second(10_999) < 1_500
    assert rate.per_second(11_000) == 0, "the window is forgotten"


def test_an_idle_client_may_send_for_all_windows_but_one_at_once():
    made = quotas_of(({"user": "u"}, 1_000))
    assert made.record(KEY, "u", "c", 10_000, 5_000) == 0
    assert made.record(KEY, "u", "c", 1, 5_000) == 1


@pytest.mark.parametrize(("limit", "size"), [(1_000, 100), (50_000, 100), (50_000, 40_000)])
def test_a_client_that_waits_as_it_is_told_gets_its_quota_in_any_half_minute(limit, size):
    """After the burst of an idle client; Kafka's Rate allows bursts of a third of 30 s again."""
    made = quotas_of(({"user": "u"}, limit))
    now, sent = 0, [(0, 0)]
    while now < 125_000:
        wait = made.record(KEY, "u", "c", size, now)
        sent.append((now, sent[-1][1] + size))
        now += max(1, wait)
    times = [at for at, _ in sent]
    for begun in range(11_000, 90_000, 250):
        first, last = bisect_left(times, begun), bisect_left(times, begun + 30_000)
        got = (sent[last][1] - sent[first][1]) * 1000 / (times[last] - times[first])
        assert got == pytest.approx(limit, rel=0.03)


def test_a_client_has_never_had_more_than_the_burst_beyond_its_quota():
    """Its bursts at other times: what it did not send before, up to ten seconds of its quota."""
    made = quotas_of(({"user": "u"}, 1_000))
    now = sent = 0
    for pause in (0, 3_000, 20_000, 12_000, 500, 9_000, 11_000):
        now += pause
        while not (wait := made.record(KEY, "u", "c", 100, now)):
            sent += 100
        sent += 100
        now += wait
        assert sent <= now + 10_000 + 100


def test_what_a_client_had_under_another_quota_is_not_held_against_it():
    made = quotas_of(({"user": "u"}, 100_000))
    assert made.record(KEY, "u", "c", 3_000_000, 0) == 20_000
    made.update({(("user", "u"),): {KEY: 1_000.0}})
    assert made.record(KEY, "u", "c", 100, 0) == 100, "no credit either"
    assert made.record(KEY, "u", "c", 100, 10_100) == 0


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
    assert len(made._used) == BUCKETS_MAX
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
def test_a_busy_client_gets_its_share_of_time(percent):
    """In half a minute; Kafka's own system tests allow 10 %."""
    quotas = ClientQuotas()
    quotas.update({quota_entity([("client-id", "c")]): {REQUEST_PERCENTAGE: percent}})
    now, used, begun = 0, 0, 22_000
    while now < begun + 30_000:
        took = 5
        if now >= begun:
            used += took
        now += took + quotas.record_time("u", "c", took / 1000, now + took)
    assert used * 100 / (now - begun) == pytest.approx(percent, rel=0.02)


def test_a_client_pays_for_long_requests_no_longer_than_for_a_burst():
    """Its throttles last a second, so many connections could pile up hours for later."""
    quotas = ClientQuotas()
    quotas.update({quota_entity([("client-id", "c")]): {REQUEST_PERCENTAGE: 1.0}})
    assert {quotas.record_time("u", "c", 1.0, 0) for _ in range(100)} == {1_000}
    assert quotas.record_time("u", "c", 0.0, 9_500) == 500
    assert quotas.record_time("u", "c", 0.0, 10_000) == 0


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
    assert max(len(bucket[2] or "") for bucket in made._used) < 128


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

"""Exactly-once batches on Apache Kafka's brokers; tests/pipeline has the same on ours."""

import pytest

from tests.support.killed_batches import kill_once, kill_points, requests_of_a_run

pytestmark = [pytest.mark.real_clients, pytest.mark.java, pytest.mark.shared_kafka]


def test_killed_drivers_lose_and_double_nothing(shared_kafka):
    requests = requests_of_a_run(shared_kafka.bootstrap, "once", seed=7)
    for at, is_sent, seed in kill_points(4, requests):
        kill_once(shared_kafka.bootstrap, f"once-killed-{seed}", at=at, is_sent=is_sent, seed=seed)

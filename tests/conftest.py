"""Fixtures that several test folders use."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.kafka_jars import kafka_jars_or_reason

# How long an example takes says nothing here: speed is shown in benchmarks, never in a test.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder of Apache Kafka's jars; skips the test, saying why, where there is none."""
    found = kafka_jars_or_reason()
    if not isinstance(found, Path):
        pytest.skip(found.reason)
    return found


@pytest.fixture(autouse=True)
def logging_again() -> Iterator[None]:
    """Simulations silence what their nodes log; the next test of the process may read logs."""
    yield
    logging.disable(logging.NOTSET)

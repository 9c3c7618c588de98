"""Fixtures that several test folders use."""

from pathlib import Path

import pytest

from tests.support.kafka_jars import kafka_jars_or_reason


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder of Apache Kafka's jars; skips the test, saying why, where there is none."""
    found = kafka_jars_or_reason()
    if not isinstance(found, Path):
        pytest.skip(found.reason)
    return found

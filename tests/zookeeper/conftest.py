"""One ensemble of one server for all tests of a worker that do not stop it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka_jars import kafka_3_9_jars_or_reason
from tests.support.outside_tools import Missing
from tests.support.zookeeper import Ensemble


@pytest.fixture(scope="session")
def zookeeper_jars() -> Path:
    found = kafka_3_9_jars_or_reason()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found


@pytest.fixture(scope="session")
def ensemble(zookeeper_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with Ensemble(zookeeper_jars, tmp_path_factory.mktemp("zookeeper")) as started:
        yield started

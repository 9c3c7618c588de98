"""Fixtures that several test folders use."""

import logging
import os
import tomllib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.jvm import QUICK_JAVA
from tests.support.kafka_jars import kafka_jars_or_reason
from tests.support.outside_tools import Missing, chromium
from tests.support.turns import SPARK, turn

if TYPE_CHECKING:
    from tests.support.console import Browser

# How long an example takes says nothing here: speed is shown in benchmarks, never in a test.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change is judged by the same examples everywhere; the long tests look for new ones.
settings.register_profile("same", _UNTIMED, derandomize=True)
settings.register_profile("fresh", _UNTIMED)
settings.load_profile(os.environ.get("SPARKRAFT_EXAMPLES", "same"))


MOVED = tomllib.loads(Path(__file__).with_name("moved.toml").read_text())["moved"]
"""Tests left to `./test --long`, with reasons."""

_moved = {entry["test"] for entry in MOVED}


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid in _moved:
        item.add_marker("long")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let one test at a time run Spark, whatever process it is in."""
    if not item.get_closest_marker("spark"):
        return (yield)
    with turn(SPARK), pytest.MonkeyPatch.context() as patch:
        # Spark comes up in two thirds of the time.
        patch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        return (yield)


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder of Apache Kafka's jars; skips the test, saying why, where there is none."""
    found = kafka_jars_or_reason()
    if not isinstance(found, Path):
        pytest.skip(found.reason)
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """A Chromium; skips the test, giving the reason, without one."""
    from tests.support.console import Browser

    found = chromium()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    with Browser(found) as browser:
        yield browser


@pytest.fixture(autouse=True)
def logging_again() -> Iterator[None]:
    """Simulations silence what their nodes log; the next test of the process may read logs."""
    yield
    logging.disable(logging.NOTSET)

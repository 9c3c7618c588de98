"""What the tests of the console share."""

from collections.abc import Iterator

import pytest

from tests.support.console import Browser
from tests.support.outside_tools import Missing, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium; skips the test, giving the reason, without one."""
    found = chromium()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    with Browser(found) as browser:
        yield browser

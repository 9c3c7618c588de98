"""What the command tests share."""

import pytest

from tests.support.ports import free_ports


@pytest.fixture
def unused_port() -> int:
    return free_ports(1)[0]

"""What the command tests share."""

import pytest

from tests.support.ports import lasting_ports


@pytest.fixture
def unused_port() -> int:
    return lasting_ports(1)[0]

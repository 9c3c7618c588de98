"""How much metadata the members of a broker's groups may hold."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis
from sparkraft.server.coordinator.member_memory import RECOUNT_MS, MemberMemory


class Members:
    """The groups of a broker, as the memory sees them."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.counts = 0
        self.memory = MemberMemory(bytes_max, self._count)

    def _count(self) -> int:
        self.counts += 1
        return self.bytes

    def join(self, size: int, now: int = 0) -> None:
        self.memory.admit(size, Millis(now))
        self.bytes += size


def test_joins_are_refused_above_the_bound_until_members_leave() -> None:
    members = Members(100)
    members.join(60)
    members.join(40)
    assert members.counts == 0
    with pytest.raises(KafkaError, match="hold 100 bytes") as refused:
        members.join(1)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    members.bytes -= 60
    with pytest.raises(KafkaError):
        members.join(60, RECOUNT_MS - 1)
    assert members.counts == 1, "they are counted once a second at most"
    members.join(60, RECOUNT_MS)
    assert (members.bytes, members.counts) == (100, 2)


def test_a_member_that_joins_again_is_counted_once() -> None:
    members = Members(100)
    for _ in range(10):
        members.memory.admit(30, Millis(0))
        members.bytes = 30
    assert members.counts == 4, "the estimate has come to the bound after every other two"


def test_without_a_bound_nothing_is_refused() -> None:
    members = Members(0)
    for _ in range(3):
        members.join(1 << 40)

"""L1 counts what one callback of a node's loop does, from outside of the product."""

from collections import Counter
from types import SimpleNamespace

import pytest

from sparkraft.metadata.replay import Replay
from sparkraft.protocol.messages.metadata_records import ConfigRecord
from sparkraft.server.loop_turns import LoopTurns, Turn
from sparkraft.simulation.checks.loop_checks import BOUNDS, LoopChecks, work_watched
from sparkraft.simulation.world.loop import CURRENT, Incarnation
from sparkraft.simulation.world.violation import Violation

RECORD = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1")


class World:
    """One machine, whose process runs what the test does."""

    def __init__(self) -> None:
        self.incarnation = Incarnation("n1")
        self.counts: Counter[str] = Counter()
        self._machine = SimpleNamespace(name="n1", life=1, incarnation=self.incarnation)

    def machine(self, _name):
        return self._machine

    def check(self, look):
        look()

    def next_piece(self):
        self.incarnation.pieces += 1


@pytest.fixture
def world():
    world = World()

    def require(holds, invariant, text):
        if not holds:
            raise Violation(invariant, text)

    token = CURRENT.set(world.incarnation)
    with work_watched(LoopChecks(world, require)):
        yield world
    CURRENT.reset(token)


def new_turn(units_max=4):
    return Turn(LoopTurns(), SimpleNamespace(mono_ms=lambda: 0), units_max)


def test_records_of_the_metadata_log_are_counted_for_each_callback(world):
    replay = Replay()

    def apply(count):
        replay.replay_batch([RECORD] * count, last_offset=count, epoch=1)

    apply(BOUNDS["metadata records"])
    world.next_piece()
    apply(BOUNDS["metadata records"])
    with pytest.raises(Violation, match="metadata records"):
        apply(1)


def test_batches_of_the_metadata_log_are_counted_for_each_callback(world):
    replay = Replay()
    for offset in range(BOUNDS["metadata batches"]):
        replay.replay_batch([], last_offset=offset, epoch=1)
    with pytest.raises(Violation, match="metadata batches"):
        replay.replay_batch([], last_offset=1_000, epoch=1)


def test_units_of_all_turns_are_counted_together(world):
    for _ in range(BOUNDS["units"] // 2):
        new_turn(units_max=1_000).is_over(2)
    with pytest.raises(Violation, match="units in one piece"):
        new_turn(units_max=1_000).is_over(1)


def test_work_in_threads_counts_for_nothing(world):
    world.incarnation.off_loop = True
    Replay().replay_batch([RECORD] * 2_000, last_offset=1, epoch=1)


def test_work_counts_once_more_after_its_slice(world):
    turn = new_turn()
    assert not turn.is_over(3)
    assert turn.is_over(1)
    assert turn.is_over(0)
    assert turn.is_over(1)
    with pytest.raises(Violation, match="after the end of a slice"):
        turn.is_over(1)


def test_the_next_slice_is_another_callback(world):
    turn = new_turn()
    for _ in range(5):
        assert turn.is_over(4)
        world.next_piece()

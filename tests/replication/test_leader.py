"""A leader's high watermark and ISR, rule by rule (Kafka's `Partition`; KIP-320, 497, 903, 966)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.replication.in_sync import Committed, Lag, PendingExpand, PendingShrink
from sparkraft.replication.leader import PartitionLeader

LAG_MS = 30_000
LEADER = 1


class FakeBrokers:
    """Everybody is alive in broker epoch 100 + id, but those named."""

    def __init__(self) -> None:
        self.fenced: set[int] = set()
        self.leaving: set[int] = set()
        self.epochs: dict[int, int] = {}

    def alive_epoch(self, broker_id: int) -> int | None:
        return None if broker_id in self.fenced else self.epochs.get(broker_id, 100 + broker_id)

    def may_join_isr(self, broker_id: int) -> bool:
        return broker_id not in self.fenced | self.leaving


class World:
    """Broker 1 leads a partition; its log ends where `end` says, time is what `now` says."""

    def __init__(
        self,
        *,
        replicas: tuple[int, ...] = (1, 2, 3),
        isr: tuple[int, ...] = (1, 2, 3),
        end: int = 0,
        min_insync: int = 1,
    ) -> None:
        self.brokers = FakeBrokers()
        self.leader = PartitionLeader(self.brokers, local_id=LEADER, lag_ms_max=LAG_MS)
        self.leader.min_insync = min_insync
        self.now = 1_000_000
        self.end = end
        self.high_watermark = 0
        self.told(replicas=replicas, isr=isr, leader_epoch=5, partition_epoch=7)

    def told(
        self,
        *,
        replicas: tuple[int, ...] = (1, 2, 3),
        isr: tuple[int, ...] = (1, 2, 3),
        leader_epoch: int,
        partition_epoch: int,
    ) -> bool:
        return self.leader.on_metadata(
            replicas=replicas,
            isr=isr,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            log_end_offset=self.end,
            now_ms=self.now,
        )

    def fetch(self, replica: int, offset: int, *, epoch: int | None = None) -> None:
        self.leader.on_fetch(
            replica,
            offset,
            log_start_offset=0,
            leader_end=self.end,
            broker_epoch=100 + replica if epoch is None else epoch,
            now_ms=self.now,
        )

    def advance(self) -> int | None:
        return self.leader.high_watermark(self.end, self.now)

    def expand(self, replica: int) -> PendingExpand | None:
        return self.leader.maybe_expand(replica, self.high_watermark)

    def shrink(self) -> PendingShrink | None:
        return self.leader.maybe_shrink(self.end, self.now)


# ---- the high watermark


def test_the_high_watermark_is_the_smallest_end_over_the_isr():
    world = World(end=9)
    world.fetch(2, 7)
    world.fetch(3, 4)
    assert world.advance() == 4


def test_a_leader_counts_itself_only_up_to_what_it_says():
    world = World(end=9)
    world.fetch(2, 9)
    world.fetch(3, 9)
    assert world.leader.high_watermark(6, world.now) == 6


def test_nothing_is_committed_before_every_member_has_fetched_in_this_leadership():
    """KIP-320: an offset told to an earlier leader says nothing about our epochs."""
    world = World(end=9)
    world.fetch(2, 9)
    committed = world.advance()
    assert committed is not None
    assert committed < 0


def test_followers_of_an_earlier_leadership_are_forgotten_not_those_of_an_earlier_epoch():
    world = World(end=9)
    world.fetch(2, 9)
    world.fetch(3, 9)
    world.told(leader_epoch=6, partition_epoch=8)
    assert world.advance() == 9
    successor = World(end=9)
    committed = successor.advance()
    assert committed is not None
    assert committed < 0


def test_those_out_of_the_isr_don_t_hold_the_high_watermark_once_they_lag():
    world = World(isr=(1, 2), end=9)
    world.fetch(2, 7)
    world.fetch(3, 4)
    assert world.advance() == 7


def test_one_that_is_caught_up_and_may_join_holds_it_so_that_it_can_join():
    """KAFKA-3334, `shouldWaitForReplicaToJoinIsr`."""
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    world.end = 12
    world.fetch(2, 12)
    world.now += LAG_MS
    assert world.advance() == 9
    world.now += 1
    assert world.advance() == 12


@pytest.mark.parametrize("why", ["fenced", "leaving", "another life"])
def test_one_that_may_not_join_does_not_hold_it(why):
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    world.end = 12
    world.fetch(2, 12)
    if why == "fenced":
        world.brokers.fenced.add(3)
    elif why == "leaving":
        world.brokers.leaving.add(3)
    else:
        world.brokers.epochs[3] = 999
    assert world.advance() == 12


def test_the_maximal_isr_counts_whichever_way_a_pending_change_ends():
    world = World(isr=(1, 2), end=9)
    world.fetch(2, 9)
    world.fetch(3, 9)
    assert world.expand(3) is not None
    world.end = 12
    world.fetch(2, 12)
    world.now += LAG_MS + 1
    assert world.advance() == 9, "about to join: it counts although it lags by now"

    world = World(end=9)
    world.fetch(2, 9)
    world.fetch(3, 4)
    world.now += LAG_MS + 1
    world.fetch(2, 9)
    assert world.shrink() is not None
    assert world.advance() == 4, "about to leave: it still counts"


def test_below_min_insync_replicas_the_high_watermark_is_held():
    """KIP-966: whatever acks the records were written with."""
    world = World(isr=(1,), end=9, min_insync=2)
    assert world.leader.is_under_min_insync
    assert world.advance() is None
    world.leader.min_insync = 1
    assert world.advance() == 9


def test_min_insync_replicas_ask_for_no_more_than_there_are():
    world = World(replicas=(1,), isr=(1,), end=9, min_insync=2)
    assert world.leader.min_insync_effective == 1
    assert world.advance() == 9


def test_a_member_about_to_join_does_not_count_for_min_insync_replicas():
    world = World(isr=(1,), end=9, min_insync=2)
    world.fetch(2, 9)
    assert world.expand(2) is not None
    assert world.leader.is_under_min_insync
    assert world.advance() is None


# ---- joining the ISR


def test_a_follower_joins_once_it_has_what_is_committed():
    world = World(isr=(1, 2), end=9)
    world.high_watermark = 7
    world.fetch(3, 6)
    assert world.expand(3) is None
    world.fetch(3, 7)
    pending = world.expand(3)
    assert pending is None, "not before the start of this epoch, 9"
    world.fetch(3, 9)
    pending = world.expand(3)
    assert pending is not None
    assert pending.joining == 3
    assert pending.new_isr == ((1, 101), (2, -1), (3, 103))
    assert pending.maximal_isr == (1, 2, 3)
    assert pending.isr == (1, 2)


def test_nobody_joins_below_the_start_of_the_leader_epoch():
    """An earlier leader may have committed up to there without our knowing (KIP-320)."""
    world = World(isr=(1, 2), end=9)
    world.high_watermark = 3
    world.end = 20
    world.fetch(3, 8)
    assert world.expand(3) is None
    world.fetch(3, 9)
    assert world.expand(3) is not None


@pytest.mark.parametrize("why", ["fenced", "leaving", "another life", "member"])
def test_who_may_not_join_does_not(why):
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    world.fetch(2, 9)
    if why == "fenced":
        world.brokers.fenced.add(3)
    elif why == "leaving":
        world.brokers.leaving.add(3)
    elif why == "another life":
        world.brokers.epochs[3] = 999
    assert world.expand(2 if why == "member" else 3) is None


def test_a_fetch_without_broker_epoch_may_join():
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9, epoch=-1)
    pending = world.expand(3)
    assert pending is not None
    assert pending.new_isr[-1] == (3, -1)


def test_a_follower_whose_epoch_the_leader_does_not_know_may_join():
    """In ZooKeeper mode UpdateMetadata has no broker epochs, and Kafka 3.9 checks none."""
    world = World(isr=(1, 2), end=9)
    world.brokers.epochs[3] = -1
    world.fetch(3, 9, epoch=103)
    expanded = world.expand(3)
    assert expanded is not None
    assert dict(expanded.new_isr)[3] == -1, "a KRaft controller may know another epoch (KIP-866)"


def test_a_fetch_of_an_earlier_life_of_the_broker_is_refused_and_changes_nothing():
    """KIP-903: its log may have been another one."""
    world = World(end=9)
    world.brokers.epochs[2] = 200
    with pytest.raises(KafkaError) as refused:
        world.fetch(2, 9, epoch=199)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not world.leader.followers[2].has_fetched
    world.fetch(2, 9, epoch=200)
    world.fetch(2, 9, epoch=201)  # our image is the older one


def test_a_stranger_s_fetch_is_refused():
    world = World(replicas=(1, 2), isr=(1, 2))
    for knows_epoch, code in (
        (True, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        with pytest.raises(KafkaError) as refused:
            world.leader.check_follower(3, knows_epoch=knows_epoch)
        assert refused.value.code is code
    world.leader.check_follower(2, knows_epoch=True)


# ---- leaving it


def test_a_follower_leaves_once_it_lags_for_longer_than_allowed():
    world = World(end=9)
    world.fetch(2, 9)
    world.fetch(3, 4)
    world.now += LAG_MS
    assert world.shrink() is None
    world.now += 1
    pending = world.shrink()
    assert pending is not None
    assert pending.leaving == (
        Lag(replica=3, log_end_offset=4, leader_end=9, behind_ms=LAG_MS + 1),
    )
    assert pending.new_isr == ((1, 101), (2, 102))


def test_one_that_has_everything_stays_however_long_nothing_is_written():
    world = World(end=9)
    world.fetch(2, 9)
    world.fetch(3, 9)
    world.now += 10 * LAG_MS
    assert world.shrink() is None


def test_one_that_is_always_a_little_behind_stays():
    """It has, each time, what there was when it asked last."""
    world = World(isr=(1, 2), replicas=(1, 2), end=0)
    for _ in range(10):
        world.fetch(2, max(world.end - 5, 0))
        world.end += 5
        world.now += LAG_MS // 2
    assert world.shrink() is None


def test_one_that_never_fetches_leaves_and_its_lag_is_told():
    world = World(isr=(1, 2), end=9)
    world.now += LAG_MS + 1
    pending = world.shrink()
    assert pending is not None
    assert pending.leaving == (
        Lag(replica=2, log_end_offset=-1, leader_end=9, behind_ms=LAG_MS + 1),
    )


def test_one_change_at_a_time():
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    assert world.expand(3) is not None
    world.now += LAG_MS + 1
    assert world.shrink() is None
    assert world.expand(3) is None


# ---- what the controller answers


def test_an_agreed_change_is_what_the_controller_answers():
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    pending = world.expand(3)
    assert pending is not None
    assert world.leader.on_altered(pending, isr=(1, 2, 3), leader_epoch=5, partition_epoch=8)
    assert world.leader.in_sync == Committed(isr=(1, 2, 3))
    assert world.leader.partition_epoch == 8


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(4, 8), (6, 8), (5, 6)])
def test_an_answer_of_another_epoch_is_ignored(leader_epoch, partition_epoch):
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    pending = world.expand(3)
    assert pending is not None
    assert not world.leader.on_altered(
        pending, isr=(1,), leader_epoch=leader_epoch, partition_epoch=partition_epoch
    )
    assert world.leader.in_sync is pending


def test_an_answer_that_metadata_has_overtaken_is_ignored():
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    pending = world.expand(3)
    assert pending is not None
    world.told(isr=(1, 2), leader_epoch=6, partition_epoch=8)
    assert not world.leader.on_altered(pending, isr=(1, 2, 3), leader_epoch=6, partition_epoch=9)
    assert not world.leader.on_refused(pending, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert world.leader.in_sync == Committed(isr=(1, 2))


def test_metadata_older_than_an_answer_are_ignored():
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    pending = world.expand(3)
    assert pending is not None
    world.leader.on_altered(pending, isr=(1, 2, 3), leader_epoch=5, partition_epoch=8)
    assert not world.told(isr=(1, 2), leader_epoch=5, partition_epoch=7)
    assert world.leader.in_sync == Committed(isr=(1, 2, 3))


def test_the_same_metadata_again_end_no_pending_change():
    """As when a topic's config changes: the controller may be adding the follower right now."""
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    pending = world.expand(3)
    assert world.told(isr=(1, 2), leader_epoch=5, partition_epoch=7)
    assert world.leader.in_sync is pending


@pytest.mark.parametrize("code", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_what_was_not_even_tried_leaves_the_committed_isr(code):
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    pending = world.expand(3)
    assert pending is not None
    assert not world.leader.on_refused(pending, code)
    assert world.leader.in_sync == Committed(isr=(1, 2))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_after_a_final_error_the_change_stays_pending_until_metadata_tell(code):
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    pending = world.expand(3)
    assert pending is not None
    assert not world.leader.on_refused(pending, code)
    assert world.leader.in_sync is pending
    world.told(isr=(1, 3), leader_epoch=5, partition_epoch=8)
    assert world.leader.in_sync == Committed(isr=(1, 3))


def test_any_other_error_is_asked_again():
    world = World(isr=(1, 2), end=9)
    world.fetch(3, 9)
    pending = world.expand(3)
    assert pending is not None
    assert world.leader.on_refused(pending, ErrorCode.NOT_CONTROLLER)
    assert world.leader.in_sync is pending


# ---- the low watermark


def test_the_low_watermark_is_the_smallest_start_over_live_replicas():
    world = World(end=9)
    for replica, start in ((2, 3), (3, 1)):
        world.leader.on_fetch(
            replica,
            9,
            log_start_offset=start,
            leader_end=9,
            broker_epoch=100 + replica,
            now_ms=world.now,
        )
    assert world.leader.low_watermark(5) == 1
    world.brokers.fenced.add(3)
    assert world.leader.low_watermark(5) == 3


# ---- whatever happens


class Controlled:
    """A partition and its controller, which may refuse a change, or agree and lose the answer."""

    def __init__(self) -> None:
        self.world = World(end=0, min_insync=2)
        self.isr: tuple[int, ...] = (1, 2, 3)
        self.has = {1: 0, 2: 0, 3: 0}
        self._partition_epoch = 7
        self._asked: PendingExpand | PendingShrink | None = None
        self._decided = False

    def append(self, _replica: int, amount: int) -> None:
        self.world.end = self.has[1] = self.world.end + amount

    def fetch(self, replica: int, amount: int) -> None:
        self.has[replica] = min(self.has[replica] + amount, self.world.end)
        self.world.fetch(replica, self.has[replica])
        self._asked = self.world.expand(replica) or self._asked

    def wait(self, _replica: int, amount: int) -> None:
        self.world.now += amount * LAG_MS // 4
        self._asked = self.world.shrink() or self._asked

    def decide(self, _replica: int, _amount: int) -> None:
        """The controller agrees; its answer is not there yet, and may never be."""
        if self._asked is not None and not self._decided:
            self._decided = True
            self._partition_epoch += 1
            self.isr = tuple(member for member, _ in self._asked.new_isr)

    def answer(self, replica: int, amount: int) -> None:
        self.decide(replica, amount)
        if self._asked is not None:
            self.world.leader.on_altered(
                self._asked,
                isr=self.isr,
                leader_epoch=5,
                partition_epoch=self._partition_epoch,
            )
            self._asked, self._decided = None, False

    def refuse(self, _replica: int, _amount: int) -> None:
        if self._asked is not None and not self._decided:
            self.world.leader.on_refused(self._asked, ErrorCode.INELIGIBLE_REPLICA)
            self._asked = None

    def check(self) -> None:
        committed = self.world.advance()
        if committed is not None:
            self.world.high_watermark = max(self.world.high_watermark, committed)
        assert all(self.has[member] >= self.world.high_watermark for member in self.isr)


STEPS = st.tuples(
    st.sampled_from(["append", "fetch", "fetch", "wait", "decide", "answer", "refuse"]),
    st.integers(2, 3),
    st.integers(1, 9),
)


@settings(max_examples=500)
@given(st.lists(STEPS, max_size=60))
def test_the_high_watermark_never_passes_anybody_whom_the_controller_may_elect(steps):
    """AsyncIsr's ValidHighWatermark: every member of the controller's ISR has what is committed."""
    partition = Controlled()
    for kind, replica, amount in steps:
        getattr(partition, kind)(replica, amount)
        partition.check()

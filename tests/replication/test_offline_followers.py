"""A follower whose log directory is offline, on a broker that lives: nobody waits for it."""

from sparkraft.replication.leader import PartitionLeader


class AllAlive:
    def alive_epoch(self, broker_id: int) -> int | None:
        return 7

    def may_join_isr(self, broker_id: int) -> bool:
        return True


def leading(*, offline: tuple[int, ...]) -> PartitionLeader:
    """Broker 1 leads; 2 and 3 had everything a moment ago, and the controller took 3 out."""
    leader = PartitionLeader(AllAlive(), local_id=1, lag_ms_max=30_000)
    for partition_epoch, isr in ((0, (1, 2, 3)), (1, (1, 2))):
        leader.on_metadata(
            replicas=(1, 2, 3),
            isr=isr,
            leader_epoch=0,
            partition_epoch=partition_epoch,
            log_end_offset=0,
            now_ms=0,
            offline=offline if partition_epoch else (),
        )
        for replica in (2, 3):
            leader.on_fetch(
                replica, 10, log_start_offset=0, leader_end=10, broker_epoch=7, now_ms=100
            )
    leader.on_fetch(2, 20, log_start_offset=0, leader_end=20, broker_epoch=7, now_ms=200)
    return leader


def test_the_high_watermark_waits_for_one_that_is_about_to_join():
    leader = leading(offline=())
    assert leader.high_watermark(20, 300) == 10
    assert leader.maybe_expand(3, 10) is not None


def test_it_does_not_wait_for_one_whose_directory_is_offline():
    leader = leading(offline=(3,))
    assert leader.high_watermark(20, 300) == 20
    assert leader.maybe_expand(3, 10) is None

"""Where replicas go."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.placement import UsableBroker, place_replicas
from tests.controller.cluster_of import Dice

NO_LIVE_BROKER = "All brokers are currently fenced, or have all their log directories cordoned."
"""Texts of Kafka's `StripedReplicaPlacer`."""


class NoDice:
    """Every starting point is zero."""

    def random_bytes(self, count):
        return bytes(count)

    def below(self, bound):
        return 0


def brokers(*, racks=1, per_rack=3, fenced=()):
    return [
        UsableBroker(rack * 10 + number, f"r{rack}", rack * 10 + number in fenced)
        for rack in range(racks)
        for number in range(per_rack)
    ]


def test_stripes_over_racks_and_brokers():
    placed = place_replicas(brokers(racks=3), partitions=3, replication_factor=3, entropy=NoDice())
    assert list(placed) == [[0, 10, 20], [11, 21, 1], [22, 2, 12]]


def test_fenced_brokers_come_last_and_never_lead():
    cluster = brokers(per_rack=3, fenced=(0,))
    placed = place_replicas(cluster, partitions=20, replication_factor=3, entropy=Dice())
    assert all(replicas[0] != 0 and replicas[-1] == 0 for replicas in placed)
    alone = place_replicas(cluster, partitions=20, replication_factor=2, entropy=Dice())
    assert not any(0 in replicas for replicas in alone)


@pytest.mark.parametrize(
    ("cluster", "factor", "text"),
    [
        ([], 1, NO_LIVE_BROKER),
        (
            brokers(),
            4,
            "The target replication factor of 4 cannot be reached because only 3 broker(s) are "
            "registered or some brokers have all their log directories cordoned.",
        ),
        (
            brokers(),
            0,
            "Invalid replication factor 0: the replication factor must be positive.",
        ),
        (brokers(fenced=(0, 1, 2)), 1, NO_LIVE_BROKER),
    ],
)
def test_what_can_not_be_placed(cluster, factor, text):
    with pytest.raises(KafkaError) as caught:
        place_replicas(cluster, partitions=1, replication_factor=factor, entropy=Dice())
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert caught.value.detail == text


@given(
    racks=st.integers(1, 4),
    per_rack=st.integers(1, 4),
    factor=st.integers(1, 5),
    partitions=st.integers(1, 30),
    seed=st.integers(0, 1000),
)
def test_replicas_differ_and_spread(racks, per_rack, factor, partitions, seed):
    cluster = brokers(racks=racks, per_rack=per_rack)
    factor = min(factor, len(cluster))
    placed = list(
        place_replicas(
            cluster, partitions=partitions, replication_factor=factor, entropy=Dice(seed)
        )
    )
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({replica // 10 for replica in replicas}) == min(factor, racks)
    if racks == 1:
        leaders = Counter(replicas[0] for replicas in placed)
        rounds = -(-partitions // per_rack)
        assert max(leaders.values()) <= rounds + 1

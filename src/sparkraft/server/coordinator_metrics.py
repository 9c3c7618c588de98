"""Metrics of a broker's coordinators: groups, their offsets and lags, transactional ids.

A broker exports the groups and transactional ids that it coordinates. Names are those of Kafka's
GroupMetadataManager and GroupCoordinatorMetrics as jmx_exporter exports them, and for single groups
those of kafka_exporter.

A lag is exported for partitions with a replica on this broker. For others, subtract
`kafka_consumergroup_current_offset` from the leader's `sparkraft_high_watermark`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sparkraft.coordinator.group.classic_group import ClassicGroup
from sparkraft.coordinator.group.consumer_group import ConsumerGroup
from sparkraft.coordinator.group.states import GroupState
from sparkraft.server.families import gauge, gauges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from sparkraft.coordinator.group.group import Group
    from sparkraft.coordinator.group.shard import GroupShard
    from sparkraft.coordinator.transaction.states import TransactionState
    from sparkraft.server.status import BrokerStatus

GROUPS_MAX = 5_000
"""With more groups their states are those of the last minute: the state of a consumer group depends
on each of its members."""

OFFSETS_MAX = 2_000
"""A broker with more committed offsets exports none of them, only their number."""

_MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
_COORDINATOR = "kafka_server_group_coordinator_metrics_"
_STATES = {
    GroupState.PREPARING_REBALANCE: "numgroupspreparingrebalance",
    GroupState.COMPLETING_REBALANCE: "numgroupscompletingrebalance",
    GroupState.STABLE: "numgroupsstable",
    GroupState.EMPTY: "numgroupsempty",
    GroupState.DEAD: "numgroupsdead",
}


def coordinator_metrics(broker: BrokerStatus) -> Iterator[Metric]:
    shards = [one.shard for one in broker.groups.runtimes.values() if one.is_serving]
    yield gauge(
        f"{_COORDINATOR}state_active_num_partitions",
        "Partitions of __consumer_offsets that this broker serves",
        len(shards),
    )
    loading = len(broker.groups.runtimes) - len(shards)
    about = "Partitions of __consumer_offsets that are being loaded"
    yield gauge(f"{_COORDINATOR}state_loading_num_partitions", about, loading)
    count = sum(len(shard.groups) for shard in shards)
    yield gauge(f"{_MANAGER}numgroups", "Groups that this broker coordinates", count)
    offsets = sum(shard.offsets.count for shard in shards)
    yield gauge(f"{_MANAGER}numoffsets", "Committed offsets of these groups", offsets)
    yield from _groups_by_state(_states(shards, count))
    yield from _rebalances(shards)
    if count <= OFFSETS_MAX:
        yield from _members([group for shard in shards for group in shard.groups.values()])
    if offsets <= OFFSETS_MAX:
        yield from _offsets_of(broker, shards)
    yield from _transactions(broker)


def _states(shards: list[GroupShard], count: int) -> Counter[tuple[str, str]]:
    """Groups by (protocol, state)."""
    states: Counter[tuple[str, str]] = Counter()
    for shard in shards:
        if count > GROUPS_MAX:
            states.update(shard.counts)
            continue
        for group in shard.groups.values():
            if isinstance(group, ClassicGroup):
                states["classic", group.state.value] += 1
            elif isinstance(group, ConsumerGroup):
                states["consumer", group.state.value] += 1
    return states


def _groups_by_state(states: Counter[tuple[str, str]]) -> Iterator[Metric]:
    for state, name in _STATES.items():
        about = f"Classic groups in the state {state.value}"
        yield gauge(_MANAGER + name, about, states["classic", state.value])
    for protocol in ("classic", "consumer"):
        about = f"Groups of the {protocol} protocol"
        count = sum(states[one] for one in states if one[0] == protocol)
        yield gauge(f"{_COORDINATOR}protocol_{protocol}_group_count", about, count)
    for name in ("Empty", "Assigning", "Reconciling", "Stable", "Dead"):
        about = f"Consumer groups (KIP-848) in the state {name}"
        yield gauge(
            f"{_COORDINATOR}state_{name.lower()}_consumer_group_count",
            about,
            states["consumer", name],
        )


def _rebalances(shards: list[GroupShard]) -> Iterator[Metric]:
    """Since the start, as Kafka's; all shards of a broker share a journal."""
    journal = shards[0].journal if shards else None
    yield gauge(
        f"{_COORDINATOR}group_completed_rebalance_count",
        "Rebalances that classic groups completed since the start",
        0 if journal is None else journal.counts["generation"],
    )
    yield gauge(
        f"{_COORDINATOR}consumer_group_rebalance_count",
        "Epochs of consumer groups (KIP-848) that members or topics raised since the start",
        0 if journal is None else journal.epochs_raised,
    )


def _members(groups: list[Group]) -> Iterator[Metric]:
    yield gauges(
        "kafka_consumergroup_members",
        "Members of the group",
        ("consumergroup",),
        sorted(
            ((group.group_id,), len(group))
            for group in groups
            if isinstance(group, ClassicGroup | ConsumerGroup)
        ),
    )


def _offsets_of(broker: BrokerStatus, shards: list[GroupShard]) -> Iterator[Metric]:
    committed: list[tuple[tuple[str, str, str], float]] = []
    lags: list[tuple[tuple[str, str, str], float]] = []
    sums: Counter[str] = Counter()
    for shard in shards:
        for group_id in shard.offsets.group_ids():
            for (topic, partition), found in shard.offsets.of_group(group_id):
                names = (group_id, topic, str(partition))
                committed.append((names, found.offset))
                log = broker.replica_manager.get_log(topic, partition)
                if log is not None:
                    lag = max(log.high_watermark - found.offset, 0)
                    lags.append((names, lag))
                    sums[group_id] += lag
    labels = ("consumergroup", "topic", "partition")
    about = "Offset that the group has committed: the next record to read"
    yield gauges("kafka_consumergroup_current_offset", about, labels, committed)
    about = "Records after it, of partitions with a replica here"
    yield gauges("kafka_consumergroup_lag", about, labels, lags)
    yield gauges(
        "kafka_consumergroup_lag_sum",
        "The sum over the partitions of the group with a replica here",
        ("consumergroup",),
        (((group_id,), lag) for group_id, lag in sorted(sums.items())),
    )


def _transactions(broker: BrokerStatus) -> Iterator[Metric]:
    shards = [one.shard for one in broker.transactions.runtimes.values() if one.is_serving]
    count = sum(len(shard.known) for shard in shards)
    about = "Transactional ids that this broker coordinates"
    yield gauge("sparkraft_transactional_ids", about, count)
    states: Counter[TransactionState] = Counter()
    for shard in shards:
        states.update(shard.counts)
    yield gauges(
        "sparkraft_transactional_ids_in_state",
        "Transactional ids by state",
        ("state",),
        (((state.label,), each) for state, each in sorted(states.items(), key=_by_number)),
    )


def _by_number(found: tuple[TransactionState, int]) -> int:
    number: int = found[0].value
    return number

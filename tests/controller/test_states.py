"""States of partitions and replicas: each pair by its facts, and along the log of a controller."""

from itertools import product

import pytest

from sparkraft.metadata.image import DIRECTORY_UNASSIGNED
from sparkraft.metadata.partition_state import NO_LEADER
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k64_unregister_broker as k64
from tests.controller.cluster_of import Cluster, uuid
from tests.controller.state_tables import (
    PARTITION_NEXT_STATES,
    REPLICA_NEXT_STATES,
    PartitionMachineState,
    ReplicaFacts,
    ReplicaState,
    outlive_deletion,
    partition_state,
    replica_state,
)
from tests.controller.transitions import Transitions


def events(facts: ReplicaFacts) -> list[ReplicaFacts]:
    """What one thing that happens makes of a replica's facts."""
    assigned, caught_up, alive, stored = facts
    after = [facts._replace(alive=not alive)]
    if assigned:
        if alive:
            after.append(facts._replace(stored=True))
            after.append(facts._replace(caught_up=not caught_up))
        after.append(ReplicaFacts(assigned=False, caught_up=True, alive=alive, stored=stored))
    elif stored:
        # It comes back by a reassignment, so as a newcomer; or its broker deletes it.
        after.append(facts._replace(assigned=True, caught_up=False))
        after += [facts._replace(stored=False)] if alive else []
    else:
        # Born with the partition, or added to it; a broker that is alive stores it at once.
        for known in (True, False):
            after.append(facts._replace(assigned=True, caught_up=known, stored=alive))
    return after


POSSIBLE = [
    facts
    for facts in map(ReplicaFacts._make, product([True, False], repeat=4))
    if facts.assigned or facts.caught_up
    if facts.stored or not (facts.assigned and facts.alive)
]
MADE = {
    (replica_state(before), replica_state(after)) for before in POSSIBLE for after in events(before)
}


@pytest.mark.parametrize(
    ("before", "after"),
    [pair for pair in product(ReplicaState, repeat=2) if pair[0] is not pair[1]],
    ids=lambda state: state.value,
)
def test_a_replica_goes_from_one_state_to_another(before, after):
    assert (after in REPLICA_NEXT_STATES[before]) == ((before, after) in MADE)


@pytest.mark.parametrize(
    ("leader", "state"),
    [
        (None, PartitionMachineState.NON_EXISTENT),
        (NO_LEADER, PartitionMachineState.OFFLINE),
        (0, PartitionMachineState.ONLINE),
    ],
)
def test_a_partitions_state(leader, state):
    assert partition_state(leader) is state


@pytest.mark.parametrize("pair", list(product(PartitionMachineState, repeat=2)), ids=str)
def test_a_partition_goes_from_one_state_to_another(pair):
    before, after = pair
    possible = before is not after and pair != (
        PartitionMachineState.NON_EXISTENT,
        PartitionMachineState.OFFLINE,
    )
    assert (after in PARTITION_NEXT_STATES[before]) == possible


def reassign(cluster, replicas):
    wanted = k45.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = k45.ReassignableTopic(name="t", partitions=[wanted])
    request = k45.AlterPartitionReassignmentsRequest(topics=[topic])
    answer = cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    assert answer.responses[0].partitions[0].error_code == 0


def delete(cluster, name="t"):
    request = k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name=name)])
    answer = cluster.ask(ApiKey.DELETE_TOPICS, request)
    assert answer.responses[0].error_code == 0


def test_every_transition_happens_in_the_life_of_a_cluster():
    cluster, watch = Cluster(), Transitions()
    cluster.start(1, 2, 3, 4, 5)

    def then(*steps):
        for step in steps:
            step()
            watch.follow(cluster.log)

    then(
        lambda: cluster.fence(3),
        lambda: cluster.create("t", replicas=[[1, 2, 3]]),
        lambda: cluster.heartbeat(3),
        lambda: reassign(cluster, [1, 2, 4]),  # 4 is a newcomer
        lambda: cluster.fence(4),
        lambda: cluster.heartbeat(4),
        lambda: reassign(cluster, None),  # and is not wanted after all
        lambda: reassign(cluster, [1, 2, 4, 5]),
        lambda: cluster.alter_isr("t", [1, 2, 4]),
        lambda: cluster.alter_isr("t", [1, 2]),  # 4 fell behind before the move was done
        lambda: cluster.fence(4),
        lambda: reassign(cluster, None),  # 4 keeps its copy while it is away
        lambda: reassign(cluster, [1, 2, 3, 4]),
        lambda: reassign(cluster, None),
        lambda: cluster.heartbeat(4),  # and deletes it now
        lambda: cluster.fence(1),
        lambda: cluster.fence(2),
        lambda: cluster.fence(3),
        lambda: cluster.heartbeat(1),
        lambda: cluster.heartbeat(2),
        lambda: delete(cluster),
        lambda: cluster.create("v", replicas=[[2, 3]]),  # 3 is away, and never stores it
        lambda: delete(cluster, "v"),
        lambda: cluster.create("u", replicas=[[1]]),
        lambda: cluster.fence(1),
        lambda: delete(cluster, "u"),
        lambda: cluster.heartbeat(1),
    )
    every = {
        (before, after)
        for table in (PARTITION_NEXT_STATES, REPLICA_NEXT_STATES)
        for before, states in table.items()  # type: ignore[attr-defined]
        for after in states
    }
    # What takes a broker that dies, or gets the partition back, before it has deleted its copy.
    quick = {
        (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_INELIGIBLE),
        (ReplicaState.DELETION_STARTED, ReplicaState.NEW),
    }
    assert every - watch.seen - quick == set()


def test_a_topic_is_deleted_while_a_replica_is_away_and_another_is_on_its_way():
    cluster, watch = Cluster(), Transitions()
    cluster.start(1, 2, 3)
    cluster.create("t", replicas=[[1, 2]])
    watch.follow(cluster.log)
    cluster.fence(2)
    reassign(cluster, [1, 3])
    topic_id = cluster.core.latest.topics_by_name["t"]
    watch.follow(cluster.log)
    states = [(broker, watch.replicas[topic_id, 0, broker]) for broker in (1, 2, 3)]
    assert outlive_deletion(states) == [2]
    delete(cluster)
    watch.follow(cluster.log)
    assert "t" not in cluster.core.latest.topics_by_name
    assert watch.replicas == {
        (topic_id, 0, 1): ReplicaState.NON_EXISTENT,
        (topic_id, 0, 2): ReplicaState.DELETION_INELIGIBLE,
        (topic_id, 0, 3): ReplicaState.NON_EXISTENT,
    }
    # The name is free at once, and the stray is nobody's.
    assert cluster.create("t", replicas=[[1, 3]]).error_code == 0
    assert cluster.core.latest.topics_by_name["t"] != topic_id
    cluster.heartbeat(2)
    watch.follow(cluster.log)
    assert watch.replicas[topic_id, 0, 2] is ReplicaState.NON_EXISTENT


def test_a_topic_of_brokers_that_left_for_good_can_be_deleted():
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create("t", replicas=[[1, 2]])
    for broker_id in (1, 2):
        cluster.ask(ApiKey.UNREGISTER_BROKER, k64.UnregisterBrokerRequest(broker_id=broker_id))
    assert cluster.partition("t").leader == NO_LEADER
    delete(cluster)
    assert "t" not in cluster.core.latest.topics_by_name


def test_a_lost_directory_makes_a_replica_offline_while_its_broker_lives():
    cluster, watch = Cluster(), Transitions()
    cluster.start(1, 2, directories=2)
    cluster.create("t", replicas=[[1, 2]])
    assert cluster.partition("t").directories == (DIRECTORY_UNASSIGNED,) * 2
    cluster.assign("t", 1, uuid(2000))
    watch.follow(cluster.log)
    cluster.heartbeat(1, offline_log_dirs=[uuid(2000)])
    watch.follow(cluster.log)
    topic_id = cluster.core.latest.topics_by_name["t"]
    assert watch.replicas[topic_id, 0, 1] is ReplicaState.OFFLINE
    assert cluster.partition("t").leader == 2

"""Watches the states of every partition and replica, record by record, against the tables."""

from collections.abc import Sequence
from typing import Any

from sparkraft.base.ids import Uuid
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.metadata.partition_state import PartitionState
from tests.controller.state_tables import (
    PARTITION_NEXT_STATES,
    REPLICA_NEXT_STATES,
    PartitionMachineState,
    ReplicaFacts,
    ReplicaState,
    partition_state,
    replica_state,
)

Copy = tuple[Uuid, int, int]
"""Topic id, partition, broker."""


class Transitions:
    """Follows a metadata log, and brokers that store what is assigned and delete what is not."""

    def __init__(self) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        self.stored: set[Copy] = set()
        self.directories: dict[Copy, Uuid] = {}
        self.replicas: dict[Copy, ReplicaState] = {}
        self.partitions: dict[tuple[Uuid, int], PartitionMachineState] = {}
        self.seen: set[tuple[Any, Any]] = set()
        self._batches = 0

    def follow(self, log: Sequence[tuple[list[Any], int]]) -> None:
        """Take in what is new; then every broker that is alive deletes what it need not keep."""
        for records, _ in log[self._batches :]:
            for record in records:
                self.image = apply(self.image, record)
                self.compare()
        self._batches = len(log)
        for copy in sorted(self.stored):
            if self.state(copy) is ReplicaState.DELETION_STARTED:
                self.stored.discard(copy)
                self.compare()

    def partition(self, topic_id: Uuid, index: int) -> PartitionState | None:
        return self.image.partition(topic_id, index)

    def state(self, copy: Copy) -> ReplicaState:
        topic_id, index, broker_id = copy
        partition = self.partition(topic_id, index)
        broker = self.image.brokers.get(broker_id)
        alive = broker is not None and broker.active
        assigned = partition is not None and broker_id in partition.replicas
        caught_up = True
        if assigned:
            assert partition is not None
            self.directories[copy] = partition.directory(broker_id)
            newcomer = broker_id in partition.adding_replicas
            caught_up = broker_id in partition.isr or not newcomer
        if broker is not None and copy in self.directories:
            # A copy that is no longer assigned stays where it was.
            alive = alive and broker.has_online_directory(self.directories[copy])
        if assigned and alive:
            self.stored.add(copy)
        facts = ReplicaFacts(assigned, caught_up, alive, stored=copy in self.stored)
        return replica_state(facts)

    def compare(self) -> None:
        places = {
            (topic.id, index)
            for topic in self.image.topics_by_id.values()
            for index in topic.partitions
        }
        for place in sorted({*places, *self.partitions}):
            found = self.partition(*place)
            after = partition_state(None if found is None else found.leader)
            before = self.partitions.get(place, PartitionMachineState.NON_EXISTENT)
            self.step(before, after, PARTITION_NEXT_STATES, place)
            self.partitions[place] = after
        copies = {
            (*place, broker)
            for place in places
            if (partition := self.partition(*place)) is not None
            for broker in partition.replicas
        }
        for copy in sorted({*copies, *self.replicas}):
            now = self.state(copy)
            was = self.replicas.get(copy, ReplicaState.NON_EXISTENT)
            self.step(was, now, REPLICA_NEXT_STATES, copy)
            self.replicas[copy] = now

    def step(self, before: Any, after: Any, table: Any, what: Any) -> None:
        if before is not after:
            assert after in table[before], f"{what}: {before} -> {after}"
            self.seen.add((before, after))

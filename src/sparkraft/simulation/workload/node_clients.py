"""Clients of a simulated cluster, and the operator that changes it now and then.

Each has a network identity of its own; none accesses the inside of a node.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.connection import Connection
from sparkraft.metadata.features import SUPPORTED_FEATURES
from sparkraft.metadata.image import BrokerRegistration, ClusterImage
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k57_update_features as k57
from sparkraft.protocol.messages import k62_broker_registration as k62
from sparkraft.protocol.messages import k80_add_raft_voter as k80
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from sparkraft.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.nodes import NodesWorld

REQUEST_MS = 5_000
BROKER_PORT = 9092
CONTROLLER_PORT = 9093

FAILURES = (KafkaError, DecodeError, OSError)
"""Exceptions that a request may raise while faults strike."""


async def create_topics(world: "NodesWorld") -> None:
    """Create topics, delete some of them, and get producer ids, at any broker."""
    count = 0
    while True:
        await asyncio.sleep(world.dice.uniform(0.05, 0.8))
        count += 1
        try:
            await _ask_once(world, f"topic-{count}")
        except FAILURES:
            world.counts["requests failed"] += 1


async def _ask_once(world: "NodesWorld", name: str) -> None:
    whole = [machine for machine in world.brokers if machine not in world.broken]
    host = world.dice.choice(whole).name
    connection = await Connection.open(host, BROKER_PORT, timeout_ms=REQUEST_MS)
    try:
        await _create(world, connection, name)
        if world.dice.random() < 0.1:  # noqa: PLR2004 (most of them stay)
            await _delete_one(world, connection)
        if world.dice.random() < 0.1:  # noqa: PLR2004 (its folders are still made or renamed)
            await _replace_one(world, connection)
        ask = InitProducerIdRequest(transactional_id=None, producer_epoch=-1)
        producer = await connection.send(ask, timeout_ms=REQUEST_MS)
        if producer.error_code == 0:
            world.checks.on_producer_id(producer.producer_id)
    finally:
        connection.abort("done")


async def _replace_one(world: "NodesWorld", connection: Connection) -> None:
    """Delete a created topic and create it again at once, a few times."""
    if not world.checks.created:
        return
    name = world.dice.choice(sorted(world.checks.created))
    for _ in range(world.dice.choice([1, 2, 3])):
        await _delete(world, connection, name)
        await _create(world, connection, name)
    world.counts["topics replaced"] += 1


async def _create(world: "NodesWorld", connection: Connection, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS)
    answer = await connection.send(request, timeout_ms=REQUEST_MS)
    for result in answer.topics:
        if result.error_code == 0:
            world.checks.on_created(result.name, result.topic_id)


async def _delete_one(world: "NodesWorld", connection: Connection) -> None:
    """Delete a created topic."""
    if world.checks.created:
        await _delete(world, connection, world.dice.choice(sorted(world.checks.created)))


async def _delete(world: "NodesWorld", connection: Connection, name: str) -> None:
    """Delete a topic; later checks accept that it exists or not."""
    world.checks.created.pop(name, None)
    topic = DeleteTopicState(name=name)
    request = DeleteTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS)
    await connection.send(request, timeout_ms=REQUEST_MS)
    world.counts["topics deleted"] += 1


# ---- the operator


async def ask_controller(world: "NodesWorld", leader: "Machine", request: Any, what: str) -> None:
    """Send one admin request to the active controller, and count its response."""
    try:
        connection = await Connection.open(leader.name, CONTROLLER_PORT, timeout_ms=REQUEST_MS)
        try:
            answer = await connection.send(request, timeout_ms=REQUEST_MS)
        finally:
            connection.abort("done")
    except FAILURES:
        world.counts[f"{what}: no response"] += 1
        return
    world.counts[f"{what}: {ErrorCode(answer.error_code).name}"] += 1
    world.note(f"-- {what}: {ErrorCode(answer.error_code).name}")


def voter_request(world: "NodesWorld", leader: "Machine") -> Any:
    """Return a request that adds or removes a voter; None if neither is possible now.

    A voter that lost its disk is removed first; otherwise such voters could become the majority.
    """
    voters, dice = leader.raft.voters, world.dice
    keys = {int(voter.key.id): voter.key for voter in voters.voters}
    lost = [m for m in world.controllers if m.id in keys and not voters.is_voter(_key(m, keys))]
    if lost:
        return _removal(keys[lost[0].id])
    if len(keys) > 2 and dice.random() < 0.5:  # noqa: PLR2004 (a quorum of one survives no disk)
        return _removal(dice.choice(list(keys.values())))
    outside = [m for m in world.controllers if m.id not in keys and m.live_node is not None]
    if not outside:
        return None
    machine = dice.choice(outside)
    listener = k80.Listener(name="CONTROLLER", host=machine.name, port=CONTROLLER_PORT)
    return k80.AddRaftVoterRequest(
        cluster_id=world.cluster_id,
        timeout_ms=REQUEST_MS,
        voter_id=machine.id,
        voter_directory_id=machine.directory_id,
        listeners=[listener],
    )


def _key(machine: "Machine", keys: dict[int, Any]) -> Any:
    known = keys[machine.id]
    return type(known)(known.id, machine.directory_id)


def _removal(key: Any) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id=None, voter_id=int(key.id), voter_directory_id=key.directory_id
    )


def registration_request(
    world: "NodesWorld", machine: "Machine", known: BrokerRegistration
) -> k62.BrokerRegistrationRequest:
    """Return the request of another process of a machine, which never sends a heartbeat."""
    return k62.BrokerRegistrationRequest(
        broker_id=machine.id,
        cluster_id=world.cluster_id,
        incarnation_id=Uuid(world.dice.randbytes(16)),
        listeners=[
            k62.Listener(
                name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
            )
            for one in known.endpoints
        ],
        features=[
            k62.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
        ],
        log_dirs=sorted(known.directories),
        previous_broker_epoch=-1,
    )


FEATURES = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "share.version": 1,
    "transaction.version": 2,
}


def feature_request(world: "NodesWorld") -> Any:
    """Return a request that upgrades metadata.version or another feature, or rarely downgrades it.

    Downgrades are safe ones (upgrade type 2), which lose no metadata.
    """
    dice = world.dice
    kind = 1
    if dice.random() < 0.3:  # noqa: PLR2004 (mostly the one that changes the records)
        name = dice.choice(sorted(FEATURES))
        level = FEATURES[name]
    else:
        name, level = "metadata.version", dice.randint(8, 30)
        kind = 1 if dice.random() < 0.8 else 2  # noqa: PLR2004 (a safe downgrade now and then)
    update = k57.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    return k57.UpdateFeaturesRequest(timeout_ms=REQUEST_MS, feature_updates=[update])


def preferred_request() -> Any:
    """Return a request that elects the preferred leader of every partition if it is in sync."""
    return k43.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=REQUEST_MS)


def move_request(world: "NodesWorld") -> Any:
    """Return a request that moves a partition to other replicas; None without partitions."""
    image, dice = world.checks.records.image, world.dice
    topics = [topic for topic in image.topics_in_order() if topic.partitions]
    if not topics:
        return None
    topic = dice.choice(topics)
    ids = [machine.id for machine in world.brokers]
    replicas = dice.sample(ids, min(dice.choice([2, 3]), len(ids)))
    return _reassign(topic.name, dice.choice(sorted(topic.partitions)), replicas)


def cancel_request(request: Any) -> Any:
    """Return a request that cancels the reassignment of `request`."""
    (topic,) = request.topics
    (partition,) = topic.partitions
    return _reassign(topic.name, partition.partition_index, None)


def ending_request(world: "NodesWorld", image: ClusterImage, replicas_min: int) -> Any:
    """Return a request that cancels stuck reassignments and adds replicas; None if not needed.

    A reassignment is stuck if its target changed while a replica was being added that the new
    target removes: as in Kafka, it still waits for that replica. Partitions with fewer than
    `replicas_min` replicas get more.
    """
    ids = [machine.id for machine in world.brokers]
    wanted = []
    for topic in image.topics_in_order():
        for index, partition in sorted(topic.partitions.items()):
            stay = [r for r in partition.replicas if r not in partition.removing_replicas]
            more = [other for other in ids if other not in partition.replicas]
            if {*partition.adding_replicas} & {*partition.removing_replicas}:
                wanted.append(_moved(topic.name, index, None))
            elif len(stay) < replicas_min:
                wanted.append(_moved(topic.name, index, (stay + more)[:replicas_min]))
    return _move(*wanted) if wanted else None


def _reassign(name: str, index: int, replicas: list[int] | None) -> Any:
    return _move(_moved(name, index, replicas))


def _moved(name: str, index: int, replicas: list[int] | None) -> Any:
    part = k45.ReassignablePartition(partition_index=index, replicas=replicas)
    return k45.ReassignableTopic(name=name, partitions=[part])


def _move(*topics: Any) -> Any:
    return k45.AlterPartitionReassignmentsRequest(timeout_ms=REQUEST_MS, topics=list(topics))


def kraft_request() -> Any:
    """Return a request that raises kraft.version to 1, which stores the voters in the log."""
    update = k57.FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
    return k57.UpdateFeaturesRequest(timeout_ms=REQUEST_MS, feature_updates=[update])

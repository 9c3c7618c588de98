"""Members of a KIP-848 group keep their membership when the other kind of broker takes over.

The directory moves while the group has members; each of them sends its next heartbeat, in its
epoch, to the new coordinator.
"""

from pathlib import Path
from typing import Any

import pytest

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.interop.differential.building import is_final
from tests.interop.differential.consumer_group_cases import beat, joins, keep
from tests.interop.differential.world import Case, World, exchange
from tests.support.nodes import KafkaNode, NodeProcess, SparkraftNode

pytestmark = [pytest.mark.real_clients, pytest.mark.java]

GROUP = "moving"
KINDS: dict[str, type[NodeProcess]] = {"sparkraft": SparkraftNode, "kafka": KafkaNode}


def heartbeat(world: World, build: Any) -> Any:
    """The response to a heartbeat of the member `a`."""
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    return exchange(world, Case("a", key, 1, build, keep("a"), until=is_final))


def described(world: World) -> Any:
    """The group as its coordinator describes it, with the protocol of its members."""
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP])
    case = Case(GROUP, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, lambda _: request, until=is_final)
    return exchange(world, case)["groups"][0]


def joined(world: World) -> Any:
    """Let `a` join; the group once `a` has both partitions."""

    def has_all(answer: Any) -> bool:
        assigned = (answer["assignment"] or {}).get("topicPartitions", [])
        return [one["partitions"] for one in assigned] == [[0, 1]]

    # A new topic reaches the coordinator a moment later.
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    exchange(world, Case("a joins", key, 1, joins(GROUP, "a"), keep("a"), until=has_all))
    group = described(world)
    assert group["groupState"] == "Stable"
    return group


@pytest.mark.parametrize("order", [("sparkraft", "kafka"), ("kafka", "sparkraft")], ids="-".join)
def test_a_member_stays_in_its_group(
    kafka_jars: Path, tmp_path: Path, order: tuple[str, str]
) -> None:
    topics = CreateTopicsRequest(
        topics=[CreatableTopic(name="orders", num_partitions=2, replication_factor=1)]
    )
    world = World(order[0], KINDS[order[0]](tmp_path, jars=kafka_jars))
    with world.node:
        world.warm_up()
        exchange(world, Case("orders", ApiKey.CREATE_TOPICS, 7, lambda _: topics))
        was = joined(world)
        world.close()
    world.node = KINDS[order[1]](tmp_path, jars=kafka_jars)
    with world.node:
        assert described(world) == was
        assert heartbeat(world, beat(GROUP, "a"))["errorCode"] == 0
        assert described(world) == was
        world.close()

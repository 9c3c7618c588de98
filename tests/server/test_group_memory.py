"""Members of consumer groups cannot hold more memory than the broker allows them."""

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from sparkraft.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.server.harness import connect, create_topic, node_in, run, until

ALLOWED = 55_000
TOPICS = [f"{number:03d}" + "x" * 200 for number in range(140)]
"""As names and as a regular expression, one such member is allowed, and two are not."""


async def coordinated(connection: Connection) -> None:
    """Return once the broker coordinates groups."""

    async def found() -> bool:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        return (await connection.send(request)).coordinators[0].error_code == 0

    await until(found)


async def joined(connection: Connection, group: str, **subscription: object) -> ErrorCode:
    """The answer to a first heartbeat, once the coordinator has loaded."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=0, rebalance_timeout_ms=1_000,
        topic_partitions=[], **subscription,
    )  # fmt: skip
    while True:
        code = ErrorCode((await connection.send(request)).error_code)
        if code not in {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}:
            return code


@pytest.mark.parametrize(
    "subscription",
    [{"subscribed_topic_names": TOPICS}, {"subscribed_topic_regex": "|".join(TOPICS)}],
)
def test_a_subscription_above_the_bound_is_refused_until_members_leave(tmp_path, subscription):
    async def test():
        bound = {"sparkraft_group_members_max_bytes": str(ALLOWED)}
        async with node_in(tmp_path, **bound) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            await coordinated(connection)
            assert await joined(connection, "g", **subscription) is ErrorCode.NONE
            refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await joined(connection, "h", **subscription) is refused
            assert await joined(connection, "i", subscribed_topic_names=["t"]) is ErrorCode.NONE
            leaving = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1)
            assert (await connection.send(leaving)).error_code == 0

            async def admitted() -> bool:
                return await joined(connection, "h", **subscription) is ErrorCode.NONE

            await until(admitted)

    run(test())


def test_a_subscription_that_is_too_large_for_a_record_is_refused(tmp_path):
    """UNKNOWN_SERVER_ERROR, as in Kafka for RECORD_TOO_LARGE; the other member stays."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t")
            await coordinated(connection)
            assert await joined(connection, "g", subscribed_topic_names=["t"]) is ErrorCode.NONE
            names = [f"{number:05d}" + "x" * 200 for number in range(10_000)]
            request = ConsumerGroupHeartbeatRequest(
                group_id="g", member_id="large", member_epoch=0, rebalance_timeout_ms=1_000,
                topic_partitions=[], subscribed_topic_names=names,
            )  # fmt: skip
            refused = await connection.send(request)
            assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            described = await connection.send(ConsumerGroupDescribeRequest(group_ids=["g"]))
            assert [one.member_id for one in described.groups[0].members] == ["m"]
            assert await joined(connection, "g", subscribed_topic_names=["t"]) is ErrorCode.NONE
            await connection.close()

    run(test())

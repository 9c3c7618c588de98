"""Configs altered while a node runs: what they say holds at once, for topics and for the node."""

import asyncio

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages import k33_alter_configs as k33
from sparkraft.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.server.harness import (
    NOW_MS,
    append,
    batch,
    connect,
    create_topic,
    node_in,
    run,
    until,
)

SET, DELETE, APPEND = 0, 1, 2
CLUSTER, NODE = "", "1"
BIG = bytes(300_000)


def resource_of(type_, name, key, value, operation=None):
    """A change of one config; it is deleted where `value` is None."""
    if operation is None:
        operation = DELETE if value is None else SET
    config = AlterableConfig(name=key, config_operation=operation, value=value)
    return AlterConfigsResource(resource_type=type_, resource_name=name, configs=[config])


async def alter(connection, type_, name, key, value):
    """Set a config, or delete it where `value` is None."""
    resource = resource_of(type_, name, key, value)
    answer = await connection.send(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer


async def alter_at_controller(node, name, key, value):
    """The same, past the broker, which could refuse it."""
    connection = await connect(node, "CONTROLLER")
    await alter(connection, ResourceType.BROKER, name, key, value)
    await connection.close()


def test_what_a_topic_is_told_holds_for_its_live_log(tmp_path):
    async def test():
        async with node_in(tmp_path, log_retention_check_interval_ms="20") as node:
            connection = await connect(node)
            configs = {"segment_bytes": "1048576", "retention_ms": "-1"}
            topic_id = await create_topic(connection, "t", **configs)

            async def told(key, value):
                await alter(connection, ResourceType.TOPIC, "t", key, value)

            await told("max.message.bytes", "400")
            refused = await append(connection, topic_id, batch(BIG))
            assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
            await told("max.message.bytes", None)
            for _ in range(10):
                assert (await append(connection, topic_id, batch(BIG))).error_code == 0
            log = node.broker.replica_manager.get_log("t", 0)
            assert len(log.segment_base_offsets) == 4
            await told("message.timestamp.type", "LogAppendTime")
            stamped = await append(connection, topic_id, batch(BIG))
            assert stamped.log_append_time_ms > NOW_MS
            assert log.log_start_offset == 0
            await told("retention.bytes", "1048576")
            await until(lambda: log.log_start_offset > 0)
            await connection.close()

    run(test())


@pytest.mark.parametrize("level", [CLUSTER, NODE])
def test_what_brokers_are_told_holds_for_logs_of_topics_that_set_nothing(tmp_path, level):
    async def test():
        async with node_in(
            tmp_path, log_retention_check_interval_ms="20", log_retention_ms="-1"
        ) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            own_id = await create_topic(connection, "own", retention_ms="-1")
            await append(connection, topic_id, batch(b"old"))
            await append(connection, own_id, batch(b"old"))
            manager = node.broker.replica_manager
            log = manager.get_log("t", 0)
            await alter(connection, ResourceType.BROKER, level, "producer.id.expiration.ms", "77")
            assert log.config.producer_id_expiration_ms == 77
            assert log.log_start_offset == 0
            await alter(connection, ResourceType.BROKER, level, "log.retention.ms", "1000")
            await until(lambda: log.log_start_offset == 1)
            assert manager.get_log("own", 0).log_start_offset == 0
            await alter(connection, ResourceType.BROKER, level, "producer.id.expiration.ms", None)
            assert log.config.producer_id_expiration_ms == 86_400_000
            await connection.close()

    run(test())


def test_connections_are_limited_anew(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            first = await connect(node)
            for key in ("max.connections.per.ip", "max.connections"):
                await alter(first, ResourceType.BROKER, CLUSTER, key, "2")
                second = await connect(node)
                with pytest.raises((KafkaError, OSError)):
                    await connect(node)
                await alter(first, ResourceType.BROKER, CLUSTER, key, None)
                third = await connect(node)
                await asyncio.gather(second.close(), third.close())
                listener = node.listeners[0]
                await until(lambda: listener.connections == 1)  # noqa: B023 (awaited here)
            await first.close()

    run(test())


def test_an_address_may_have_a_connection_limit_of_its_own(tmp_path, caplog):
    async def test():
        async with node_in(tmp_path, max_connections_per_ip_overrides="localhost:2") as node:
            first = await connect(node)
            second = await connect(node)
            with pytest.raises((KafkaError, OSError)):
                await connect(node)
            key = "max.connections.per.ip.overrides"
            await alter(first, ResourceType.BROKER, CLUSTER, key, "127.0.0.1:3")
            third = await connect(node)
            await alter_at_controller(node, CLUSTER, key, "127.0.0.1")
            fourth = await connect(node)
            for each in (first, second, third, fourth):
                await each.close()

    run(test())
    assert "'127.0.0.1' is not host:count" in caplog.text


def test_a_broker_refuses_what_it_could_not_follow_and_forwards_the_rest(tmp_path):
    """As Kafka's ConfigAdminManager, with its error; the controller can't know these."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            cordoned, overrides = "cordoned.log.dirs", "max.connections.per.ip.overrides"
            fetchers = "num.replica.fetchers"
            here = str(tmp_path)

            async def told(key, value, *, name=NODE, operation=None):
                resource = resource_of(ResourceType.BROKER, name, key, value, operation)
                request = IncrementalAlterConfigsRequest(resources=[resource])
                (told,) = (await connection.send(request)).responses
                assert (told.resource_type, told.resource_name) == (ResourceType.BROKER, name)
                return ErrorCode(told.error_code)

            refused = ErrorCode.INVALID_REQUEST
            assert await told(cordoned, f"{here}/elsewhere") is refused
            assert await told(cordoned, f"*,{here}") is refused
            assert await told(cordoned, here) is ErrorCode.NONE
            assert await told(cordoned, "/elsewhere", operation=APPEND) is refused
            assert await told(cordoned, None) is ErrorCode.NONE
            assert await told(overrides, "no.such.host.invalid:3", name=CLUSTER) is refused
            assert await told(overrides, "127.0.0.1") is refused
            assert await told(fetchers, "3", name=CLUSTER) is refused
            assert await told(fetchers, "2", name=CLUSTER) is ErrorCode.NONE
            assert await told(fetchers, "4") is ErrorCode.NONE
            assert await told(fetchers, "1") is refused
            assert await told("log.cleaner.backoff.ms", "9", name="2") is refused
            image = node.broker.image
            kept = dict(image.config(ResourceType.BROKER, NODE).items())
            assert kept == {fetchers: "4"}

            await alter_at_controller(node, NODE, cordoned, "/elsewhere")
            assert await told("log.cleaner.backoff.ms", "9") is ErrorCode.NONE
            resources = [
                resource_of(ResourceType.BROKER, NODE, cordoned, "/nowhere"),
                resource_of(ResourceType.BROKER, CLUSTER, "log.cleaner.backoff.ms", "10"),
                resource_of(ResourceType.TOPIC, "none", "retention.ms", "1"),
            ]
            request = IncrementalAlterConfigsRequest(resources=resources)
            results = (await connection.send(request)).responses
            assert [ErrorCode(result.error_code) for result in results] == [
                refused,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            await connection.close()

    run(test())


def test_a_broker_refuses_a_whole_map_that_it_could_not_follow(tmp_path):
    """The older AlterConfigs."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            for value, code in (("/elsewhere", ErrorCode.INVALID_REQUEST), ("*", ErrorCode.NONE)):
                config = k33.AlterableConfig(name="cordoned.log.dirs", value=value)
                resource = k33.AlterConfigsResource(
                    resource_type=ResourceType.BROKER, resource_name=NODE, configs=[config]
                )
                answer = await connection.send(k33.AlterConfigsRequest(resources=[resource]))
                assert ErrorCode(answer.responses[0].error_code) is code
            assert node.broker.log_manager.cordoned == {str(tmp_path)}
            await connection.close()

    run(test())


def test_dynamic_configs_without_effect_are_named_once(tmp_path, caplog):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            caplog.set_level("INFO")
            for value in ("9", "10"):
                await alter(connection, ResourceType.BROKER, CLUSTER, "num.io.threads", value)
            await connection.close()

    run(test())
    lines = [r.getMessage() for r in caplog.records if "no effect here yet" in r.getMessage()]
    assert len(lines) == 1
    assert "num.io.threads" in lines[0]

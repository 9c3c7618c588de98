"""Requests of clients, and znodes of older tools, while a broker of ours is the controller."""

import json
import logging
import re
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k32_describe_configs as k32
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k46_list_partition_reassignments as k46
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from sparkraft.protocol.messages import k57_update_features as k57
from sparkraft.security.principal import ANONYMOUS
from sparkraft.server.api.registry import result_of
from sparkraft.server.broker.envelope import seal_envelope
from sparkraft.server.controller import audit
from sparkraft.zookeeper.requests import Create
from tests.server.harness import run, until
from tests.support.envelopes import response_in
from tests.zookeeper.broker.nodes import nodes_in

pytestmark = [pytest.mark.real_time]


@asynccontextmanager
async def three(folder):
    """Broker 1 is the controller; `t` is on brokers 1 and 2."""
    async with nodes_in(folder) as nodes:
        await nodes.start(1, 2, 3)
        await until(lambda: sorted(nodes[1].broker.image.brokers) == [1, 2, 3])
        async with nodes.admin() as admin:
            await nodes.create(admin, "t", {0: [1, 2], 1: [2, 1]})
            yield nodes, admin.cluster


def znode(nodes, path):
    return json.loads(nodes.ensemble.znodes.get(path).data)


def reassignment(partition, replicas):
    topic = k45.ReassignableTopic(
        name="t",
        partitions=[k45.ReassignablePartition(partition_index=partition, replicas=replicas)],
    )
    return k45.AlterPartitionReassignmentsRequest(topics=[topic])


async def reassign(cluster, partition, replicas):
    response = await cluster.ask_any(reassignment(partition, replicas))
    return response.responses[0].partitions[0].error_code


def test_a_partition_moves_by_request_and_by_znode_and_is_led_by_its_preferred_replica(tmp_path):
    async def test():
        async with three(tmp_path) as (nodes, cluster):
            assert await reassign(cluster, 0, [3, 2]) == ErrorCode.NONE
            await until(lambda: nodes.states("t", 1).get(0) == (3, [2, 3]))
            await until(lambda: nodes[1].broker.log_manager.get("t", 0) is None)
            topic = znode(nodes, "/brokers/topics/t")
            assert topic["partitions"] == {"0": [3, 2], "1": [2, 1]}
            assert not topic["adding_replicas"]
            assert not topic["removing_replicas"]
            listed = await cluster.ask_any(k46.ListPartitionReassignmentsRequest())
            assert listed.topics == []
            refused = await reassign(cluster, 0, [3, 9])
            assert refused == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            assert await reassign(cluster, 0, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            # As kafka-reassign-partitions.sh --zookeeper did.
            target = {"topic": "t", "partition": 0, "replicas": [1, 3]}
            data = json.dumps({"version": 1, "partitions": [target]}).encode()
            await nodes.submit(Create(path="/admin/reassign_partitions", data=data))
            await until(lambda: nodes.states("t", 1).get(0, (0, []))[1] == [1, 3])
            await until(lambda: "reassign_partitions" not in nodes.children("/admin"))
            # Broker 3 leads still, and 1 is preferred.
            request = k43.ElectLeadersRequest(
                topic_partitions=[k43.TopicPartitions(topic="t", partitions=[0, 5])]
            )
            response = await cluster.ask_any(request)
            assert [
                (each.partition_id, each.error_code)
                for each in response.replica_election_results[0].partition_result
            ] == [(0, ErrorCode.NONE), (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
            assert nodes.states("t", 1)[0] == (1, [1, 3])

    run(test())


def test_each_change_leaves_one_line_with_its_author(tmp_path, caplog):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1)
            await until(lambda: sorted(nodes[1].broker.image.brokers) == [1])
            async with nodes.admin() as admin:
                await nodes.create(admin, "logged", {0: [1]})
                config = k44.AlterableConfig(name="retention.ms", config_operation=0, value="777")
                resource = k44.AlterConfigsResource(
                    resource_type=ResourceType.TOPIC, resource_name="logged", configs=[config]
                )
                request = k44.IncrementalAlterConfigsRequest(resources=[resource])
                response = await admin.cluster.ask_any(request)
                assert response.responses[0].error_code == ErrorCode.NONE

    caplog.set_level(logging.INFO)
    run(test())
    said = [
        (r.name, r.getMessage())
        for r in caplog.records
        if re.search(r"(?i)created topic|changed (the )?configs", r.getMessage())
    ]
    assert [name for name, _ in said] == [audit.log.name] * 2
    for (_, line), what in zip(
        said, ("created topics logged", "changed configs of topic logged (retention.ms)"),
        strict=True,
    ):  # fmt: skip
        assert re.fullmatch(rf"User:ANONYMOUS \(127\.0\.0\.1, client .*\) {re.escape(what)}", line)


def test_the_controller_serves_the_envelopes_of_migrating_brokers_of_kafka(tmp_path):
    """They send clients' requests in them, also while a broker is the controller (KIP-866)."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            client = SimpleNamespace(
                correlation_id=7, client_id="c", principal=ANONYMOUS, client_host="127.0.0.1"
            )
            topic = k19.CreatableTopic(name="sent", num_partitions=1, replication_factor=1)
            request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            envelope = result_of(seal_envelope(request, ApiKey.CREATE_TOPICS, 7, client))
            async with nodes.admin() as admin:
                refused = await admin.cluster.ask_node(2, envelope)
                assert refused.error_code == ErrorCode.NOT_CONTROLLER
                answer = await admin.cluster.ask_node(1, envelope)
            response = response_in(answer, ApiKey.CREATE_TOPICS, 7, 7)
            assert [(each.name, each.error_code) for each in response.topics] == [("sent", 0)]
            assert nodes.children("/brokers/topics") == ["sent"]

    run(test())


def altered(kind, name, key, value):
    config = k44.AlterableConfig(name=key, value=value)
    return k44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])


def test_configs_and_quotas_are_written_by_the_broker_that_gets_them(tmp_path):
    async def test():
        async with three(tmp_path) as (nodes, cluster):
            resources = [
                altered(ResourceType.TOPIC, "t", "retention.ms", "60000"),
                altered(ResourceType.GROUP, "g", "consumer.session.timeout.ms", "50000"),
                altered(ResourceType.BROKER, "9", "log.cleaner.threads", "2"),
            ]
            request = k44.IncrementalAlterConfigsRequest(resources=resources)
            response = await cluster.ask_any(request)
            assert {each.resource_name: each.error_code for each in response.responses} == {
                "t": 0, "g": ErrorCode.INVALID_REQUEST, "9": ErrorCode.INVALID_REQUEST,
            }  # fmt: skip
            assert znode(nodes, "/config/topics/t")["config"] == {"retention.ms": "60000"}
            (change,) = nodes.children("/config/changes")
            assert znode(nodes, f"/config/changes/{change}")["entity_path"] == "topics/t"
            log = nodes[2].broker.log_manager.get("t", 0)
            await until(lambda: log.config.retention_ms == 60_000)
            entity = [k49.EntityData(entity_type="user", entity_name="CN=a b")]
            for remove in (False, True):
                op = k49.OpData(key="producer_byte_rate", value=1024.0, remove=remove)
                entry = k49.AlterClientQuotasRequestEntryData(entity=entity, ops=[op])
                response = await cluster.ask_any(k49.AlterClientQuotasRequest(entries=[entry]))
                assert response.entries[0].error_code == 0
                expected = [] if remove else ["CN%3Da%20b"]
                assert nodes.children("/config/users") == expected
                await until(lambda: bool(nodes[3].broker.image.quotas) != remove)  # noqa: B023

    run(test())


def test_quotas_of_a_user_and_of_its_client_ids_are_removed_one_by_one(tmp_path):
    """As `AdminZkClient.tryCleanQuotaNodes` of Kafka 3.9: the znode of a user may have others."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1)

            async def alter(*entity, remove=False):
                kinds = zip(("user", "client-id"), entity, strict=False)
                parts = [k49.EntityData(entity_type=kind, entity_name=name) for kind, name in kinds]
                op = k49.OpData(key="producer_byte_rate", value=1024.0, remove=remove)
                entry = k49.AlterClientQuotasRequestEntryData(entity=parts, ops=[op])
                response = await cluster.ask_any(k49.AlterClientQuotasRequest(entries=[entry]))
                assert response.entries[0].error_code == 0

            def known():
                return sorted(len(entity) for entity in nodes[1].broker.image.quotas)

            async with nodes.admin() as admin:
                cluster = admin.cluster
                for entity in (("u",), ("u", "a"), ("u", "b")):
                    await alter(*entity)
                await until(lambda: known() == [1, 2, 2])
                await alter("u", remove=True)
                await until(lambda: known() == [2, 2])
                assert znode(nodes, "/config/users/u")["config"] == {}
                await alter("u", "a", remove=True)
                assert nodes.children("/config/users/u/clients") == ["b"]
                await alter("u", "b", remove=True)
                assert nodes.children("/config/users") == []
                # A user that has configs stays without its client ids.
                for entity in (("u",), ("u", "a")):
                    await alter(*entity)
                await alter("u", "a", remove=True)
                assert nodes.children("/config/users/u") == []
                assert znode(nodes, "/config/users/u")["config"] == {"producer_byte_rate": "1024"}
                await until(lambda: known() == [1])

    run(test())


def test_topics_and_configs_are_those_of_kafka_3_9(tmp_path):
    """Where KRaft mode differs; `differential` compares all requests with a broker of Kafka."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1)
            await until(lambda: sorted(nodes[1].broker.image.brokers) == [1])
            async with nodes.admin() as admin:
                ask = admin.cluster.ask_any

                def new(*names, validate_only=False):
                    topics = [
                        k19.CreatableTopic(name=each, num_partitions=1, replication_factor=1)
                        for each in names
                    ]
                    return k19.CreateTopicsRequest(
                        topics=topics, timeout_ms=30_000, validate_only=validate_only
                    )

                valid = (await ask(new("t", validate_only=True))).topics[0]
                assert (valid.error_code, valid.topic_id) == (0, Uuid.ZERO)
                first, second = (await ask(new("a.b", "a_b"))).topics
                assert (first.error_code, second.error_code) == (
                    0, ErrorCode.INVALID_TOPIC_EXCEPTION,
                )  # fmt: skip
                assert "collides with existing topics: a.b" in second.error_message
                assert nodes.children("/brokers/topics") == ["a.b"]
                chosen = k43.TopicPartitions(topic="a.b", partitions=[0])
                elected = await ask(k43.ElectLeadersRequest(topic_partitions=[chosen]))
                result = elected.replica_election_results[0].partition_result[0]
                assert result.error_message == "Leader election not needed for topic partition."
                by_name = k20.DeleteTopicState(name="a.b")
                deleted = await ask(k20.DeleteTopicsRequest(topics=[by_name], timeout_ms=30_000))
                assert (deleted.responses[0].error_code, deleted.responses[0].topic_id) == (
                    0, Uuid.ZERO,
                )  # fmt: skip
                resources = [
                    k32.DescribeConfigsResource(resource_type=kind, resource_name="x")
                    for kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS)
                ]
                described = await ask(k32.DescribeConfigsRequest(resources=resources))
                codes = [each.error_code for each in described.results]
                assert codes == [ErrorCode.INVALID_REQUEST] * 2
                broker = k32.DescribeConfigsResource(resource_type=4, resource_name="1")
                (own,) = (await ask(k32.DescribeConfigsRequest(resources=[broker]))).results
                values = {each.name: (each.value, each.is_sensitive) for each in own.configs}
                assert values["zookeeper.session.timeout.ms"] == ("6000", False)
                assert values["node.id"] == ("1", False)

    run(test())


def test_no_feature_is_known_in_this_mode(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1)
            # Elected, it is the controller before its failover has written everything.
            await until(lambda: "feature" in nodes.children("/"))
            assert znode(nodes, "/feature") == {"features": {}, "version": 2, "status": 1}
            async with nodes.admin() as admin:
                update = k57.FeatureUpdateKey(feature="metadata.version", max_version_level=21)
                request = k57.UpdateFeaturesRequest(feature_updates=[update])
                response = await admin.cluster.ask_any(request, version=1)
                assert response.results[0].error_code == ErrorCode.INVALID_REQUEST
                assert "the provided feature is not supported" in response.results[0].error_message

    run(test())

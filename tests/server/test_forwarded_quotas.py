"""Quotas of clients whose requests a broker sends on to the controller (KIP-124, KIP-599, KIP-590).

Both nodes count a request for its client. Kafka: `RequestHandlerHelper` and `EnvelopeUtils`.
"""

import asyncio
import logging
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.client.connection import Connection
from sparkraft.protocol import codec, headers
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.protocol.messages.k43_elect_leaders import ElectLeadersRequest
from sparkraft.protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from sparkraft.protocol.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from sparkraft.protocol.messages.k58_envelope import EnvelopeRequest
from sparkraft.security.acls import AclOperation
from sparkraft.security.client_quotas import ClientQuotas
from sparkraft.security.principal import KafkaPrincipal
from sparkraft.server.broker.envelope import principal_bytes
from sparkraft.server.node import Node
from tests.server.harness import connect, node_in, run, until
from tests.server.test_forwarding import controller_and_broker
from tests.support.envelopes import response_in
from tests.support.sessions import Deciding

TIME = "request_percentage"
MUTATIONS = "controller_mutation_rate"
TINY = 0.0001
"""Percent of the loop's time: every request exceeds it, by more than one window."""
WINDOW_MS = 1_000
SLOW = 0.1
"""Partitions a second: after twelve of them a client waits for two minutes."""
ALICE = KafkaPrincipal("User", "alice")
BOB = KafkaPrincipal("User", "bob")


async def limit(connection: Connection, key: str, value: float, *nodes: Node, **of: str) -> None:
    """Set a quota of `user` or `client_id`; returns when the nodes have it."""
    kinds = {"user": "user", "client_id": "client-id"}
    entity = [EntityData(entity_type=kinds[kind], entity_name=name) for kind, name in of.items()]
    entry = AlterClientQuotasRequestEntryData(entity=entity, ops=[OpData(key=key, value=value)])
    response = await connection.send(AlterClientQuotasRequest(entries=[entry]))
    assert response.entries[0].error_code == 0

    def has_it(node: Node) -> bool:
        return all(
            each.quotas.limit_of(key, of.get("user", "ANONYMOUS"), of.get("client_id", ""))
            for each in node.listeners
        )

    for node in nodes:
        await until(lambda node=node: has_it(node))


def muted(node: Node) -> list[Any]:
    return [c for each in node.listeners for c in each._connections if c.session.is_muted]


def counted(node: Node, listener: str = "CONTROLLER") -> set[tuple[str | None, str | None]]:
    """The users and client ids whose time a listener has counted."""
    (found,) = [each for each in node.listeners if each.name == listener]
    rates = found.quotas.rates(100, found.clock.mono_ms())
    return {(user, client) for (key, user, client), rate in rates if key == TIME and rate > 0}


def listener_of(node: Node, name: str) -> Any:
    (found,) = [each for each in node.listeners if each.name == name]
    return found


def enveloped(request: Any, principal: KafkaPrincipal, client_id: str = "app") -> EnvelopeRequest:
    key = ApiKey(request.SCHEMA.key)
    version = API_INFO[key].max_version
    header = headers.RequestHeader(
        request_api_key=int(key), request_api_version=version, client_id=client_id
    )
    data = codec.encode(header, headers.request_header_version(key, version))
    return EnvelopeRequest(
        request_data=data + codec.encode(request, version),
        request_principal=principal_bytes(principal),
        client_host_address=bytes((10, 1, 2, 3)),
    )


async def forwarded(broker: Connection, request: Any, principal: KafkaPrincipal) -> Any:
    """The response in the envelope."""
    key = ApiKey(request.SCHEMA.key)
    answer = await broker.send(enveloped(request, principal))
    assert answer.error_code == 0
    return response_in(answer, key, API_INFO[key].max_version)


def creation(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def quorum_of(partition: int = 0) -> DescribeQuorumRequest:
    part = DescribeQuorumRequestPartitionData(partition_index=partition)
    topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[part])
    return DescribeQuorumRequest(topics=[topic])


async def named(node: Node, client_id: str) -> Connection:
    return await Connection.open("127.0.0.1", node.ports["PLAINTEXT"], client_id=client_id)


@asynccontextmanager
async def controller_in(path: Path):
    """A node, and a connection of another broker to its controller."""
    async with node_in(path) as node:
        broker = await connect(node, "CONTROLLER")
        yield node, broker
        await broker.close()


def test_the_controller_counts_a_forwarded_request_for_its_client(tmp_path):
    """By the principal and the client id of the request inside, not by those of the broker."""

    async def test():
        async with controller_in(tmp_path) as (node, broker):
            await limit(broker, TIME, TINY, node, user="alice")
            response = await forwarded(broker, creation("a"), ALICE)
            assert (response.topics[0].error_code, response.throttle_time_ms) == (0, WINDOW_MS)
            assert (await forwarded(broker, creation("b"), BOB)).throttle_time_ms == 0
            assert counted(node) == {("alice", None)}
            assert not muted(node), "others use the broker's connection"
            await limit(broker, TIME, TINY, node, client_id="app")
            assert (await forwarded(broker, creation("c"), BOB)).throttle_time_ms == WINDOW_MS
            assert counted(node) == {("alice", None), (None, "app")}

    run(test())


def test_the_client_is_held_up_by_its_broker_for_the_controllers_throttle(tmp_path):
    """Also if the broker itself counts no time; other clients of the broker do not wait."""

    async def test():
        async with controller_and_broker(tmp_path) as (controller, broker):
            greedy, other = await named(broker, "greedy"), await named(broker, "other")
            await limit(other, TIME, TINY, controller, broker, client_id="greedy")
            listener_of(broker, "PLAINTEXT").quotas = ClientQuotas()
            response = await greedy.send(creation("a"))
            assert (response.topics[0].error_code, response.throttle_time_ms) == (0, WINDOW_MS)
            waits = greedy.send_nowait(MetadataRequest(topics=[]))
            assert (await other.send(creation("b"))).throttle_time_ms == 0
            assert not waits.done()
            assert not muted(controller)
            assert len(muted(broker)) == 1
            await waits
            await greedy.close()
            await other.close()

    run(test())


def test_a_broker_counts_what_it_forwards_as_well(tmp_path):
    """The longer throttle is reported: here its own, since the controller counts nothing."""

    async def test():
        async with controller_and_broker(tmp_path) as (controller, broker):
            client = await named(broker, "greedy")
            await limit(client, TIME, TINY, controller, broker, client_id="greedy")
            listener_of(controller, "CONTROLLER").quotas = ClientQuotas()
            fresh = await named(broker, "greedy")
            assert (await fresh.send(creation("a"))).throttle_time_ms == WINDOW_MS
            assert counted(broker, "PLAINTEXT") == {(None, "greedy")}
            await client.close()
            await fresh.close()

    run(test())


def test_a_denied_client_does_not_hold_up_its_broker(tmp_path):
    """In Kafka it does: ClusterAuthorizationException throttles the connection of the envelope."""

    async def test():
        async with controller_in(tmp_path) as (node, broker):
            await limit(broker, TIME, TINY, node, user="alice")
            rights = Deciding(lambda operation, *_: operation == AclOperation.CLUSTER_ACTION)
            listener_of(node, "CONTROLLER").authorizer = rights
            denied = await connect(node, "CONTROLLER")
            response = await forwarded(denied, ElectLeadersRequest(), ALICE)
            assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert response.throttle_time_ms == WINDOW_MS
            assert not muted(node)
            await denied.close()

    run(test())


def test_an_envelope_that_is_denied_counts_for_the_broker(tmp_path):
    async def test():
        async with controller_in(tmp_path) as (node, broker):
            await limit(broker, TIME, TINY, node, client_id="test")
            listener_of(node, "CONTROLLER").authorizer = Deciding()
            denied = await Connection.open(
                "127.0.0.1", node.ports["CONTROLLER"], client_id="test", negotiate=False
            )
            answer = await denied.send(enveloped(creation("a"), ALICE), version=0)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert len(muted(node)) == 1
            await denied.close()

    run(test())


def test_the_description_of_the_quorum_has_no_quota_on_a_controller(tmp_path):
    """Kafka's `handleRaftRequest` exempts it, unless it is denied; a broker counts it."""

    async def test():
        async with controller_in(tmp_path) as (node, broker):
            await limit(broker, TIME, TINY, node, user="alice")
            await forwarded(broker, quorum_of(), ALICE)
            await forwarded(broker, quorum_of(7), ALICE)
            assert counted(node) == set()
            rights = Deciding(lambda operation, *_: operation == AclOperation.CLUSTER_ACTION)
            listener_of(node, "CONTROLLER").authorizer = rights
            denied = await connect(node, "CONTROLLER")
            response = await forwarded(denied, quorum_of(), ALICE)
            assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert counted(node) == {("alice", None)}
            await denied.close()
            client = await named(node, "app")
            await limit(client, TIME, TINY, node, client_id="app")
            await client.send(quorum_of())
            assert (None, "app") in counted(node)
            await client.close()

    run(test())


def test_a_description_from_a_controller_that_does_not_lead_is_repeated_elsewhere(
    tmp_path, monkeypatch
):
    """Kafka's `shouldReturnNotController`: the error is the envelope's."""

    async def test():
        async with controller_in(tmp_path) as (node, broker):
            assert node.raft is not None
            monkeypatch.setattr(type(node.raft), "describe", lambda _: None)
            answer = await broker.send(enveloped(quorum_of(), ALICE))
            assert answer.error_code == ErrorCode.NOT_CONTROLLER

    run(test())


def test_a_node_with_both_roles_counts_requests_to_both_together(tmp_path):
    """Kafka's two servers keep their rates under one name in one `Metrics`."""

    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            await limit(client, TIME, 50.0, node, client_id="test")
            to_controller = await connect(node, "CONTROLLER")
            await client.send(MetadataRequest(topics=[]))
            await to_controller.send(quorum_of())
            assert counted(node, "PLAINTEXT") == counted(node, "CONTROLLER") == {(None, "test")}
            await client.close()
            await to_controller.close()

    run(test())


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_a_client_over_its_quota_of_partitions_is_held_up_on_each_listener(tmp_path, listener):
    """Versions that cannot report the error create the topics all the same: only this helps."""

    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node, listener)
            await limit(client, MUTATIONS, SLOW, node, client_id="test")
            response = await client.send(creation("a", 12), version=5)
            assert (response.topics[0].error_code, response.throttle_time_ms > 0) == (0, True)
            assert [str(each.listener.name) for each in muted(node)] == [listener]
            await client.close()

    run(test())


def test_partitions_of_forwarded_requests_count_for_their_client(tmp_path):
    async def test():
        async with controller_in(tmp_path) as (node, broker):
            await limit(broker, MUTATIONS, SLOW, node, user="alice")
            assert (await forwarded(broker, creation("a", 12), ALICE)).throttle_time_ms == 0
            refused = await forwarded(broker, creation("b"), ALICE)
            assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert refused.throttle_time_ms > 0
            assert (await forwarded(broker, creation("c"), BOB)).topics[0].error_code == 0
            assert not muted(node)

    run(test())


def wanted(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)


@pytest.mark.parametrize("roles", ["one node", "two nodes"])
def test_topics_that_are_created_automatically_count_for_their_client(tmp_path, roles, caplog):
    """Otherwise Metadata would evade `controller_mutation_rate`."""

    async def exceed(controller: Node, broker: Node) -> None:
        greedy, other = await named(broker, "greedy"), await named(broker, "other")
        await limit(other, MUTATIONS, SLOW, controller, broker, client_id="greedy")
        with caplog.at_level(logging.INFO):
            assert (await greedy.send(creation("a", 12))).topics[0].error_code == 0
            fresh = await named(broker, "greedy")
            await fresh.send(wanted("not-yet"))
            creations = broker.broker.auto_topic_creation  # type: ignore[union-attr]
            await until(lambda: not creations._in_flight)
            assert broker.broker.image.topic("not-yet") is None
            await other.send(wanted("made"))
            await until(lambda: broker.broker.image.topic("made"))
            await until(lambda: not creations._in_flight)  # it is logged by then
        assert not muted(broker)
        lines = [record.getMessage() for record in caplog.records]
        assert any("client other) created topics made" in line for line in lines)
        assert not any("Failed to create" in line for line in lines)
        for client in (greedy, other, fresh):
            await client.close()

    async def test():
        if roles == "one node":
            async with node_in(tmp_path) as node:
                await exceed(node, node)
        else:
            async with controller_and_broker(tmp_path) as (controller, broker):
                await exceed(controller, broker)

    run(test())


def test_an_error_in_a_forwarded_response_is_counted(tmp_path):
    """The response is not decoded: the code is read from its place."""

    async def test():
        async with controller_and_broker(tmp_path) as (_, broker):
            client = await connect(broker)
            request = ElectLeadersRequest(election_type=99)
            response = await client.send(request)
            assert response.error_code != 0
            route = listener_of(broker, "PLAINTEXT").routes.find(
                int(ApiKey.ELECT_LEADERS), client.version_for(ApiKey.ELECT_LEADERS)
            )
            assert route.errors == {response.error_code: 1}
            await client.close()

    asyncio.run(test())

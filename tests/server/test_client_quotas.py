"""Quotas of clients on a node: responses report the throttle, and the connection waits."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.client.connection import Connection
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode, encode, encode_parts
from sparkraft.protocol.messages.k01_fetch import FetchRequest
from sparkraft.protocol.messages.k02_list_offsets import ListOffsetsRequest
from sparkraft.protocol.messages.k03_metadata import MetadataRequest
from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from sparkraft.protocol.messages.k18_api_versions import ApiVersionsRequest
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from sparkraft.protocol.messages.k32_describe_configs import DescribeConfigsRequest
from sparkraft.protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from sparkraft.protocol.messages.k52_vote import VoteRequest
from sparkraft.protocol.messages.k56_alter_partition import AlterPartitionRequest
from sparkraft.protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from sparkraft.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from sparkraft.server.api import k00_produce
from sparkraft.server.api.registry import served_apis
from sparkraft.server.network.dispatch import Route, encode_response
from sparkraft.server.network.quota_meter import report_in_bytes
from tests.server.harness import (
    append,
    batch,
    config_of,
    connect,
    create_topic,
    fetch,
    format_dir,
    node_in,
    produce,
    run,
    running,
    until,
    values_of,
)
from tests.support.sessions import Deciding

RATE = 1_000
OVER = 12_000
"""More than an idle client may send at once, by two seconds of the quota."""


async def set_quota_of_id(node: Any, connection: Any, client_id: str, key: str) -> None:
    """For one client id; returns when the broker has it."""
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[OpData(key=key, value=RATE, remove=False)],
    )
    response = await connection.send(AlterClientQuotasRequest(entries=[entry]))
    assert response.entries[0].error_code == 0
    await until(lambda: node.broker.client_quotas.is_active)


@pytest.mark.parametrize("key", ["producer_byte_rate", "request_percentage"])
def test_a_quota_of_another_client_leaves_the_fast_path_to_a_producer(tmp_path, monkeypatch, key):
    """A known Produce is not decoded, except for the client whose quota it counts against."""
    fast: list[Any] = []
    original = k00_produce._records_of

    def records_of(*given: Any, **more: Any) -> Any:
        fast.append(given)
        return original(*given, **more)

    monkeypatch.setattr(k00_produce, "_records_of", records_of)

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await set_quota_of_id(node, connection, "limited", key)
            for _ in range(3):
                assert (await append(connection, topic_id, batch(b"x"))).error_code == 0
            assert len(fast) == 2, "all but the first, whose shape was not known"
            port = node.ports["PLAINTEXT"]
            limited = await Connection.open("127.0.0.1", port, client_id="limited")
            large = batch(bytes(OVER))
            answer = await limited.send(produce(topic_id, large))
            assert answer.responses[0].partition_responses[0].error_code == 0
            if key == "producer_byte_rate":
                assert answer.throttle_time_ms > 0
            assert len(fast) == 2
            assert (await append(connection, topic_id, batch(b"x"))).error_code == 0
            assert len(fast) == 3
            await limited.close()
            await connection.close()

    run(test())


async def set_quota(node: Any, connection: Any, key: str, value: float | None) -> None:
    """For all users; returns when the broker has it."""
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="user", entity_name=None)],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    response = await connection.send(AlterClientQuotasRequest(entries=[entry]))
    assert response.entries[0].error_code == 0
    await until(lambda: node.broker.client_quotas.is_active is (value is not None))


def test_a_produce_over_the_quota_is_served_and_the_next_request_waits(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            for _ in range(3):
                await append(client, topic_id, batch(b"v"), acks=1)
            await set_quota(node, client, "producer_byte_rate", RATE)
            other = await connect(node)
            response = await client.send(produce(topic_id, batch(bytes(OVER)), acks=1))
            assert response.responses[0].partition_responses[0].error_code == 0
            throttle_ms = response.throttle_time_ms
            assert 1_500 < throttle_ms < 3_000
            begun = time.monotonic()
            waiting = asyncio.ensure_future(client.send(MetadataRequest(topics=None)))
            assert (await other.send(MetadataRequest(topics=None))).topics[0].name == "t"
            assert not waiting.done(), "only the client's connection waits"
            await waiting
            assert time.monotonic() - begun >= throttle_ms / 1000 - 0.1
            await client.close()
            await other.close()

    run(test())


def test_a_request_in_the_same_chunk_as_one_over_the_quota_waits(tmp_path):
    """It is in the node's buffer already, so that reading no more does not hold it up."""

    async def test():
        async with node_in(tmp_path) as node:
            client, other = await connect(node), await connect(node)
            topic_id = await create_topic(client, "t")
            await set_quota(node, client, "producer_byte_rate", RATE)
            over = client.send_nowait(produce(topic_id, batch(bytes(OVER)), acks=1))
            behind = [client.send_nowait(MetadataRequest(topics=None)) for _ in range(3)]
            assert (await over).throttle_time_ms > 1_500
            (muted,) = _muted(node)
            for _ in range(2):
                await other.send(MetadataRequest(topics=None))
            assert not any(future.done() for future in behind)
            assert muted._reader.end > muted._reader.at, "the requests have arrived"
            for future in behind:
                future.cancel()
            await client.close()
            await other.close()

    run(test())


def test_a_client_without_a_quota_keeps_the_short_way_of_produce(tmp_path):
    """A quota of another client id costs it nothing; its own takes effect at once."""

    async def limit(node: Any, client: Any, client_id: str) -> None:
        entry = AlterClientQuotasRequestEntryData(
            entity=[EntityData(entity_type="client-id", entity_name=client_id)],
            ops=[OpData(key="producer_byte_rate", value=RATE)],
        )
        await client.send(AlterClientQuotasRequest(entries=[entry]))
        quotas = node.broker.client_quotas
        await until(lambda: quotas.limit_of("producer_byte_rate", "ANONYMOUS", client_id))

    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            await append(client, topic_id, batch(b"v"), acks=1)
            (listener,) = [one for one in node.listeners if one.name == "PLAINTEXT"]
            (route,) = [
                route
                for route in listener.routes.by_code.values()
                if route.fast is not None and route.version == client.version_for(ApiKey.PRODUCE)
            ]
            answered, fast = [], route.fast

            def counted(*arguments: Any) -> Any:
                answered.append(fast(*arguments))
                return answered[-1]

            route.fast = counted
            await limit(node, client, "greedy")
            await append(client, topic_id, batch(b"v"), acks=1)
            assert [type(one) for one in answered] == [bytes]
            await limit(node, client, "test")
            response = await client.send(produce(topic_id, batch(bytes(OVER)), acks=1))
            assert response.throttle_time_ms > 1_500
            assert len(answered) == 1
            await client.close()

    run(test())


def test_without_acks_the_connection_waits_all_the_same(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            await set_quota(node, client, "producer_byte_rate", RATE)
            (listener,) = [one for one in node.listeners if one.name == "PLAINTEXT"]
            sent = asyncio.ensure_future(
                client.send(produce(topic_id, batch(bytes(OVER)), acks=0), timeout_ms=60_000)
            )
            await until(lambda: any(c.session.is_muted for c in listener._connections))
            (muted,) = [c for c in listener._connections if c.session.is_muted]
            assert not muted.is_idle, "it is not closed for idleness"
            sent.cancel()
            await client.close()

    run(test())


def test_a_fetch_over_the_quota_gets_its_records_and_its_connection_waits(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            for _ in range(4):
                await append(client, topic_id, batch(bytes(4_000)), acks=1)
            await set_quota(node, client, "consumer_byte_rate", RATE)
            first = await client.send(fetch(topic_id))
            found = values_of(first.responses[0].partitions[0])
            assert len(found) == 2, "as much as an idle client may get at once"
            assert first.throttle_time_ms < 500, "for the bytes around the records"
            second = await client.send(fetch(topic_id, 2))
            assert len(values_of(second.responses[0].partitions[0])) == 2
            assert second.throttle_time_ms > 1_000
            waiting = asyncio.ensure_future(client.send(MetadataRequest(topics=None)))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            waiting.cancel()
            await client.close()

    run(test())


def test_a_client_over_its_quota_gets_no_records_on_new_connections(tmp_path):
    """As in Kafka, whose responses are empty then: each connection would get a window's bytes."""

    async def test():
        async with node_in(tmp_path) as node:
            client, other = await connect(node), await connect(node)
            topic_id = await create_topic(client, "t")
            for _ in range(4):
                await append(client, topic_id, batch(bytes(4_000)), acks=1)
            opened = await other.send(fetch(topic_id, session_epoch=0, max_bytes=4_000))
            assert opened.session_id
            await set_quota(node, client, "consumer_byte_rate", RATE)
            await client.send(fetch(topic_id))
            await client.send(fetch(topic_id, 2))
            fresh = await connect(node)
            whole = await fresh.send(fetch(topic_id, session_epoch=0))
            assert (whole.responses, whole.session_id, whole.error_code) == ([], 0, 0)
            assert 1_000 < whole.throttle_time_ms < 10_000
            session = {"session_id": opened.session_id}
            changed = await other.send(fetch(topic_id, 1, session_epoch=1, **session))
            assert (changed.responses, changed.session_id) == ([], opened.session_id)
            assert changed.throttle_time_ms > 1_000
            assert len(_muted(node)) == 3
            await set_quota(node, await connect(node), "consumer_byte_rate", None)
            last = await (await connect(node)).send(
                FetchRequest(
                    max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=2, **session
                )
            )
            assert last.error_code == 0
            assert len(values_of(last.responses[0].partitions[0])) == 3, "from the new offset"

    run(test())


def test_a_quota_that_is_removed_costs_nothing(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            await set_quota(node, client, "producer_byte_rate", RATE)
            await set_quota(node, client, "producer_byte_rate", None)
            response = await client.send(produce(topic_id, batch(bytes(OVER)), acks=1))
            assert response.throttle_time_ms == 0
            await client.close()

    run(test())


async def create(client: Any, name: str, partitions: int, version: int) -> Any:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    return await client.send(request, version=version)


def test_partitions_over_the_quota_are_refused_and_the_client_waits(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            await set_quota(node, client, "controller_mutation_rate", 2)
            done = await create(client, "a", 24, 7)
            assert (done.topics[0].error_code, done.throttle_time_ms) == (0, 0)
            refused = await create(client, "b", 1, 7)
            assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert 0 < refused.throttle_time_ms <= 1_000
            begun = time.monotonic()
            assert (await create(client, "b", 1, 7)).topics[0].error_code == 0
            assert time.monotonic() - begun >= refused.throttle_time_ms / 1000 - 0.1
            await create(client, "c", 10, 7)
            old = await connect(node)
            permitted = await create(old, "d", 1, 5)
            assert permitted.topics[0].error_code == 0, "this version cannot report the error"
            assert permitted.throttle_time_ms > 0
            await client.close()
            await old.close()

    run(test())


def test_connections_over_the_quota_of_their_address_are_held_and_closed(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            await set_address_quota(client, 1)
            await until(lambda: node.broker.client_quotas.addresses.is_active)
            port = node.ports["PLAINTEXT"]
            for _ in range(10):
                await (await connect(node)).close()
            begun = time.monotonic()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\0\0\0\0")
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            assert time.monotonic() - begun > 0.05
            writer.close()
            assert await client.send(MetadataRequest(topics=None)), "open connections continue"
            await client.close()

    run(test())


def test_a_held_connection_takes_no_slot(tmp_path):
    """Otherwise the quota of an address would help it to keep others out."""

    async def test():
        async with node_in(tmp_path, max_connections_per_ip="20") as node:
            (listener,) = [each for each in node.listeners if each.name == "PLAINTEXT"]
            client = await connect(node)
            await set_address_quota(client, 1)
            await until(lambda: node.broker.client_quotas.addresses.is_active)
            port = node.ports["PLAINTEXT"]
            opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            await until(lambda: len(listener._held) >= 25)
            await set_address_quota(client, None)
            await until(lambda: not node.broker.client_quotas.addresses.is_active)
            other = await connect(node)
            assert await other.send(MetadataRequest(topics=None))
            for _, writer in opened:
                writer.close()
            await until(lambda: not listener._held)
            await client.close()
            await other.close()
            await until(lambda: not listener._per_ip)

    run(test())


LOOP = "request_percentage"
TINY = 0.0001
"""Percent of the loop's time: every request exceeds it, by more than one window."""


def test_each_request_over_the_quota_of_time_waits_for_one_window(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            requests = [
                (MetadataRequest(topics=None), 12),
                (MetadataRequest(topics=None, include_topic_authorized_operations=True), 8),
                (ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3),
                (produce(topic_id, batch(b"v"), acks=1), 13),
                (fetch(topic_id), 17),
                (ListOffsetsRequest(topics=[]), 2),
                (FindCoordinatorRequest(coordinator_keys=["g"]), 4),
                (CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7),
                (DescribeConfigsRequest(resources=[]), 4),
            ]
            fresh = [await connect(node) for _ in requests]
            await set_quota(node, client, LOOP, TINY)
            for sender, (request, version) in zip(fresh, requests, strict=True):
                response = await sender.send(request, version=version)
                assert response.throttle_time_ms == 1_000, request
            for sender in (client, *fresh):
                await sender.close()

    run(test())


def test_a_version_without_a_throttle_waits_all_the_same(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            await create_topic(client, "t")
            old = await connect(node)
            await set_quota(node, client, LOOP, TINY)
            assert (await old.send(MetadataRequest(topics=None), version=1)).throttle_time_ms == 0
            assert len(_muted(node)) == 1
            await old.close()
            await client.close()

    run(test())


def test_what_nodes_send_has_no_quota_of_time_unless_it_is_denied(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            senders = [await connect(node) for _ in range(2)]
            await set_quota(node, client, LOOP, TINY)
            follower = fetch(topic_id)
            follower.replica_state.replica_id = 5
            markers = WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[9])]
                    )
                ]
            )
            for sender, request in zip(senders, (follower, markers), strict=True):
                await sender.send(request)
                assert not _muted(node)
            for each in node.listeners:
                each.authorizer = Deciding()
            port = node.ports["PLAINTEXT"]
            denied = await Connection.open("127.0.0.1", port, negotiate=False)
            await denied.send(markers, version=1)
            assert len(_muted(node)) == 1
            impostor = await Connection.open("127.0.0.1", port, negotiate=False)
            await impostor.send(follower, version=17)
            assert len(_muted(node)) == 2, "a broker's id alone exempts nobody"
            await impostor.close()
            for sender in (client, *senders, denied):
                await sender.close()

    run(test())


async def set_address_quota(connection: Any, rate: float | None) -> None:
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="ip", entity_name="127.0.0.1")],
        ops=[OpData(key="connection_creation_rate", value=rate or 0.0, remove=rate is None)],
    )
    response = await connection.send(AlterClientQuotasRequest(entries=[entry]))
    assert response.entries[0].error_code == 0


def controller_listener(node: Any) -> Any:
    (found,) = [each for each in node.listeners if each.controller_listener]
    return found


def test_a_controller_listener_holds_the_quota_of_time(tmp_path):
    """As Kafka's controllers, by their own count; the requests of nodes stay exempt."""

    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node, "CONTROLLER")
            exempt = await connect(node, "CONTROLLER")
            await set_quota(node, client, LOOP, TINY)
            await until(lambda: controller_listener(node).quotas.is_active)
            vote = VoteRequest()  # of no partition
            assert (await exempt.send(vote)).error_code == ErrorCode.INVALID_REQUEST
            assert not _muted(node)
            limited = await connect(node, "CONTROLLER")
            response = await limited.send(DescribeConfigsRequest(resources=[]), version=4)
            assert response.throttle_time_ms == 1_000
            for sender in (client, exempt, limited):
                await sender.close()

    run(test())


OF_BROKERS = {
    "heartbeat": BrokerHeartbeatRequest(broker_id=9, broker_epoch=1),
    "registration": BrokerRegistrationRequest(broker_id=9, cluster_id="another"),
    "AlterPartition": AlterPartitionRequest(broker_id=9, broker_epoch=1),
}
"""What brokers send to controllers, refused for its content."""


@pytest.mark.parametrize("name", OF_BROKERS)
def test_what_brokers_send_to_a_controller_has_no_quota_of_time_unless_it_is_denied(tmp_path, name):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node, "CONTROLLER")
            broker = await connect(node, "CONTROLLER")
            await set_quota(node, client, LOOP, TINY)
            await until(lambda: controller_listener(node).quotas.is_active)
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            for _ in range(2):
                answer = await broker.send(OF_BROKERS[name])
                assert answer.error_code not in {ErrorCode.NONE, denied}
                assert answer.throttle_time_ms == 0
            assert not _muted(node)
            controller_listener(node).authorizer = Deciding()
            port = node.ports["CONTROLLER"]
            stranger = await Connection.open("127.0.0.1", port, negotiate=False)
            version = API_INFO[ApiKey(OF_BROKERS[name].SCHEMA.key)].max_version
            answer = await stranger.send(OF_BROKERS[name], version=version)
            assert answer.error_code == denied
            assert len(_muted(node)) == 1
            for sender in (client, broker, stranger):
                await sender.close()

    run(test())


def test_a_node_without_a_broker_holds_quotas_also_after_a_restart(tmp_path):
    async def check_throttled(node: Any) -> None:
        await until(lambda: controller_listener(node).quotas.is_active)
        limited = await connect(node, "CONTROLLER")
        response = await limited.send(DescribeConfigsRequest(resources=[]), version=4)
        assert response.throttle_time_ms == 1_000
        await limited.close()

    async def test():
        format_dir(tmp_path)
        properties = config_of(tmp_path, roles="controller")
        properties["listeners"] = properties["listeners"].partition(",")[2]
        entry = AlterClientQuotasRequestEntryData(
            entity=[EntityData(entity_type="user", entity_name=None)],
            ops=[OpData(key=LOOP, value=TINY, remove=False)],
        )
        async with running(properties) as node:
            client = await connect(node, "CONTROLLER")

            async def is_set() -> bool:
                response = await client.send(AlterClientQuotasRequest(entries=[entry]))
                return response.entries[0].error_code == 0

            await until(is_set)
            await check_throttled(node)
            await client.close()
        async with running(properties) as node:
            await check_throttled(node)

    run(test())


def test_a_controller_listener_refuses_connections_over_their_addresss_quota(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node, "CONTROLLER")
            await set_address_quota(client, 1)
            addresses = controller_listener(node).quotas.addresses
            await until(lambda: addresses.is_active)
            for _ in range(10):
                await (await connect(node, "CONTROLLER")).close()
            reader, writer = await asyncio.open_connection("127.0.0.1", node.ports["CONTROLLER"])
            writer.write(b"\0\0\0\0")
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            await client.close()

    run(test())


def _muted(node: Any) -> list[Any]:
    return [c for one in node.listeners for c in one._connections if c.session.is_muted]


def test_a_response_that_is_encoded_already_reports_its_throttle():
    places = set()
    for api in served_apis(controller_listener=False):
        lowest, highest = api.version_range()
        for version in range(lowest, highest + 1):
            route = Route(api, version)
            places.add(route.throttle_at)
            if route.throttle_at < 0:
                continue
            for body in (encode(route.response_class(), version), None):
                encoded = body or list(encode_parts(route.response_class(), version))
                parts = encode_response(route, 1, encoded)
                if body is not None:  # as a large body, which is a part of its own
                    head = parts[0][: 8 + route.flexible_response]
                    parts = [head, body]
                report_in_bytes(route, encoded, parts, 77)
                start = 8 + route.flexible_response
                frame = b"".join(map(bytes, parts))
                decoded = decode(route.response_class, version, frame[start:])
                assert decoded.throttle_time_ms == 77, (api.key, version)
    assert places >= {-1, 0, 2}

"""Every API declares what it authorizes, and every way to a handler passes by it."""

import asyncio
import re
from pathlib import Path

import pytest

import sparkraft.server
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol import codec, headers
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k00_produce import ProduceResponse
from sparkraft.protocol.messages.k01_fetch import FetchRequest
from sparkraft.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from sparkraft.protocol.messages.k58_envelope import EnvelopeRequest
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.security.principal import KafkaPrincipal
from sparkraft.server.api.authorization import NoAuthorization, RequestRule, ResourceRule
from sparkraft.server.api.k00_produce import fast
from sparkraft.server.api.registry import Api, served_apis
from sparkraft.server.broker.envelope import (
    address_bytes,
    address_of,
    principal_bytes,
    principal_of,
)
from sparkraft.server.config import NodeConfig
from sparkraft.server.node import Node
from tests.server.harness import (
    append,
    batch,
    config_of,
    connect,
    create_topic,
    fetch,
    format_dir,
    make_env,
    node_in,
    produce,
    run,
)
from tests.support.envelopes import response_in
from tests.support.sessions import Deciding, client_session

LISTENERS = {"broker": False, "controller": True}

SERVED = [
    pytest.param(api, id=f"{listener}-{api.key.name}")
    for listener, is_controller in LISTENERS.items()
    for api in served_apis(controller_listener=is_controller)
]


@pytest.mark.parametrize("api", SERVED)
def test_every_served_api_declares_what_it_authorizes(api: Api):
    if isinstance(api.authorize, NoAuthorization):
        assert api.authorize.reason
        return
    assert api.authorize, "declare its rules, or NoAuthorization with the reason"
    assert all(isinstance(rule, RequestRule | ResourceRule) for rule in api.authorize)


def test_handlers_are_reached_through_call_alone():
    """Who calls `api.handle` skips the rules of the request."""
    root = Path(sparkraft.server.__file__).parent
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"\bapi\.handle\b|\bAPI\.handle\b|\)\.handle\(", line)
    ]
    assert found == []


def put(node: Node, authorizer: Deciding) -> None:
    """Have it decide on connections that open from now on."""
    for listener in node.listeners:
        listener.authorizer = authorizer


def test_the_fast_path_of_produce_passes_no_denied_session(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            allowed = await connect(node)
            topic_id = await create_topic(allowed, "t")
            for _ in range(3):
                answer = await append(allowed, topic_id, batch(b"v"), acks=1)
                assert answer.error_code == 0
            assert len(node.broker.produce_shapes.shapes) == 1
            put(node, Deciding())
            denied = await connect(node)
            for _ in range(2):
                answer = await append(denied, topic_id, batch(b"v"), acks=1)
                assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert (await append(allowed, topic_id, batch(b"v"), acks=1)).base_offset == 3
            await allowed.close()
            await denied.close()

    run(test())


def test_the_fast_path_of_produce_asks_the_authorizer_for_each_request(tmp_path):
    allowed = True

    async def test():
        nonlocal allowed
        async with node_in(tmp_path) as node:
            authorizer = Deciding(lambda *_: allowed)
            put(node, authorizer)
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            for _ in range(2):
                assert (await append(connection, topic_id, batch(b"v"), acks=1)).error_code == 0
            session = client_session(authorizer=authorizer)
            body = memoryview(codec.encode(produce(topic_id, batch(b"v"), acks=1), 13))
            assert isinstance(fast(node.broker, 13, body, session), bytes)
            allowed = False
            assert fast(node.broker, 13, body, session) is None
            answer = await append(connection, topic_id, batch(b"v"), acks=1)
            assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert node.broker.replica_manager.get_log("t", 0).log_end_offset == 3
            await connection.close()

    run(test())


@pytest.mark.parametrize("acks", [0, 1])
def test_a_denied_produce_gets_no_answer_only_with_acks_0(tmp_path, acks):
    """Kafka's ProduceRequest.getErrorResponse is null then, and the connection is closed."""

    async def test():
        async with node_in(tmp_path) as node:
            put(node, Deciding())
            reader, writer = await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"])
            request = produce(Uuid(bytes(16)), batch(b"v"), acks=acks)
            request.transactional_id = "denied"
            header = headers.RequestHeader(request_api_key=int(ApiKey.PRODUCE))
            header.request_api_version = 13
            data = codec.encode(header, 2) + codec.encode(request, 13)
            writer.write(len(data).to_bytes(4, "big") + data)
            if acks == 0:
                assert await reader.read() == b"", "the end, with no byte before it"
            else:
                size = int.from_bytes(await reader.readexactly(4), "big")
                body = memoryview(await reader.readexactly(size))[5:]
                answer = codec.decode(ProduceResponse, 13, body)
                code = answer.responses[0].partition_responses[0].error_code
                assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            writer.close()

    run(test())


def test_a_fetch_session_is_authorized_at_every_fetch(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            other = await connect(node)
            topic_id = await create_topic(other, "t")
            authorizer = Deciding(lambda *_: True)
            put(node, authorizer)
            client = await connect(node)
            first = await client.send(fetch(topic_id, session_epoch=0))
            assert first.session_id > 0
            assert first.responses[0].partitions[0].error_code == 0
            authorizer.decide = lambda *_: False
            again = FetchRequest(session_id=first.session_id, session_epoch=1, max_wait_ms=0)
            partition = (await client.send(again)).responses[0].partitions[0]
            assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert partition.high_watermark == -1
            await other.close()
            await client.close()

    run(test())


def test_metadata_of_all_topics_leaves_out_what_the_client_may_not_describe(tmp_path):
    from sparkraft.protocol.messages.k03_metadata import MetadataRequest

    async def test():
        async with node_in(tmp_path) as node:
            other = await connect(node)
            for name in ("seen", "hidden"):
                await create_topic(other, name)
            put(node, Deciding(lambda _operation, _type, name: name == "seen"))
            client = await connect(node)
            found = await client.send(MetadataRequest(topics=None))
            assert [(topic.name, topic.error_code) for topic in found.topics] == [("seen", 0)]
            await other.close()
            await client.close()

    run(test())


def creation(key: int = ApiKey.CREATE_TOPICS, version: int = 7) -> bytes:
    """CreateTopics v7, with the key and version given."""
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="n", num_partitions=1, replication_factor=1)], timeout_ms=1000
    )
    header = headers.RequestHeader(
        request_api_key=int(key), request_api_version=version, client_id="c"
    )
    return codec.encode(header, 2) + codec.encode(request, 7)


def enveloped(principal: bytes | None, host: bytes, data: bytes | None = None) -> EnvelopeRequest:
    return EnvelopeRequest(
        request_data=creation() if data is None else data,
        request_principal=principal,
        client_host_address=host,
    )


ALICE = KafkaPrincipal("User", "alice")


def test_a_forwarded_request_is_authorized_as_its_client(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            authorizer = Deciding(lambda operation, *_: operation == AclOperation.CLUSTER_ACTION)
            put(node, authorizer)
            broker = await connect(node, "CONTROLLER")
            answer = await broker.send(enveloped(principal_bytes(ALICE), bytes((10, 1, 2, 3))))
            assert answer.error_code == 0
            inner = response_in(answer, ApiKey.CREATE_TOPICS, 7)
            assert inner.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert (
                "User:alice", AclOperation.CREATE, AclResourceType.TOPIC, "n",
            ) in authorizer.asked  # fmt: skip
            assert authorizer.hosts == {"127.0.0.1", "10.1.2.3"}
            await broker.close()

    run(test())


@pytest.mark.parametrize(
    ("principal", "host", "error"),
    [
        (None, bytes(4), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (b"\0\1", bytes(4), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (principal_bytes(ALICE) + b"x", bytes(4), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (principal_bytes(ALICE), bytes(5), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_envelope_without_a_client_is_refused(tmp_path, principal, host, error):
    async def test():
        async with node_in(tmp_path) as node:
            broker = await connect(node, "CONTROLLER")
            assert (await broker.send(enveloped(principal, host))).error_code == error
            await broker.close()

    run(test())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(b"", ErrorCode.UNSUPPORTED_VERSION, id="nothing"),
        pytest.param(creation()[:3], ErrorCode.UNSUPPORTED_VERSION, id="half a version"),
        pytest.param(creation()[:9], ErrorCode.UNSUPPORTED_VERSION, id="half a header"),
        pytest.param(creation()[:-3], ErrorCode.UNSUPPORTED_VERSION, id="half a request"),
        pytest.param(creation(key=9999), ErrorCode.UNSUPPORTED_VERSION, id="unknown key"),
        pytest.param(creation(version=99), ErrorCode.UNSUPPORTED_VERSION, id="unknown version"),
        pytest.param(creation(key=ApiKey.FETCH), ErrorCode.INVALID_REQUEST, id="not forwarded"),
        pytest.param(creation() + b"more", ErrorCode.NONE, id="bytes after the request"),
    ],
)
def test_an_enveloped_request_that_cannot_be_parsed_has_an_unsupported_version(
    tmp_path, data, error
):
    """Kafka's EnvelopeUtils: INVALID_REQUEST is about the envelope, not about its request."""

    async def test():
        async with node_in(tmp_path) as node:
            broker = await connect(node, "CONTROLLER")
            answer = await broker.send(enveloped(principal_bytes(ALICE), bytes(4), data))
            assert answer.error_code == error
            answer = await broker.send(enveloped(principal_bytes(ALICE), bytes(5), data))
            assert answer.error_code == ErrorCode.INVALID_REQUEST, "the envelope is checked first"
            await broker.close()

    run(test())


def test_an_envelope_drops_nothing_of_the_client():
    for principal in (ALICE, KafkaPrincipal("User", "CN=" + "é" * 200, token_authenticated=True)):
        found = principal_of(principal_bytes(principal))
        assert found == principal
        assert found.token_authenticated == principal.token_authenticated
    for host, text in (
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
    ):
        assert address_of(address_bytes(host)) == text
    with pytest.raises(KafkaError):
        address_of(b"123")
    with pytest.raises(ValueError, match="does not appear"):
        address_bytes("localhost")


def test_the_node_itself_needs_no_permission(tmp_path):
    """It registers, is unfenced and serves with an authorizer that denies all."""

    async def test():
        format_dir(tmp_path)
        node = Node(NodeConfig(config_of(tmp_path)), make_env())
        node.authorizer = Deciding()
        try:
            await node.start()
            assert not node.broker.image.brokers[1].fenced
            await asyncio.sleep(0)
        finally:
            await node.stop()

    run(test())

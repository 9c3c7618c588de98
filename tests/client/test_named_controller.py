"""Which broker is asked for the controller: any, or the one that Metadata names."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.values import NewTopic
from sparkraft.protocol import codec
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k03_metadata import MetadataResponse, MetadataResponseBroker
from sparkraft.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from sparkraft.protocol.messages.k19_create_topics import (
    CreatableTopicResult,
    CreateTopicsResponse,
)
from sparkraft.protocol.messages.k55_describe_quorum import (
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)
from tests.support.ports import lasting_ports

ASKED, NAMED = 1, 2
"""The broker of the bootstrap list, and the one that Metadata names."""

API_TIMEOUT_MS = 800
NO_LEADER = "Node 1 knows no leader of the quorum in epoch 5; the voters are 1, 2, 3"
VERSIONS = {
    ApiKey.API_VERSIONS: 4,
    ApiKey.METADATA: 4,
    ApiKey.CREATE_TOPICS: 4,
    ApiKey.DESCRIBE_QUORUM: 2,
}
"""The only version of each request that the brokers serve."""


class Brokers:
    """Scripted brokers on loopback sockets; each is the controller or refuses."""

    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self.received: list[tuple[int, ApiKey]] = []
        """(broker, request), without those that connections begin with."""

    @asynccontextmanager
    async def serving(self, *nodes: int):
        """The brokers `nodes`; others of the two refuse connections."""
        servers = [await asyncio.start_server(self._on_client(n), "127.0.0.1", 0) for n in nodes]
        self.ports = dict(zip((ASKED, NAMED), lasting_ports(2), strict=True))
        for node, server in zip(nodes, servers, strict=True):
            self.ports[node] = server.sockets[0].getsockname()[1]
        bootstrap = f"127.0.0.1:{self.ports[ASKED]}"
        try:
            async with Cluster(bootstrap, api_timeout_ms=API_TIMEOUT_MS) as cluster:
                yield Admin(cluster)
        finally:
            for server in servers:
                server.close()
                await server.wait_closed()

    def _on_client(self, node: int):
        async def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    length = int.from_bytes(await reader.readexactly(4), "big")
                    frame = await reader.readexactly(length)
                    key = ApiKey(int.from_bytes(frame[:2], "big"))
                    payload = frame[4:8] + self._body(node, key)
                    writer.write(len(payload).to_bytes(4, "big") + payload)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        return on_client

    def _body(self, node: int, key: ApiKey) -> bytes:
        """The response; only DescribeQuorum's header has tags in these versions."""
        if key is ApiKey.API_VERSIONS:
            apis = [
                ApiVersion(api_key=k, min_version=v, max_version=v) for k, v in VERSIONS.items()
            ]
            return codec.encode(ApiVersionsResponse(api_keys=apis), VERSIONS[key])
        self.received.append((node, key))
        body = codec.encode(self._response(node, key), VERSIONS[key])
        return b"\x00" + body if key is ApiKey.DESCRIBE_QUORUM else body

    def _response(self, node: int, key: ApiKey) -> object:
        if key is ApiKey.METADATA:
            brokers = [
                MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)
                for node_id, port in self.ports.items()
            ]
            return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=NAMED)
        if key is ApiKey.CREATE_TOPICS:
            code = ErrorCode.NONE if node == NAMED else ErrorCode.NOT_CONTROLLER
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])
        partition = DescribeQuorumResponsePartitionData(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message=NO_LEADER
        )
        topic = DescribeQuorumResponseTopicData(partitions=[partition])
        return DescribeQuorumResponse(topics=[topic])


def test_a_broker_without_a_quorum_is_asked_again_not_the_broker_that_metadata_names():
    """In KRaft mode every broker forwards, and Metadata names a random one, which may be dead."""
    brokers = Brokers()

    async def test() -> None:
        async with brokers.serving(ASKED) as admin:
            with pytest.raises(KafkaError) as refused:
                await admin.describe_quorum()
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert NO_LEADER in str(refused.value)

    asyncio.run(test())
    assert len(brokers.received) > 1
    assert set(brokers.received) == {(ASKED, ApiKey.DESCRIBE_QUORUM)}


def test_a_named_controller_that_is_dead_does_not_hide_not_controller():
    brokers = Brokers()

    async def test() -> None:
        async with brokers.serving(ASKED) as admin:
            made = (await admin.create_topics([NewTopic(name="t", partitions=1)]))["t"]
            assert isinstance(made, KafkaError)
            assert made.code is ErrorCode.NOT_CONTROLLER

    asyncio.run(test())
    assert brokers.received.count((ASKED, ApiKey.METADATA)) > 1  # looked up again each time
    assert brokers.received.count((ASKED, ApiKey.CREATE_TOPICS)) > 2


def test_after_not_controller_the_named_broker_is_asked():
    brokers = Brokers()

    async def test() -> None:
        async with brokers.serving(ASKED, NAMED) as admin:
            made = (await admin.create_topics([NewTopic(name="t", partitions=1)]))["t"]
            assert not isinstance(made, KafkaError)

    asyncio.run(test())
    steps = [step for step in brokers.received if step[1] is not ApiKey.METADATA]
    assert steps == [(ASKED, ApiKey.CREATE_TOPICS), (NAMED, ApiKey.CREATE_TOPICS)]

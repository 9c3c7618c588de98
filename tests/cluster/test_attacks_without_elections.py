"""Requests made to keep an event loop busy cost no election and no session.

They all go to the leader of the quorum, whose loop also serves the heartbeats, votes and fetches of
three nodes. Attacks on all nodes would measure how a machine shares its cores among them.
"""

import contextlib
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from sparkraft.client.admin import Admin
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k02_list_offsets as k02
from sparkraft.protocol.messages import k35_describe_log_dirs as k35
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from sparkraft.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from sparkraft.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparkraft.protocol.messages.k10002_describe_history import DescribeHistoryRequest
from sparkraft.records.compression import Codec
from tests.support.clusters import Cluster, Member
from tests.support.limited_node import batch, connected, frame, produce_request
from tests.support.ports import lasting_ports, wait_until
from tests.support.replicas import records_produced_throughout, until_in_sync

pytestmark = [pytest.mark.real_clients, pytest.mark.long]

NODES = (1, 2, 3)
SECONDS = 40
"""Longer than four broker sessions, and twenty fetch timeouts of the quorum."""

MANY = 100_000
"""Partitions in one request: seconds of work, if a node did it in one piece."""


def described_broker(node_id: int) -> bytes:
    """DescribeConfigs that names a broker a thousand times; the response has 33 MB."""
    broker = DescribeConfigsResource(resource_type=4, resource_name=str(node_id))
    request = DescribeConfigsRequest(
        resources=[broker] * 1_000, include_synonyms=True, include_documentation=True
    )
    return frame(request, 3)


def requests() -> list[bytes]:
    """Attacks on any node; each is one request."""
    everywhere = range(1, MANY)
    unknown = [k01.FetchPartition(partition=index) for index in everywhere]
    offsets = [k02.ListOffsetsPartition(partition_index=index) for index in everywhere]
    names = [MetadataRequestTopic(name=f"inv-{number}") for number in range(20_000)]
    return [
        frame(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * 5_000),
            8,
        ),
        frame(DescribeGroupsRequest(groups=["g"] * 5_000), 5),
        frame(k01.FetchRequest(topics=[k01.FetchTopic(topic="t", partitions=unknown)]), 12),
        frame(
            k02.ListOffsetsRequest(topics=[k02.ListOffsetsTopic(name="t", partitions=offsets)]), 7
        ),
        frame(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9),
        frame(
            k35.DescribeLogDirsRequest(
                topics=[k35.DescribableLogDirTopic(topic="t", partitions=list(everywhere))]
            ),
            4,
        ),
        produce_request("compacted", batch(bytes(64 << 20), codec=Codec.ZSTD)),
        produce_request("compacted", batch(b"", codec=Codec.ZSTD, records=100_000)),
    ]


def discard(client: socket.socket) -> bool:
    """Read a response; whether all of it came."""
    left = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL).ljust(4, b"\0"))[0]
    whole = left > 0
    while left and (chunk := client.recv(min(left, 1 << 20))):
        left -= len(chunk)
    return whole and not left


class Attacker:
    """Sends the requests one after another to a node, on connections of their own."""

    def __init__(self, port: int, http_port: int, attacks: list[bytes]) -> None:
        self._port = port
        self._http_port = http_port
        self._attacks = attacks
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._send, self._scrape)
        ]
        self.responses = 0
        self.scrapes = 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()

    def _send(self) -> None:
        while not self._stop.is_set():
            for attack in self._attacks:
                with contextlib.suppress(OSError), connected(self._port) as client:
                    client.sendall(attack)
                    self.responses += discard(client)

    def _scrape(self) -> None:
        while not self._stop.is_set():
            with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                clients = [stack.enter_context(connected(self._http_port)) for _ in range(60)]
                for client in clients:
                    client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 300)
                time.sleep(1)
                self.scrapes += sum(bool(client.recv(1)) for client in clients)


def broker_changes(cluster: Cluster) -> dict[int, list[str]]:
    """What the metadata log has of each broker: registered, unfenced, fenced."""

    async def work(admin: Admin) -> dict[int, list[str]]:
        request = DescribeHistoryRequest(broker_ids=list(NODES), whole_log=True, events_max=100)
        response = await admin.cluster.ask_any(request)
        return {
            broker.broker_id: [change.what for change in broker.changes]
            for broker in response.brokers
        }

    return cluster.ask(work)


def leadership(cluster: Cluster) -> tuple[int, int]:
    found = cluster.describe_quorum()
    return found.leader_id, found.leader_epoch


def test_heartbeats_votes_and_fetches_of_the_quorum_continue(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, [Member(node_id) for node_id in NODES])
    http_ports = dict(zip(NODES, lasting_ports(3), strict=True))
    for node_id, port in http_ports.items():
        node = cluster.nodes[node_id]
        node.overrides["sparkraft.http.listener"] = f"127.0.0.1:{port}"
        node.write_properties()
    with cluster:
        cluster.create_topic("t", partitions=3, replicas=3, min_insync_replicas="2")
        cluster.create_topic(
            "compacted", replicas=3, cleanup_policy="compact", max_message_bytes=str(100 << 20)
        )
        until_in_sync(cluster, "t", 3, 3)
        before, known = leadership(cluster), broker_changes(cluster)
        assert all(known.values())
        leader, _ = before
        attacks = [described_broker(leader), *requests()]
        attacker = Attacker(cluster.ports[leader][0], http_ports[leader], attacks)
        with records_produced_throughout(cluster, "t", 3, rate=200) as stream:
            since = time.monotonic()
            attacker.start()

            def done() -> bool:
                return time.monotonic() - since > SECONDS and attacker.responses > len(attacks)

            wait_until(done, "each attack is answered", 10 * SECONDS)
            attacker.stop()
            stream.goes_on()
        assert attacker.scrapes
        assert stream.failures == []
        assert broker_changes(cluster) == known
        assert leadership(cluster) == before

"""A node in 1 GiB of address space, and what attacks on its memory have in common."""

import contextlib
import logging
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from sparkraft.protocol.api_keys import API_INFO
from sparkraft.protocol.codec import decode, encode_parts
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparkraft.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder
from tests.support.nodes import SparkraftNode, with_limits
from tests.support.ports import lasting_ports, wait_until

ADDRESS_SPACE_KB = 1 << 20
RETURNED_BYTES = 160 << 20
"""Resident memory of a node that has freed what an attack took; idle it has half of that."""

RETURN_SECONDS = 30
PATIENCE_S = 240
PRODUCE_VERSION = 9
HEAD_BYTES = 9
"""Before a flexible response: size, correlation id, no tagged fields."""

log = logging.getLogger(__name__)


def frame(request: Message, version: int) -> bytes:
    """One request of the client `attacker`."""
    found = next(k for k, info in API_INFO.items() if info.request_class() is type(request))
    info = API_INFO[found]
    flexible = info.flexible_from is not None and version >= info.flexible_from
    head = struct.pack(">hhih", found, version, 7, 8) + b"attacker" + (b"\x00" if flexible else b"")
    body = head + b"".join(bytes(part) for part in encode_parts(request, version))
    return struct.pack(">i", len(body)) + body


def produce_request(topic: str, data: bytes) -> bytes:
    """A batch for partition 0 of a topic."""
    partition = PartitionProduceData(index=0, records=data)
    wanted = TopicProduceData(name=topic, partition_data=[partition])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[wanted])
    return frame(request, PRODUCE_VERSION)


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def receive(client: socket.socket) -> bytes:
    """The response that comes next; nothing if the connection is closed first."""
    answer = bytearray()
    while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
        chunk = client.recv(1 << 20)
        if not chunk:
            return b""
        answer += chunk
    return bytes(answer)


def ask(port: int, request: Message, version: int) -> bytes:
    with connected(port) as client:
        client.sendall(frame(request, version))
        return receive(client)


class LimitedNode(SparkraftNode):
    """A node in little address space, with the topics `plain` and `compacted` once it serves."""

    def __init__(self, directory: Path) -> None:
        (self.http_port,) = lasting_ports(1)
        overrides = {
            "group.initial.rebalance.delay.ms": "0",
            "sparkraft.http.listener": f"127.0.0.1:{self.http_port}",
        }
        super().__init__(directory, overrides=overrides)
        self.prefix = with_limits(f"ulimit -v {ADDRESS_SPACE_KB}")

    def wait_until_ready(self) -> None:
        super().wait_until_ready()
        self.create("plain")
        self.create("compacted", cleanup_policy="compact", max_message_bytes=str(100 << 20))

    def status_bytes(self, field: str) -> int:
        """A field of the process's `/proc/PID/status` that is given in kB."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
        return int(line.split()[1]) * 1024

    @property
    def resident_bytes(self) -> int:
        """Of its own memory, without the files it maps."""
        return self.status_bytes("RssAnon")

    def produce(self, topic: str, data: bytes) -> int:
        """Append a batch; the error code."""
        with connected(self.port) as client:
            client.sendall(produce_request(topic, data))
            answer = receive(client)
        (found,) = decode(ProduceResponse, PRODUCE_VERSION, answer[HEAD_BYTES:]).responses
        return found.partition_responses[0].error_code

    def accepts_records(self) -> bool:
        """Whether it appends a record to `plain`."""
        return self.produce("plain", batch(b"still here")) == 0

    def create(self, topic: str, *, partitions: int = 1, **configs: str) -> None:
        settings = [
            CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ]
        wanted = CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=1, configs=settings
        )
        assert ask(self.port, CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 5)


def batch(value: bytes, *, codec: Codec = Codec.NONE, records: int = 1) -> bytes:
    builder = BatchBuilder(codec=codec)
    for _ in range(records):
        builder.append(int(time.time() * 1000), b"k", value)
    return builder.build()


@contextlib.contextmanager
def attacked(node: LimitedNode) -> Iterator[None]:
    """The node serves afterwards, and its memory returns within `RETURN_SECONDS`."""
    yield
    assert node.process is not None
    assert node.process.poll() is None, node.output_tail()
    since = time.monotonic()
    wait_until(node.accepts_records, "it serves", RETURN_SECONDS)
    served = time.monotonic() - since
    held = node.resident_bytes >> 20
    wait_until(
        lambda: node.resident_bytes < RETURNED_BYTES,
        f"its memory returns; it has {held} MiB",
        RETURN_SECONDS - served,
    )
    returned = time.monotonic() - since
    peak = node.status_bytes("VmPeak") >> 20
    log.info(
        "served after %.1f s, %d MiB returned after %.1f s, %d MiB of addresses at most so far",
        served, held, returned, peak,
    )  # fmt: skip

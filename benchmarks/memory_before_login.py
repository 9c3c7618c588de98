"""What a connection costs a node before its client has authenticated, in memory of the process.

Each state has a node of its own, whose memory is compared before and with `CONNECTIONS` connections
in that state: as many as `sparkraft.unauthenticated.connections.max` allows on a listener. The
kernel's buffers of the sockets are not included.
"""

import resource
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.bench_node import request
from benchmarks.measure import rss_mib
from benchmarks.report import Row
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from sparkraft.server.network.sasl_gate import READ_BYTES
from tests.support.certificates import Authority, pem_configs
from tests.support.nodes import SparkraftNode
from tests.support.ports import lasting_ports
from tests.support.sasl import PLAIN, sasl_node

CONNECTIONS = 1_000
FILES = 4 * CONNECTIONS
HOST = "127.0.0.1"

QUIET_S = 2.0
"""The node has handled what was sent: its memory is read after this time."""

TOKEN_BYTES = 512 * 1024
"""`sasl.server.max.receive.size`, by default."""

POOL_MIB = 112.5
"""All unfinished requests of clients: queued.max.request.bytes by default, and an eighth more."""

HELLO_BYTES = 130_000
"""OpenSSL refuses a longer ClientHello when it has read its length."""

RECORD_BYTES = 16_384

CONNECTED_KIB = 16
"""A connection that has sent nothing."""

WAITING_KIB = POOL_MIB * 1024 / CONNECTIONS + READ_BYTES / 1024 + CONNECTED_KIB
"""Its share of all unfinished requests, and one read of a connection that waits for memory."""

State = Callable[[socket.socket], object]
"""Brings a new connection into a state; the result is kept as long as the connection."""


def _nothing(_: socket.socket) -> None:
    """Connect, and send nothing."""


def _mechanism_chosen(connection: socket.socket) -> None:
    message = SaslHandshakeRequest(mechanism=PLAIN)
    connection.sendall(request(ApiKey.SASL_HANDSHAKE, 1, message))
    assert connection.recv(65_536)


def _unfinished_token(connection: socket.socket) -> None:
    """The longest frame without its last byte, as far as the node reads it."""
    connection.settimeout(0)
    data = memoryview(TOKEN_BYTES.to_bytes(4, "big") + bytes(TOKEN_BYTES - 1))
    until = time.monotonic() + 1
    while data and time.monotonic() < until:
        try:
            data = data[connection.send(data) :]
        except BlockingIOError:
            return


def _hello(connection: socket.socket) -> ssl.SSLObject:
    """A ClientHello; the node's certificate comes back, and the client says no more."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=HOST)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        connection.sendall(outgoing.read())
    assert connection.recv(65_536)
    return client


def _unfinished_hello(connection: socket.socket) -> None:
    """The longest ClientHello that OpenSSL takes, without its end."""
    data = b"\x01" + HELLO_BYTES.to_bytes(3, "big") + bytes(HELLO_BYTES - 1)
    for at in range(0, len(data), RECORD_BYTES):
        part = data[at : at + RECORD_BYTES]
        connection.sendall(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part)


def node_in(folder: Path) -> tuple[SparkraftNode, int]:
    """A node with a SASL listener, and its port with TLS; not started yet."""
    authority = Authority(folder / "authority")
    (tls_port,) = lasting_ports(1)
    node = sasl_node(folder / "node", mechanisms=(PLAIN,))
    node.overrides["listeners"] += f",SSL://{HOST}:{tls_port}"
    node.overrides["advertised.listeners"] += f",SSL://{HOST}:{tls_port}"
    node.overrides["listener.security.protocol.map"] += ",SSL:SSL"
    node.overrides |= pem_configs(authority.issue("node"), authority.ca_path)
    node.overrides["sparkraft.unauthenticated.connections.max"] = str(CONNECTIONS)
    node.write_properties()
    return node, tls_port


def grown_mib(folder: Path, state: State, *, tls: bool) -> float:
    """How much a node's memory grows with all connections in a state."""
    node, tls_port = node_in(folder)
    with node:
        assert node.process is not None
        port = tls_port if tls else node.port
        with socket.create_connection((HOST, port), 60) as first:  # what is loaded once
            state(first)
            time.sleep(QUIET_S)
        before, kept = rss_mib(node.process.pid), []
        for _ in range(CONNECTIONS):
            connection = socket.create_connection((HOST, port), 60)
            kept.append((connection, state(connection)))
        time.sleep(QUIET_S)
        grown = rss_mib(node.process.pid) - before
        for connection, _ in kept:
            connection.close()
        node.stop()
    return grown


def memory_before_login(folder: Path) -> list[Row]:
    """A row for each state."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
    states: list[tuple[str, State, bool, float]] = [
        ("SASL: connected", _nothing, False, CONNECTED_KIB),
        ("SASL: mechanism chosen", _mechanism_chosen, False, CONNECTED_KIB),
        ("SASL: the longest token, unfinished", _unfinished_token, False, WAITING_KIB),
        ("TLS: connected", _nothing, True, 64),
        ("TLS: ClientHello sent", _hello, True, 128),
        ("TLS: the longest ClientHello, unfinished", _unfinished_hello, True, 320),
    ]
    rows = []
    for number, (label, state, tls, most_kib) in enumerate(states):
        kib = grown_mib(folder / str(number), state, tls=tls) * 1024 / CONNECTIONS
        against = f"{most_kib:,.0f} KiB"
        rows.append(Row(label, f"{kib:,.1f} KiB", against, kib / most_kib, at_most=1.0))
    return rows

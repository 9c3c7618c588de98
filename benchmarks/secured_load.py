"""A load over plain TCP or TLS by the same client, in a process of its own.

    python -m benchmarks.secured_load PORT FRAMES CONNECTIONS IN_FLIGHT SECONDS SKIPPED CA

Each connection has `IN_FLIGHT` requests on the way: while the responses of one are read, the node
works for the others. Responses are counted and not decoded, so the client's own work is small. What
the first `SKIPPED` seconds bring does not count. Prints requests, bytes in both directions, seconds
and what had come by when as JSON.

The C load generator has no TLS; a comparison needs one client for both.
"""

import json
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import BUILD, ROOT, cpu_seconds

HOST = "127.0.0.1"
BUFFER_BYTES = 1 << 20

SAMPLE_S = 0.1
"""Time between two samples of `Load.samples`, at least."""

Samples = list[tuple[float, int, int]]
"""Seconds since the beginning, and the bytes out and in until then, all without what is skipped."""


@dataclass(frozen=True)
class Load:
    """What came of it; CPU is the server's."""

    requests: int
    bytes_out: int
    bytes_in: int
    seconds: float
    cpu_seconds: float
    samples: Samples = field(default_factory=list)

    def furthest_out(self, rate: float, length: float) -> float:
        """How far bytes out were from `rate` bytes a second in any `length` seconds, in percent."""
        return furthest([(at, out) for at, out, _ in self.samples], rate, length)

    def furthest_in(self, rate: float, length: float) -> float:
        """The same of bytes in."""
        return furthest([(at, into) for at, _, into in self.samples], rate, length)

    @property
    def per_second(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        """Server CPU a request, in µs."""
        return self.cpu_seconds / max(self.requests, 1) * 1e6


def furthest(samples: list[tuple[float, int]], rate: float, length: float) -> float:
    """See `Load.furthest_out`; `samples` are times and totals."""
    found = [0.0]
    end = 0
    for at, before in samples:
        while end < len(samples) and samples[end][0] < at + length:
            end += 1
        if end == len(samples):
            break
        until, after = samples[end]
        found.append(abs((after - before) / (until - at) / rate - 1) * 100)
    return max(found)


@dataclass(frozen=True)
class Shape:
    """How a load is sent."""

    connections: int
    in_flight: int
    seconds: float
    skipped: float = 0.0


def dial(port: int, ca: str) -> socket.socket:
    """A connection; over TLS if there is a certificate authority to trust."""
    plain = socket.create_connection((HOST, port), 120)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not ca:
        return plain
    return ssl.create_default_context(cafile=ca).wrap_socket(plain, server_hostname=HOST)


def receive(connection: socket.socket, responses: int, buffer: memoryview) -> int:
    """Read so many responses, which are all that are on their way; their bytes."""
    total = left = 0
    head = b""
    while responses:
        got = connection.recv_into(buffer)
        if not got:
            raise ConnectionError("the node closed the connection of a load")
        total += got
        at = 0
        while at < got:
            if not left:
                part = bytes(buffer[at : min(at + 4 - len(head), got)])
                head, at = head + part, at + len(part)
                if len(head) < 4:
                    break
                left, head = int.from_bytes(head, "big"), b""
            step = min(left, got - at)
            left, at = left - step, at + step
            if not left:
                responses -= 1
    return total


def send_all(port: int, frames: list[bytes], shape: Shape, ca: str) -> dict[str, Any]:
    """Send round and round until the time is over."""
    connections = [dial(port, ca) for _ in range(shape.connections)]
    turn, buffer = 0, memoryview(bytearray(BUFFER_BYTES))

    def window() -> bytes:
        nonlocal turn
        chosen = [frames[(turn + n) % len(frames)] for n in range(shape.in_flight)]
        turn += shape.in_flight
        return b"".join(chosen)

    for connection in connections:
        connection.sendall(window())
    begun = time.monotonic()
    counts_from, ends = begun + shape.skipped, begun + shape.skipped + shape.seconds
    requests = bytes_out = bytes_in = 0
    started = now = begun
    samples: Samples = []
    while now < ends:
        for connection in connections:
            received = receive(connection, shape.in_flight, buffer)
            sent = window()
            connection.sendall(sent)
            now = time.monotonic()
            if now < counts_from:
                started = now
            else:
                requests += shape.in_flight
                bytes_out += len(sent)
                bytes_in += received
                if not samples or now - started - samples[-1][0] >= SAMPLE_S:
                    samples.append((now - started, bytes_out, bytes_in))
    for connection in connections:
        connection.close()
    return {
        "requests": requests,
        "bytes_out": bytes_out,
        "bytes_in": bytes_in,
        "seconds": now - started,
        "samples": samples,
    }


class Running:
    """A load in its own process; `result` waits for its end."""

    def __init__(
        self, port: int, pid: int, frames: list[bytes], shape: Shape, ca: Path | None = None
    ) -> None:
        BUILD.mkdir(parents=True, exist_ok=True)
        self._path = BUILD / f"secured-{port}-{time.monotonic_ns()}.bin"
        self._path.write_bytes(b"".join(frames))
        command = [sys.executable, "-m", "benchmarks.secured_load", str(port), str(self._path)]
        numbers = (shape.connections, shape.in_flight, shape.seconds, shape.skipped)
        self._process = subprocess.Popen(
            [*command, *map(str, numbers), str(ca or "")],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._shape = shape
        self._pid = pid
        self._cpu = cpu_seconds(pid)

    def result(self) -> Load:
        """What came of it."""
        limit = self._shape.seconds + self._shape.skipped + 120
        output, _ = self._process.communicate(timeout=limit)
        used = cpu_seconds(self._pid) - self._cpu
        self._path.unlink()
        if self._process.returncode:
            raise RuntimeError("the load failed")
        found = json.loads(output)
        return Load(
            int(found["requests"]), int(found["bytes_out"]), int(found["bytes_in"]),
            found["seconds"], used, [(at, out, into) for at, out, into in found["samples"]],
        )  # fmt: skip


def split(data: bytes) -> list[bytes]:
    """The frames in `data`."""
    frames = []
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        frames.append(data[:size])
        data = data[size:]
    return frames


if __name__ == "__main__":
    _, its_port, its_frames, its_connections, its_depth, its_seconds, its_skipped, its_ca = sys.argv
    its_shape = Shape(int(its_connections), int(its_depth), float(its_seconds), float(its_skipped))
    frames_to_send = split(Path(its_frames).read_bytes())
    print(json.dumps(send_all(int(its_port), frames_to_send, its_shape, its_ca)))

"""A light client beside a load: one small Produce every few milliseconds, in a process of its own.

    python -m benchmarks.probe PORT TOPIC SECONDS RATE

Latencies count from the moment at which a request was due, not from when it was sent, so a node
that stands still makes every probe due meanwhile late. Prints them as a JSON list, in milliseconds.
"""

import json
import socket
import subprocess
import sys
import time

from benchmarks.bench_node import batch, produce_frames
from benchmarks.measure import ROOT


def receive(connection: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes."""
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the node closed the probe's connection")
        data += part
    return data


def measure(port: int, topic: str, seconds: float, rate: int) -> list[float]:
    """Latencies in ms, in order."""
    frame = produce_frames(topic, batch(100, 1), 1)
    latencies = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun = time.monotonic()
        for number in range(int(seconds * rate)):
            due = begun + number / rate
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            connection.sendall(frame)
            receive(connection, int.from_bytes(receive(connection, 4), "big"))
            latencies.append((time.monotonic() - due) * 1000)
    return latencies


class Probe:
    """A running probe; `latencies` waits for its end."""

    def __init__(self, port: int, topic: str, seconds: float, rate: int = 100) -> None:
        command = [sys.executable, "-m", "benchmarks.probe", str(port), topic]
        self._process = subprocess.Popen(
            [*command, str(seconds), str(rate)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        self._seconds = seconds

    def latencies(self) -> list[float]:
        """All of them, in ms.

        Raises:
            ConnectionError: the node closed the connection.
        """
        output, _ = self._process.communicate(timeout=self._seconds + 120)
        if self._process.returncode:
            raise ConnectionError("the probe ended before its time")
        found: list[float] = json.loads(output)
        return found


if __name__ == "__main__":
    _, arguments_port, arguments_topic, arguments_seconds, arguments_rate = sys.argv
    print(
        json.dumps(
            measure(
                int(arguments_port),
                arguments_topic,
                float(arguments_seconds),
                int(arguments_rate),
            )
        )
    )

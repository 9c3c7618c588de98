"""One Kafka or one sparkraft node as a process on loopback, with the same server.properties.

Both kinds take the same configuration file, so a test can swap one for the other, also on the
same directory. A node is ended by its own process id, and always when its `with` block ends.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.jvm import java_command
from tests.support.ports import accepts, lasting_ports, wait_until
from tests.support.turns import JVM_STARTS, turn

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

STACKS_SECONDS = 3
"""In which a JVM has printed the stacks of its threads."""

START_SECONDS = 180
"""A node, or a tool, has so long to come up: several JVMs may start on two busy cores."""


def with_limits(limits: str) -> list[str]:
    """A prefix that runs a command under a shell's limits, such as `ulimit -n 64`."""
    return ["sh", "-c", f'{limits} && exec "$@"', "sh"]


class NodeProcess:
    """A single combined node (`broker,controller`, node.id 1) in a directory of its own."""

    def __init__(
        self,
        directory: Path,
        *,
        overrides: Mapping[str, str] | None = None,
        jars: Path | None = None,
        ports: tuple[int, int] | None = None,
        format_as: Sequence[str] = ("--standalone",),
    ) -> None:
        """Write the configuration; start nothing.

        Args:
            directory: of this node alone.
            overrides: configuration beyond, or instead of, that of a single combined node.
            jars: Kafka's, for its node.
            ports: for clients and for controllers; any free ones by default.
            format_as: what `storage format` is told about the quorum.
        """
        self.directory = directory
        self.log_dir = directory / "data"
        self.output_path = directory / "node.out"
        self.jars = jars
        self.format_as = tuple(format_as)
        self.port, self.controller_port = ports or lasting_ports(2)
        directory.mkdir(parents=True, exist_ok=True)
        self.properties_path = directory / "server.properties"
        self.overrides = dict(overrides or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        """Variables that the started process gets beside those of the tests."""
        self.prefix: list[str] = []
        """Words before the start command, such as `with_limits` gives."""
        self.write_properties()

    def write_properties(self) -> None:
        """Write server.properties anew, from the ports and overrides as they are now."""
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},"
            f"CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.overrides,
        }
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        self.properties_path.write_text(text)

    @property
    def bootstrap(self) -> str:
        """`host:port` of the client listener."""
        return f"127.0.0.1:{self.port}"

    def format_command(self) -> list[str]:
        """The command that formats the directory."""
        raise NotImplementedError

    def start_command(self) -> list[str]:
        """The command that runs the node."""
        raise NotImplementedError

    def format(self) -> None:
        """Format the log directory as a dynamic quorum of one; fine if it is formatted already."""
        done = subprocess.run(
            self.format_command(),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start the process and wait until its client listener accepts."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process."""
        with self.output_path.open("ab") as output:
            self.process = subprocess.Popen(
                [*self.prefix, *self.start_command()],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, **self.environment},
            )  # fmt: skip

    @property
    def ready_port(self) -> int:
        """The port that is open once the node serves."""
        return self.port

    def wait_until_ready(self) -> None:
        """Return once the node serves; fail with what it printed if it ends or doesn't."""
        process, port = self.process, self.ready_port
        assert process is not None

        def ready() -> bool:
            assert process.poll() is None, f"the node ended at once:\n{self.output_tail()}"
            return accepts(port)

        try:
            wait_until(ready, f"the node listens on {port}", START_SECONDS)
        except AssertionError as error:
            tail = self.output_tail()
            last = tail.rpartition("\n")[2] or "nothing"
            raise AssertionError(f"{error}; it printed last: {last}\n{tail}") from None

    def pause(self) -> None:
        """SIGSTOP: it does not respond and keeps its sockets. Return once all its threads stop.

        On a busy machine its other threads run until the one that gets the signal does.
        """
        assert self.process is not None
        pid = self.process.pid
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: _is_stopped(pid), f"process {pid} stops", START_SECONDS)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def refused_start(self, *, seconds: float = START_SECONDS) -> str:
        """Start where that must not work: what is printed, a plain sentence and a code above 0."""
        done = subprocess.run(
            [*self.prefix, *self.start_command()],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, **self.environment},
            text=True, timeout=seconds, check=False,
        )  # fmt: skip
        assert done.returncode > 0, f"{done.returncode}: {done.stdout}"
        assert "Traceback" not in done.stdout, done.stdout
        return done.stdout

    def wait(self, *, seconds: float = 60) -> int:
        """Wait until the process ends by itself; the exit code."""
        assert self.process is not None
        code = self.process.wait(seconds)
        self.process = None
        return code

    def stop(self, *, seconds: float = 60) -> int:
        """SIGTERM, and wait for a clean end; the exit code."""
        return self._end(signal.SIGTERM, seconds)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL, 60)

    def _end(self, how: signal.Signals, seconds: float) -> int:
        process = self.process
        assert process is not None
        if process.poll() is None:
            os.kill(process.pid, how)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            tail = self.output_tail()
            # A JVM prints the stacks of its threads; a Python process ends.
            os.kill(process.pid, signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STACKS_SECONDS)
            process.kill()
            process.wait(60)
            raise AssertionError(
                f"no end after {seconds:g} s; a JVM's stacks are in {self.output_path}:\n{tail}"
            ) from None
        finally:
            self.process = None

    def output_tail(self) -> str:
        """The last lines the node printed."""
        if not self.output_path.exists():
            return ""
        return "\n".join(self.output_path.read_text(errors="replace").splitlines()[-30:])

    def __enter__(self) -> Self:
        """Format if need be, and start."""
        self.format()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the process if it still runs."""
        if self.process is not None:
            self.kill()


def _is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs; assumed where /proc is missing."""
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        try:
            state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # a thread that has ended
            continue
        if state not in "TtZX":
            return False
    return True


def _our_format_command(node: NodeProcess) -> list[str]:
    return [
        sys.executable, "-m", "sparkraft.cli.main", "storage", "format", *node.format_as,
        "--ignore-formatted", "-t", CLUSTER_ID, "-c", str(node.properties_path),
    ]  # fmt: skip


class SparkraftNode(NodeProcess):
    """Our node."""

    def format_command(self) -> list[str]:
        """`sparkraft storage format`."""
        return _our_format_command(self)

    def start_command(self) -> list[str]:
        """`sparkraft server-start`."""
        return [
            sys.executable, "-m", "sparkraft.cli.main", "server-start", str(self.properties_path)
        ]  # fmt: skip


class KafkaNode(NodeProcess):
    """Apache Kafka's node; needs `jars`."""

    is_formatted_by_kafka = False
    """Otherwise by our command, which saves a JVM; tests/cli compares the files of both."""

    def format_command(self) -> list[str]:
        """`kafka-storage.sh format`, or ours."""
        if not self.is_formatted_by_kafka:
            return _our_format_command(self)
        assert self.jars is not None
        return [
            *java_command(self.jars, "-Xmx256M"),
            "kafka.tools.StorageTool", "format", *self.format_as, "--ignore-formatted",
            "-t", CLUSTER_ID, "-c", str(self.properties_path),
        ]  # fmt: skip

    def start_command(self) -> list[str]:
        """`kafka-server-start.sh`, with a heap that leaves room for others."""
        assert self.jars is not None
        command = java_command(self.jars, "-Xms256M", "-Xmx768M")
        return [*command, "kafka.Kafka", str(self.properties_path)]

    def start(self) -> None:
        """Start when it is this process's turn."""
        with turn(JVM_STARTS):
            super().start()


class KafkaFormattedNode(KafkaNode):
    """Kafka's node on a directory that Kafka has formatted."""

    is_formatted_by_kafka = True

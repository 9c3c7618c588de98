"""`./quickstart`: a cluster, the flights, the pipeline, the result; `--check` compares and ends.

The cluster is started and stopped with `sparkraft up` and `sparkraft down`. Existing data is
reused: a second start sends only the missing flights and continues from the pipeline's checkpoint.
`--check` starts from nothing, in a folder of its own. `--kill-leader` kills a node that leads a
partition of the flights (kill -9) after a third of them is sent, and restarts it after two thirds:
the result must be the same. `--kill-driver` runs the pipeline in a process of its own and kills it
in the middle of a batch, with Spark's JVM and workers (kill -9).
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparkraft.base.errors import InputError
from sparkraft.pipeline import run as running
from sparkraft.pipeline import spec
from sparkraft.pipeline.demo import check, driver, flights
from sparkraft.pipeline.options import ClientOptions, parse_servers
from sparkraft.pipeline.places import OptionError
from sparkraft.pipeline.session import NoJava, check_java
from sparkraft.pipeline.wire import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType
    from typing import Any

    from sparkraft.pipeline.progress import Progress

_PORT: Final = 9092
_NODES: Final = 3
"""Enough that one may be killed while it runs."""

_REPORT_SECONDS: Final = 2.0
_WORST: Final = 8
_BUSY_HOUR: Final = 10
"""Hours in which fewer departed are left out of the worst: one late flight makes no bad hour."""

_RESULT_PARTITIONS: Final = 2


def say(line: str) -> None:
    """Print a line for the user."""
    print(line, flush=True)  # noqa: T201 (this is a program's output)


@dataclass(slots=True)
class Kill:
    """The death in mid-run of a node that leads flights, and its return."""

    directory: Path
    """The cluster's."""
    node: int = -1
    is_back: bool = False

    def on_progress(self, cluster: Cluster, count: int) -> None:
        """`count` flights are sent: perhaps it is time."""
        if self.node < 0 and count >= flights.TOTAL // 3:
            (self.node,) = cluster.by_leader([(flights.TOPIC, 0)])
            _sparkraft("node", "kill", str(self.node), "--dir", str(self.directory))
            say(f"  kill -9  node {self.node}, which leads {flights.TOPIC}-0")
        elif self.node >= 0 and not self.is_back and count >= flights.TOTAL * 2 // 3:
            self.is_back = True
            _sparkraft("node", "start", str(self.node), "--dir", str(self.directory))
            say(f"  start    node {self.node} again")


@dataclass(slots=True)
class Stop:
    """Whether a stop was requested, and the state of the pipeline."""

    asked: threading.Event = field(default_factory=threading.Event)
    dropped: int = 0
    processed: int = 0
    batches: int = 0
    kill: Kill | None = None
    is_driver_killed: bool | None = None
    """None if it is not to be killed."""

    def listen(self) -> None:
        """Take Ctrl-C and SIGTERM as the wish to stop."""

        def on_signal(_signal: int, _frame: FrameType | None) -> None:
            self.asked.set()

        for wanted in (signal.SIGINT, signal.SIGTERM):
            signal.signal(wanted, on_signal)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0 only if it did all it was asked to."""
    parser = argparse.ArgumentParser(prog="quickstart", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with pandas, then end")
    parser.add_argument(
        "--kill-leader", action="store_true", help="kill a node that leads flights in mid-run"
    )
    parser.add_argument(
        "--kill-driver", action="store_true", help="kill the pipeline's processes in mid-run"
    )
    parser.add_argument("--data", type=Path, default=Path("quickstart-data"), help="folder to use")
    parser.add_argument(
        "--port", type=int, help="port of the cluster (default 9092, if it is free)"
    )
    values = parser.parse_args(argv)
    data = (values.data / "check" if values.check else values.data).resolve()
    stop = Stop()
    stop.listen()
    if values.kill_driver and not values.check:
        parser.error("--kill-driver needs --check")
    stop.is_driver_killed = False if values.kill_driver else None
    if values.kill_leader:
        stop.kill = Kill(data / "cluster")
    try:
        if values.check:
            _clear(data)
        with _cluster(data, values.port, has_console=not values.check) as bootstrap:
            return _demo(data, bootstrap, stop, checked=values.check)
    except (flights.NoFlights, OptionError, InputError, running.PipelineError) as error:
        say(f"quickstart: {error}")
        return 1
    except subprocess.CalledProcessError as error:
        # A command failed; the message names it and the reason.
        say(f"quickstart: {error.stderr.strip().removeprefix('sparkraft up: ')}")
        return 1


def _demo(data: Path, bootstrap: str, stop: Stop, *, checked: bool) -> int:
    options = ClientOptions(
        bootstrap_servers=parse_servers(bootstrap),
        client_id="quickstart",
        request_timeout_ms=30_000,
    )
    cluster = Cluster(options)
    flights.create_topic(cluster)
    cluster.create_topic(check.RESULT_TOPIC, partitions=_RESULT_PARTITIONS)
    try:
        check_java()
    except NoJava as error:
        return _without_java(cluster, bootstrap, error, stop, checked=checked)
    pipeline = _pipeline(data, bootstrap)

    def show() -> None:
        _show_worst(data)
        _show_connect(bootstrap)
        say("The pipeline waits for more flights. Ctrl-C stops everything.")

    with _sending(options, stop):
        say("Spark starts …")
        if stop.is_driver_killed is not None:
            _run_killed(pipeline, stop, data, bootstrap)
        else:
            running.run(
                pipeline,
                on_progress=lambda progress: _on_batch(progress, stop, None if checked else show),
                should_stop=lambda: _is_over(stop, checked=checked),
            )
    if not checked:
        return 0
    if stop.processed < flights.TOTAL:
        say(f"FAILED: stopped after {stop.processed:,} of {flights.TOTAL:,} flights")
        return 1
    return _verdict(data, cluster, stop)


def _run_killed(pipeline: spec.Pipeline, stop: Stop, data: Path, bootstrap: str) -> None:
    """Run the pipeline in another process, and kill that when half of the flights are processed."""

    def on_batch(document: Mapping[str, Any]) -> None:
        say(f"  spark    batch {document['batch']:>4}  {document['records']:>9,} records")
        ends = (source["end"] for source in document["sources"])
        stop.processed = sum(sum(each[flights.TOPIC].values()) for each in ends)
        stop.dropped += document["late"]
        stop.batches += 1

    with _file() as path:
        values = {"data": str(data), "bootstrap": bootstrap}
        process = driver.Driver(driver.command_of(str(path), values), pipeline)
        process.run(
            on_batch=on_batch,
            is_time_to_kill=lambda: stop.processed > flights.TOTAL // 2,
            is_over=lambda: _is_over(stop, checked=True),
        )
    stop.is_driver_killed = process.is_killed


def _file() -> AbstractContextManager[Path]:
    return resources.as_file(resources.files("sparkraft.pipeline.demo") / "delays.toml")


def _pipeline(data: Path, bootstrap: str) -> spec.Pipeline:
    with _file() as path:
        return spec.load(path, {"data": str(data), "bootstrap": bootstrap})


def _on_batch(progress: Progress, stop: Stop, when_done: Callable[[], None] | None) -> None:
    say(f"  spark    {progress}")
    before = stop.processed
    stop.processed = sum(progress.end.values())
    stop.dropped += progress.dropped
    stop.batches += progress.is_batch
    if before < flights.TOTAL <= stop.processed and when_done:
        when_done()


def _is_over(stop: Stop, *, checked: bool) -> bool:
    return stop.asked.is_set() or (checked and stop.processed >= flights.TOTAL)


@contextmanager
def _sending(options: ClientOptions, stop: Stop) -> Iterator[None]:
    """Send the flights beside what the caller does."""
    failure: list[BaseException] = []
    left = threading.Event()

    def send() -> None:
        try:
            # A cluster of its own: connections belong to one thread.
            _send(Cluster(options), stop, left)
        except Exception as error:
            failure.append(error)
            stop.asked.set()

    sender = threading.Thread(target=send, name="flights")
    sender.start()
    try:
        yield
    finally:
        left.set()
        sender.join()
    if failure:
        raise running.PipelineError(f"sending the flights failed: {failure[0]}")


def _send(cluster: Cluster, stop: Stop, left: threading.Event) -> None:
    told = 0.0

    def on_progress(count: int, rate: float) -> None:
        nonlocal told
        if stop.kill is not None:
            stop.kill.on_progress(cluster, count)
        if count < flights.TOTAL and time.monotonic() - told < _REPORT_SECONDS:
            return
        told = time.monotonic()
        say(
            f"  flights  {count:>9,} of {flights.TOTAL:,} in topic {flights.TOPIC}  {rate:>9,.0f}/s"
        )

    flights.stream(
        cluster,
        on_progress=on_progress,
        should_stop=lambda: stop.asked.is_set() or left.is_set(),
    )


def _without_java(
    cluster: Cluster, bootstrap: str, error: NoJava, stop: Stop, *, checked: bool
) -> int:
    say(f"No pipeline: {error}")
    _send(cluster, stop, threading.Event())
    if checked:
        say("FAILED: nothing could be compared")
        return 1
    _show_connect(bootstrap)
    say("The cluster is up; Ctrl-C stops it.")
    stop.asked.wait()
    return 1


# the result


def _show_worst(data: Path) -> None:
    rows = check.table_rows(str(data / "delays"))
    busy = [(row, key) for key, row in rows.items() if row[0] - row[1] >= _BUSY_HOUR]
    busy.sort(key=lambda each: -(each[0][2] or 0))
    say(f"\nThe worst hours of {len(rows):,} (delays in minutes):")
    say("  origin  hour (UTC)         flights  cancelled    mean     p95")
    for (count, cancelled, mean, high), (origin, hour) in busy[:_WORST]:
        at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(hour / 1000))
        say(f"  {origin:<6}  {at}  {count:>7}  {cancelled:>9}  {mean:>6.1f}  {high:>6.1f}")


def _show_connect(bootstrap: str) -> None:
    python = Path(sys.executable)
    command = shlex.quote(str(python.with_name("sparkraft")))
    say(f"\nThe cluster listens on {bootstrap}, for every Kafka client. For example:")
    say(
        f"  {command} console-consumer --bootstrap-server {bootstrap} --topic delays "
        "--from-beginning --max-messages 5"
    )
    say(f"  {command} consumer-groups --bootstrap-server {bootstrap} --describe --group delays")


def _verdict(data: Path, cluster: Cluster, stop: Stop) -> int:
    say("\nComparing with pandas …")
    wanted = check.expected()
    wrong = check.differences("the Delta table", check.table_rows(str(data / "delays")), wanted)
    found, repeated = check.topic_rows(cluster)
    wrong += check.differences(f"topic {check.RESULT_TOPIC}", found, wanted)
    if repeated:
        wrong.append(f"topic {check.RESULT_TOPIC} has {repeated} records twice")
    if stop.is_driver_killed is False:
        wrong.append("the pipeline was not killed")
    if stop.dropped:
        wrong.append(f"{stop.dropped} rows were dropped by the watermark")
    if stop.kill is not None and not stop.kill.is_back:
        wrong.append("no leader was killed and came back")
    for line in wrong:
        say(f"  DIFFERS: {line}")
    if wrong:
        say("FAILED")
        return 1
    nothing = sum(row[2] is None for row in wanted.values())
    say(
        f"OK: {flights.TOTAL:,} flights in {stop.batches} batches; {len(wanted):,} hours agree "
        f"with pandas in topic and table, {nothing} of them with all flights cancelled; "
        "no record is in the topic twice, no row was dropped by the watermark"
    )
    return 0


# the cluster


@contextmanager
def _cluster(data: Path, port: int | None, *, has_console: bool) -> Iterator[str]:
    """Start what doesn't run, and stop it at the end; its bootstrap list."""
    directory = data / "cluster"
    data.mkdir(parents=True, exist_ok=True)
    known = (directory / "cluster.json").exists()
    chosen = [] if known and port is None else ["--port", str(port or _free_port())]
    if not known:
        chosen += ["--nodes", str(_NODES)]
    if not has_console:
        chosen.append("--no-console")
    up = _sparkraft("up", "--dir", str(directory), *chosen, "--detach", "--output", "json")
    started = json.loads(up)
    bootstrap: str = started["bootstrap"]
    again, left = (" again", ", with what an earlier start left") if known else ("", "")
    say(f"The cluster is up{again} on {bootstrap}{left} (data in {directory})")
    if started["console"] is not None:
        say(f"Its web console: {started['console']}")
    try:
        yield bootstrap
    finally:
        _sparkraft("down", "--dir", str(directory))
        say("The cluster is stopped.")


def _sparkraft(*arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "sparkraft.cli.main", *arguments]
    # In a session of its own: Ctrl-C is for us, and the cluster is stopped in order.
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, start_new_session=True
    )
    return done.stdout


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _PORT))
        except OSError:
            pass
        else:
            return _PORT
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _clear(data: Path) -> None:
    """Away with an earlier check, and with its cluster should it still run."""
    if (data / "cluster" / "cluster.json").exists():
        _sparkraft("down", "--dir", str(data / "cluster"))
    shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

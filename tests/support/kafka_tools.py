"""Programs of Apache Kafka in one JVM for each process of tests, run one after another.

A JVM takes 0.5 s of CPU time until one of Kafka's commands begins, and the tests run some two
hundred. `java/KafkaTools.java` runs them as if each had a JVM of its own: it starts with nothing
else running, has its own standard streams, and ends with the code it exits with.

Not for programs that run until they are ended, or leave work to a shutdown hook.
"""

import atexit
import base64
import os
import selectors
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from tests.support.jvm import java_command
from tests.support.outside_tools import fetching

_HERE = Path(__file__).parent
_SOURCES = (_HERE / "java", _HERE.parent / "interop" / "java")
_LOG4J2 = _HERE / "kafka_tools_log4j2.properties"
_COMPILE_SECONDS_MAX = 300
_CHUNK = 1 << 16


_FLAGS = ("-Xmx256M", f"-Dlog4j2.configurationFile={_LOG4J2}")


def kafka_tool_command(jars: Path, main_class: str, *, beside: Sequence[Path] = ()) -> list[str]:
    """The command of one of Kafka's own tools; it logs to stderr, as Kafka's scripts have it.

    `beside` is as in `java_command`.
    """
    return [*java_command(jars, *_FLAGS, beside=beside), main_class]


OWN_JVM = frozenset(
    {
        "kafka.Kafka",
        "org.apache.kafka.shell.MetadataShell",
        "org.apache.kafka.tools.ConsoleProducer",
        "org.apache.kafka.tools.ConsumerPerformance",
        "org.apache.kafka.tools.ProducerPerformance",
        "org.apache.kafka.tools.VerifiableProducer",
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
    }
)
"""Programs that leave threads or shutdown hooks behind; all others share a JVM."""

OWN_JVM_FOR_HELP = frozenset({"org.apache.kafka.tools.ClusterTool"})
"""Programs that end the JVM with System.exit after their help."""


def run_kafka_tool(
    jars: Path, main_class: str, *arguments: str, stdin: str | None = None, seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's own tools to its end, in the shared JVM where that is possible.

    Without a Java compiler each gets a JVM of its own.
    """
    alone = OWN_JVM_FOR_HELP if "--help" in arguments else OWN_JVM
    if main_class not in alone and shutil.which("javac"):
        return tools_jvm(jars).run(main_class, arguments, stdin=stdin or "", seconds=seconds)
    return subprocess.run(
        [*kafka_tool_command(jars, main_class), *arguments],
        input=stdin, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


class ToolsJvm:
    """The JVM, started at first use, and again after a program that did not end in time."""

    def __init__(self, jars: Path) -> None:
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (as long as this process)
        atexit.register(self.close)

    def run(
        self, main_class: str, arguments: Sequence[str], *, stdin: str = "", seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `main` of a class to its end.

        Raises:
            subprocess.TimeoutExpired: it runs for longer than `seconds`.
        """
        process = self._started()
        assert process.stdin is not None
        words = [stdin, main_class, *arguments]
        process.stdin.write(b" ".join(map(_encoded, words)) + b"\n")
        process.stdin.flush()
        try:
            line = self._line(process, time.monotonic() + seconds)
        except TimeoutError:
            self.close()
            raise subprocess.TimeoutExpired([main_class, *arguments], seconds) from None
        code, out, err = (base64.b64decode(word[1:]).decode() for word in line.split())
        return subprocess.CompletedProcess([main_class, *arguments], int(code), out, err)

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = java_command(self._jars, *_FLAGS, beside=[compiled(self._jars)])
            self._process = subprocess.Popen(
                [*command, "KafkaTools"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._output,
            )  # fmt: skip
        return self._process

    def _line(self, process: subprocess.Popen[bytes], deadline: float) -> bytes:
        """The next line of the JVM."""
        assert process.stdout is not None
        found = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise TimeoutError
                chunk = os.read(process.stdout.fileno(), _CHUNK)
                if not chunk:
                    self.close()
                    self._output.seek(0)
                    said = self._output.read().decode(errors="replace")
                    raise AssertionError(f"the JVM of Kafka's tools has ended: {said[-2000:]}")
                found += chunk
        return found


def _encoded(word: str) -> bytes:
    return b"." + base64.b64encode(word.encode())


@cache
def tools_jvm(jars: Path) -> ToolsJvm:
    """The one of this process."""
    return ToolsJvm(jars)


def compiled(
    jars: Path,
    folders: Sequence[Path] = _SOURCES,
    *,
    name: str = "tests",
    beside: Path | None = None,
) -> Path:
    """A jar of the Java programs of the tests, compiled once for each state of their sources.

    Args:
        jars: Kafka's; the jar is put beside their folder.
        folders: of the sources.
        name: of the jar; jars of this name and of earlier sources are deleted.
        beside: a folder of jars that the programs need, too.
    """
    sources = sorted(path for folder in folders for path in folder.glob("*.java"))
    digest = sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    jar = jars.parent / f"{name}-{digest}.jar"
    with fetching(jar):
        if not jar.exists():
            for old in jar.parent.glob(f"{name}-*.jar"):
                old.unlink()
            _compile([jars] if beside is None else [jars, beside], sources, jar)
    return jar


def _compile(libraries: list[Path], sources: list[Path], jar: Path) -> None:
    classpath = ":".join(f"{folder}/*" for folder in libraries)
    folder = Path(tempfile.mkdtemp(dir=jar.parent))
    try:
        subprocess.run(
            ["javac", "-nowarn", "-cp", classpath, "-d", str(folder), *map(str, sources)],
            check=True, timeout=_COMPILE_SECONDS_MAX,
        )  # fmt: skip
        with zipfile.ZipFile(folder / "made.jar", "w") as made:
            for path in sorted(folder.rglob("*.class")):
                made.write(path, path.relative_to(folder))
        (folder / "made.jar").rename(jar)
    finally:
        shutil.rmtree(folder)

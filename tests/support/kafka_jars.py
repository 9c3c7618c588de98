"""Apache Kafka's jars, fetched through Maven into `.cache` and never committed."""

import shutil
import subprocess
from pathlib import Path

from tests.support.outside_tools import Missing

_ROOT = Path(__file__).resolve().parents[2]
_POM = _ROOT / "tests" / "interop" / "kafka-pom" / "pom.xml"
VERSION = "4.3.1"
_FETCH_SECONDS_MAX = 600


def kafka_jars_or_reason() -> Path | Missing:
    """The folder of the jars of Kafka 4.3.1 and all they need, or why there is none."""
    if not shutil.which("java"):
        return Missing("needs Java 17 or later on the PATH")
    libs = _ROOT / ".cache" / f"kafka-{VERSION}" / "libs"
    if (libs / f"kafka_2.13-{VERSION}.jar").exists():
        return libs
    if not shutil.which("mvn"):
        return Missing(f"needs Maven to fetch Apache Kafka {VERSION}")
    return _fetch(libs)


def _fetch(libs: Path) -> Path | Missing:
    """Copy the jars beside their place first, so that a broken fetch leaves nothing behind."""
    partial = libs.with_name("libs.part")
    shutil.rmtree(partial, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
    command.append(f"-DoutputDirectory={partial}")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return Missing(f"Maven took more than {_FETCH_SECONDS_MAX} s to fetch Kafka")
    if done.returncode != 0:
        return Missing(f"Maven could not fetch Kafka: {(done.stdout or done.stderr)[-300:]}")
    partial.rename(libs)
    return libs

"""Jars of Apache Kafka and of Spark's Kafka connector, fetched through Maven, never committed.

python -m tests.support.kafka_jars      print the folder of those of Kafka 3.9
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.outside_tools import CACHE, Missing, fetching

_TESTS = Path(__file__).resolve().parents[1]
VERSION = "4.3.1"
_FETCH_SECONDS_MAX = 600


def kafka_jars_or_reason() -> Path | Missing:
    """The folder of the jars of Kafka 4.3.1 and all they need, or why there is none."""
    pom = _TESTS / "interop" / "kafka-pom" / "pom.xml"
    return _jars_or_reason("Apache Kafka", pom, CACHE / f"kafka-{VERSION}" / "libs")


def kafka_applications_jars_or_reason() -> Path | Missing:
    """The folder of the jars that Kafka Streams and Connect need besides `kafka_jars_or_reason`."""
    pom = _TESTS / "interop" / "kafka-applications-pom" / "pom.xml"
    libs = CACHE / f"kafka-applications-{VERSION}" / "libs"
    return _jars_or_reason("Kafka Streams and Connect", pom, libs)


def kafka_3_9_jars_or_reason() -> Path | Missing:
    """The folder of the jars of Kafka 3.9 and ZooKeeper, or why there is none."""
    pom = _TESTS / "zookeeper" / "kafka-pom" / "pom.xml"
    return _jars_or_reason("Apache Kafka 3.9", pom, CACHE / "kafka-3.9.2" / "libs")


def kafka_2_6_jars_or_reason() -> Path | Missing:
    """The folder of the jars of Kafka 2.6, or why there is none."""
    pom = _TESTS / "zookeeper" / "kafka-2.6-pom" / "pom.xml"
    return _jars_or_reason("Apache Kafka 2.6", pom, CACHE / "kafka-2.6.3" / "libs")


def spark_kafka_jars_or_reason() -> list[Path] | Missing:
    """The jars of Spark's Kafka connector that Spark lacks, or why there are none.

    They are of Spark's own version, else of the newest one that works with it.
    """
    what, poms = "Spark's Kafka connector", _TESTS / "pipeline" / "spark-kafka-pom"
    found = _jars_or_reason(what, poms / "pom.xml", CACHE / "spark-kafka" / "libs")
    if isinstance(found, Missing):
        found = _jars_or_reason(what, poms / "earlier.xml", CACHE / "spark-kafka-earlier" / "libs")
    if isinstance(found, Missing):
        return found
    return [jar for name in _SPARK_KAFKA for jar in sorted(found.glob(f"{name}-*.jar"))]


_SPARK_KAFKA = (
    "spark-sql-kafka-0-10_2.13",
    "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients",
    "commons-pool2",
)


def _jars_or_reason(what: str, pom: Path, libs: Path) -> Path | Missing:
    if not shutil.which("java"):
        return Missing("needs Java 17 or later on the PATH")
    with fetching(libs.parent):
        if _fetched_for(libs).exists() and _fetched_for(libs).read_bytes() == pom.read_bytes():
            return libs
        if not shutil.which("mvn"):
            return Missing(f"needs Maven to fetch {what}")
        return _fetch(what, pom, libs)


def _fetched_for(libs: Path) -> Path:
    """A copy of the pom that the jars were fetched for; another one asks for other jars."""
    return libs / "pom.xml"


def _fetch(what: str, pom: Path, libs: Path) -> Path | Missing:
    """Copy the jars beside their place first, so that a broken fetch leaves nothing behind."""
    partial = libs.with_name("libs.part")
    shutil.rmtree(partial, ignore_errors=True)
    command = [
        "mvn",
        "-q",
        "-B",
        "-Dstyle.color=never",
        "-f",
        str(pom),
        "dependency:copy-dependencies",
    ]
    command.append(f"-DoutputDirectory={partial}")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return Missing(f"Maven took more than {_FETCH_SECONDS_MAX} s to fetch {what}")
    if done.returncode != 0:
        return Missing(f"Maven could not fetch {what}: {_first_error(done.stdout or done.stderr)}")
    shutil.copyfile(pom, _fetched_for(partial))
    shutil.rmtree(libs, ignore_errors=True)  # of an older pom
    partial.rename(libs)
    return libs


def _first_error(said: str) -> str:
    """Maven's first line that tells something, of the many around it."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)  # some of Maven's plugins heed no style.color
    errors = (line.removeprefix("[ERROR]").strip() for line in plain.splitlines())
    return next((line for line in errors if line), "it doesn't say why")[:400]


def main() -> None:
    """Print the folder of the jars of Kafka 3.9; they are fetched first if need be."""
    found = kafka_3_9_jars_or_reason()
    if isinstance(found, Missing):
        raise SystemExit(f"the jars of Kafka 3.9 are missing: {found.reason}")
    sys.stdout.write(f"{found}\n")


if __name__ == "__main__":
    main()

"""Fetches what the interop tests need, once, before several test workers would all try.

    python -m tests.support.prefetch

Nothing fails here: a test that lacks something says so itself.
"""

import tempfile
from pathlib import Path

from tests.support.jvm import archiving_java_command, class_archive
from tests.support.kafka_jars import (
    kafka_3_9_jars_or_reason,
    kafka_applications_jars_or_reason,
    kafka_jars_or_reason,
)
from tests.support.kafka_tools import compiled
from tests.support.nodes import KafkaNode
from tests.support.outside_tools import (
    Missing,
    axe_core,
    chromium,
    fetching,
    gssapi_package,
    javascript_clients,
    kcat,
)

ARCHIVE = "classes.jsa"


class _ArchivingNode(KafkaNode):
    """A node that writes the archive of the classes it loaded when it stops."""

    def start_command(self) -> list[str]:
        assert self.jars is not None
        command = archiving_java_command(self.jars, self.directory / ARCHIVE, "-Xmx768M")
        return [*command, "kafka.Kafka", str(self.properties_path)]


def archived_classes() -> Path | Missing:
    """The archive that lets Kafka's JVMs start quickly; old ones are deleted."""
    jars = kafka_jars_or_reason()
    if isinstance(jars, Missing):
        return jars
    archive = class_archive(jars)
    with fetching(archive):
        return archive if archive.exists() else _archive(jars, archive)


def _archive(jars: Path, archive: Path) -> Path | Missing:
    for old in archive.parent.glob("classes-*.jsa"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        try:
            with _ArchivingNode(Path(folder), jars=jars) as node:
                node.stop(seconds=120)
            (Path(folder) / ARCHIVE).rename(archive)
        except (AssertionError, OSError) as error:
            return Missing(f"Java wrote none: {error}")
    return archive


def compiled_programs() -> Path | Missing:
    """The jar of the tests' own Java programs."""
    jars = kafka_jars_or_reason()
    return jars if isinstance(jars, Missing) else compiled(jars)


def main() -> None:
    """Fetch, and say what there is."""
    wanted = {
        "Apache Kafka": kafka_jars_or_reason,
        "Kafka Streams and Connect": kafka_applications_jars_or_reason,
        "Apache Kafka 3.9 and ZooKeeper": kafka_3_9_jars_or_reason,
        "JavaScript clients": javascript_clients,
        "kcat": kcat,
        "Chromium": chromium,
        "axe-core": axe_core,
        "Kerberos and the package gssapi": gssapi_package,
        "archive of Kafka's classes": archived_classes,
        "programs that run Kafka's classes": compiled_programs,
    }
    for name, find in wanted.items():
        found = find()
        print(f"{name}: {f'not here, {found.reason}' if isinstance(found, Missing) else 'ready'}")


if __name__ == "__main__":
    main()

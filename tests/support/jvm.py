"""The commands that start Java: most JVMs of the tests run for seconds, so start-up is what counts.

They compile with C1 only and map an archive of Kafka's loaded classes (class data sharing), which
`tests.support.prefetch` makes once. A Kafka node then takes a third of the CPU time until it
listens. Without the archive, or with one that does not fit, Java starts as ever.
"""

import hashlib
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""Compile with C1 only: less CPU time for whatever runs for less than a minute."""

_QUICK = [QUICK_JAVA, "-XX:+UseSerialGC", "-Xshare:auto"]


def java() -> str | None:
    """The java command, if there is one."""
    return shutil.which("java")


def java_command(jars: Path, *flags: str, beside: Sequence[Path] = ()) -> list[str]:
    """`java` with Kafka's jars and what is `beside` them as its classpath; a main class follows.

    A path of `beside` may end in `*`, for all jars of a folder.
    """
    archive = f"-XX:SharedArchiveFile={class_archive(jars)}"
    classpath = ":".join(map(str, [jars / "*", *beside]))
    return ["java", *flags, *_QUICK, archive, "-cp", classpath]


def archiving_java_command(jars: Path, archive: Path, *flags: str) -> list[str]:
    """As `java_command`, of a process that writes its loaded classes to `archive` when it ends."""
    return ["java", *flags, *_QUICK, f"-XX:ArchiveClassesAtExit={archive}", "-cp", f"{jars}/*"]


@cache
def class_archive(jars: Path) -> Path:
    """Where the archive of this Java and these jars is, or is to be."""
    total = hashlib.sha256()
    found = java()
    home = Path(found).resolve().parents[1] if found else Path()
    for path in [home / "release", home / "lib" / "modules", *sorted(jars.glob("*.jar"))]:
        if path.exists():
            status = path.stat()
            total.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return jars.parent / f"classes-{total.hexdigest()[:16]}.jsa"

"""Other people's tools are fetched once, however many test processes want them at the same time."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAVEN = """#!/bin/sh
for word; do case $word in -DoutputDirectory=*) out=${word#*=} ;; esac; done
echo run >> "$COUNTED"
mkdir -p "$out" && sleep 0.3 && touch "$out/one.jar" && sleep 0.3 && touch "$out/two.jar"
"""
WANTED = """
import sys
from pathlib import Path
from tests.support.kafka_jars import _jars_or_reason
pom, libs = map(Path, sys.argv[1:])
found = _jars_or_reason("Apache Kafka", pom, libs)
print(*sorted(jar.name for jar in found.glob("*.jar")))
"""


def test_two_that_want_the_same_jars_get_them_of_one_fetch(tmp_path: Path) -> None:
    for tool, text in (("mvn", MAVEN), ("java", "#!/bin/sh\n")):
        (tmp_path / tool).write_text(text)
        (tmp_path / tool).chmod(0o755)
    pom = tmp_path / "pom.xml"
    pom.write_text("<project/>")
    env = os.environ | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "COUNTED": str(tmp_path / "runs"),
    }
    command = [sys.executable, "-c", WANTED, str(pom), str(tmp_path / "kafka" / "libs")]
    both = [
        subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate()[0].split() for process in both] == [["one.jar", "two.jar"]] * 2
    assert (tmp_path / "runs").read_text().split() == ["run"]

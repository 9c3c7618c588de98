"""The files in deploy/: linters accept them, and the containers' start script makes a cluster."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from sparkraft.metadata.configs import BROKER_CONFIGS
from sparkraft.server.config import OWN_CONFIGS
from tests.support.ports import wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
SECONDS_MAX = 120
SERVICE_KEYS = {
    "build", "environment", "hostname", "image", "ports", "restart", "stop_grace_period",
    "ulimits", "volumes",
}  # fmt: skip
"""Those of the Compose Specification that the file uses."""


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{BIN}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


def test_hadolint_accepts_the_containerfile():
    done = subprocess.run(
        [tool("hadolint"), DEPLOY / "Containerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.long
def test_a_builder_builds_an_image_that_runs():
    """Skipped on a machine without a builder, or that cannot reach the base images."""
    builders = [found for name in ("docker", "podman") if (found := shutil.which(name))]
    if not builders:
        pytest.skip("no docker or podman is installed: the image is not built")
    builder, image = builders[0], f"sparkraft-test-{os.getpid()}"
    bases = re.findall(r"^FROM (\S+)", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    for base in bases:
        pulled = subprocess.run(
            [builder, "pull", base], capture_output=True, text=True, check=False
        )
        if pulled.returncode:
            pytest.skip(f"{builder} cannot pull {base}: {pulled.stderr.strip()[-200:]}")
    command = [builder, "build", "-f", "deploy/Containerfile", "-t", image, "."]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    try:
        run = [builder, "run", "--rm", "--entrypoint", "sparkraft", image, "version"]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert re.match(r"\d+\.\d+", done.stdout)
    finally:
        subprocess.run([builder, "rmi", "--force", image], capture_output=True, check=False)


def test_systemd_accepts_the_unit(tmp_path: Path):
    unit = (DEPLOY / "sparkraft.service").read_text()
    path = tmp_path / "sparkraft.service"
    path.write_text(unit.replace("/opt/sparkraft/bin/sparkraft", sys.executable))
    done = subprocess.run(
        [tool("systemd-analyze"), "verify", path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_image_copies_files_that_exist():
    text = (DEPLOY / "Containerfile").read_text()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source


def test_the_compose_file_is_a_cluster_of_three():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    assert all(service.keys() <= SERVICE_KEYS for service in services.values())
    voters = {f"{s['environment']['NODE_ID']}@{s['hostname']}:9093" for s in services.values()}
    assert len(voters) == 3
    for service in services.values():
        assert set(service["environment"]["VOTERS"].split(",")) == voters
        (port,) = service["ports"]
        address, published, inside = port.split(":")
        assert (address, inside) == ("127.0.0.1", "9094")
        assert service["environment"]["EXTERNAL"] == f"localhost:{published}"
        (volume,) = service["volumes"]
        assert volume.partition(":")[0] in compose["volumes"]
        assert (DEPLOY / service["build"]["context"] / "deploy" / "Containerfile").is_file()


def test_the_start_script_uses_known_configs():
    text = (DEPLOY / "entrypoint.sh").read_text()
    (config,) = re.findall(r"<<EOF\n(.*?)\nEOF", text, re.DOTALL)
    keys = {line.partition("=")[0] for line in config.splitlines()}
    assert keys <= BROKER_CONFIGS.keys() | OWN_CONFIGS.keys()


@contextmanager
def cluster(directory: Path) -> Iterator[list[str]]:
    """Three nodes by the start script, on loopback addresses of their own; these addresses."""
    network = f"127.{random.randint(64, 254)}.{random.randint(1, 254)}"
    hosts = [f"{network}.{number}" for number in (1, 2, 3)]
    voters = ",".join(f"{number}@{host}:9093" for number, host in enumerate(hosts, 1))
    processes = []
    try:
        for number, host in enumerate(hosts, 1):
            settings = {
                "CLUSTER_ID": "q1Sh-9_ISia_zwGINzRvyQ",
                "NODE_ID": str(number),
                "HOST": host,
                "VOTERS": voters,
                "EXTERNAL": f"{host}:9094",
                "LISTEN": host,
                "HTTP": f"{host}:9644",
                "DATA": str(directory / str(number)),
                "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            }
            with (directory / f"{number}.out").open("w") as output:
                processes.append(
                    subprocess.Popen(
                        [DEPLOY / "entrypoint.sh", "--override", "num.partitions=3"],
                        env={**os.environ, **settings},
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        yield hosts
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(SECONDS_MAX)


def is_healthy(host: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{host}:9644/health", timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


@pytest.mark.real_clients
def test_the_start_script_makes_a_cluster(tmp_path: Path):
    with cluster(tmp_path) as hosts:
        wait_until(lambda: all(map(is_healthy, hosts)), seconds=SECONDS_MAX, what="three nodes")
        shown = subprocess.run(
            [
                sys.executable, "-m", "sparkraft.cli.main", "explain", "quorum",
                "--bootstrap-server", ",".join(f"{host}:9094" for host in hosts),
                "--output", "json",
            ],
            capture_output=True, text=True, check=True, timeout=SECONDS_MAX,
        )  # fmt: skip
        assert json.loads(shown.stdout)

"""The ten steps of docs/SECURITY.md, "From open to closed", with the text of the page.

The configs and commands are read from the page; only hosts, ports, paths and passwords are others.
`test_rolling_security.py` has the same restarts under load.
"""

import re
import shlex
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from sparkraft.cli import main as cli
from sparkraft.client.security import secured_connect
from sparkraft.security.login import Login
from sparkraft.security.secret import Secret
from sparkraft.server.properties import parse_properties
from tests.cluster.conftest import STEADY
from tests.support.certificates import Authority, pem_configs
from tests.support.clusters import Cluster, Member
from tests.support.ports import lasting_ports, wait_until
from tests.support.replicas import until_in_sync
from tests.support.sasl import SHA_512, client_properties

pytestmark = [pytest.mark.real_clients, pytest.mark.long]

PAGE = Path(__file__).parents[2] / "docs" / "SECURITY.md"
IDS = (1, 2, 3)
TOPIC = "orders"
PASSWORDS = {"admin": "of-admin", "alice": "of-alice", **{f"node-{n}": f"of-{n}" for n in IDS}}


class Runbook:
    """The section's configs and commands, for this cluster."""

    def __init__(self, folder: Path) -> None:
        section = re.search(
            r"\n## From open to closed in ten steps\n(.*?)\n## ", PAGE.read_text(), re.DOTALL
        )
        assert section is not None
        self.folder = folder
        self.text = section[1]
        members = [Member(node_id) for node_id in IDS]
        self.cluster = Cluster(folder, members, overrides={**STEADY, "min.insync.replicas": "2"})
        self.authority = Authority(folder / "authority")
        *secured, self.http_port = lasting_ports(len(IDS) + 1)
        self.secured = dict(zip(IDS, secured, strict=True))
        self.stores = {n: self.authority.issue(f"node-{n}") for n in IDS}
        self.cluster.nodes[1].overrides["sparkraft.http.listener"] = f"127.0.0.1:{self.http_port}"
        self.cluster.nodes[1].write_properties()

    def step(self, number: int) -> str:
        found = re.search(rf"^{number}\. (.*?)(?=^\d+\. |\Z)", self.text, re.DOTALL | re.MULTILINE)
        assert found is not None, number
        return found[1]

    def configs(self, number: int, node_id: int) -> dict[str, str]:
        """The properties of a step, for one node."""
        block = re.search(r"```properties\n(.*?)```", self.step(number), re.DOTALL)
        assert block is not None, number
        port, controller_port = self.cluster.nodes[node_id].port, self.cluster.ports[node_id][1]
        text = block[1]
        for old, new in {
            "kafka1.example:9092": f"127.0.0.1:{port}",
            "kafka1.example:9093": f"127.0.0.1:{self.secured[node_id]}",
            "kafka1.example:9094": f"127.0.0.1:{controller_port}",
            "/etc/sparkraft/node-1.pem": str(self.stores[node_id]),
            "/etc/sparkraft/ca.pem": str(self.authority.ca_path),
            '"node-1"': f'"node-{node_id}"',
            '"N"': f'"{PASSWORDS[f"node-{node_id}"]}"',
        }.items():
            text = text.replace(old, new)
        found = parse_properties(text)
        if "listeners" in found:
            found["advertised.listeners"] = found["listeners"]
        return found

    def command(self, number: int) -> list[str]:
        """The command of a step, in the text or in a block."""
        text = self.step(number)
        inline = re.search(r"`sparkraft ([^`]*)`", text)
        block = re.search(r"^ +sparkraft (.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
        found = inline or block
        assert found is not None, number
        words = found[1].replace("\\\n", " ")
        for old, new in {
            "kafka1.example:9092": f"127.0.0.1:{self.cluster.nodes[1].port}",
            "kafka1.example:9093": f"127.0.0.1:{self.secured[1]}",
            "admin.properties": self.properties("admin"),
        }.items():
            words = words.replace(old, new)
        return shlex.split(words)

    def properties(self, user: str) -> str:
        path = self.folder / f"{user}.properties"
        if not path.exists():
            path.write_text(
                client_properties(user, PASSWORDS[user], SHA_512, ca=self.authority.ca_path)
            )
        return str(path)

    def restart(self, node_id: int, configs: dict[str, str], remove: str = "") -> None:
        until_in_sync(self.cluster, TOPIC, len(IDS), len(IDS))
        node = self.cluster.nodes[node_id]
        self.cluster.stop(node_id)
        node.overrides |= configs
        node.overrides.pop(remove, None)
        node.write_properties()
        self.cluster.start([node_id])

    def restart_each(self, step: int) -> None:
        for node_id in IDS:
            self.restart(node_id, self.configs(step, node_id))

    def use_secured_listeners(self) -> None:
        """For the requests of this test."""
        cluster = self.cluster
        cluster.login = Login(SHA_512, "admin", Secret(PASSWORDS["admin"]))
        trusting = pem_configs(None, self.authority.ca_path)
        cluster.connect = secured_connect({"security.protocol": "SASL_SSL"} | trusting)
        cluster.ports = {n: (self.secured[n], cluster.ports[n][1]) for n in IDS}


def without_plaintext(runbook: Runbook, node_id: int) -> dict[str, str]:
    """The listeners of a node without the first."""
    overrides = runbook.cluster.nodes[node_id].overrides
    found = {key: overrides[key].partition(",")[2] for key in ("listeners", "advertised.listeners")}
    assert not any("PLAINTEXT" in value for value in found.values())
    return found


def run(capsys: Any, *argv: str) -> tuple[int, str]:
    capsys.readouterr()
    code = cli.main(list(argv))
    said = capsys.readouterr()
    return code, said.out + said.err


def test_a_cluster_is_closed_by_the_steps_of_the_page(tmp_path: Path, capsys: Any) -> None:
    runbook = Runbook(tmp_path)
    with runbook.cluster as cluster:
        cluster.create_topic(TOPIC, partitions=len(IDS), replicas=len(IDS))
        perf = ["producer-perf-test", "--topic", TOPIC, "--num-records", "300"]
        perf += ["--record-size", "9", "--throughput", "-1", "--bootstrap-server"]
        assert run(capsys, *perf, cluster.bootstrap)[0] == 0
        adding = shlex.join(runbook.command(2))
        for name, password in PASSWORDS.items():
            words = adding.replace("admin", name).replace("password=A", f"password={password}")
            assert run(capsys, *shlex.split(words))[0] == 0
        runbook.restart_each(3)
        code, said = run(capsys, *runbook.command(5))
        assert (code, said.split()) == (0, [TOPIC]), said
        change = re.search(r"`(inter[\w.]+)=(\w+)`", runbook.step(6))
        assert change is not None
        for node_id in IDS:
            runbook.restart(node_id, {change[1]: change[2]})
        runbook.use_secured_listeners()
        cluster.stop()
        for node_id, node in cluster.nodes.items():
            node.overrides |= runbook.configs(7, node_id)
            node.write_properties()
        cluster.start()
        runbook.restart_each(8)
        assert run(capsys, *runbook.command(8))[0] == 0
        opening = "allow.everyone.if.no.acl.found"
        assert opening in runbook.step(9)
        for node_id in IDS:
            cluster.nodes[node_id].port = runbook.secured[node_id]
            runbook.restart(node_id, without_plaintext(runbook, node_id), remove=opening)
        it_is_closed(runbook, capsys)


def it_is_closed(runbook: Runbook, capsys: Any) -> None:
    """Step 10, and alice reads what was written while everyone might."""
    to = ["--bootstrap-server", runbook.cluster.bootstrap]
    as_alice = [*to, "--command-config", runbook.properties("alice")]
    assert run(capsys, "topics", *to, "--list")[0] == 1
    code, said = run(capsys, "topics", *as_alice, "--create", "--topic", "another")
    assert (code, "TOPIC_AUTHORIZATION_FAILED" in said) == (1, True), said
    read = ["console-consumer", *as_alice, "--topic", TOPIC, "--group", "alice-readers"]
    code, said = run(capsys, *read, "--from-beginning", "--max-messages", "300")
    assert code == 0, said
    logs = "".join(node.output_path.read_text() for node in runbook.cluster.nodes.values())
    assert "Principal = User:alice is Denied" in logs
    assert not any(password in logs for password in PASSWORDS.values())
    the_password_of_admin_is_set_by_a_node(runbook, capsys, to)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"http://127.0.0.1:{runbook.http_port}/metrics", timeout=60)


def the_password_of_admin_is_set_by_a_node(runbook: Runbook, capsys: Any, to: list[str]) -> None:
    """As the section "Lost admin" says: nodes are super users."""
    as_node = [*to, "--command-config", runbook.properties("node-1")]
    change = ["--entity-type", "users", "--entity-name", "admin", "--alter", "--add-config"]
    code, said = run(capsys, "configs", *as_node, *change, f"{SHA_512}=[password=another]")
    assert code == 0, said
    admin = runbook.folder / "admin-again.properties"
    text = client_properties("admin", "another", SHA_512, ca=runbook.authority.ca_path)
    admin.write_text(text)
    listing = ["topics", *to, "--command-config", str(admin), "--list"]
    wait_until(lambda: run(capsys, *listing)[0] == 0, "admin logs in with the new password")

"""What a node can't start with: each a plain sentence and a code above 0, nothing else changed."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.kerberos import module as kerberos_module
from tests.support.nodes import SparkraftNode, with_limits
from tests.support.ports import wait_until
from tests.support.sasl import PLAIN_MODULE, sasl_node

pytestmark = pytest.mark.real_clients


@pytest.fixture
def node(tmp_path: Path) -> SparkraftNode:
    """A formatted node that is not started."""
    made = SparkraftNode(tmp_path / "node")
    made.format()
    return made


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def sentence(said: str) -> str:
    """The one line that says why."""
    lines = [line for line in said.splitlines() if "INFO" not in line and "WARNING" not in line]
    assert len(lines) == 1, said
    return lines[0]


def test_a_second_node_on_a_directory_is_turned_away_and_the_first_lives(
    node: SparkraftNode, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    with node:
        second = SparkraftNode(tmp_path / "second", overrides={"log.dirs": str(node.log_dir)})
        said = sentence(second.refused_start())
        assert f"another process holds {node.log_dir}/.lock" in said
        producer = Producer({"bootstrap.servers": node.bootstrap})
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
        assert node.stop() == 0


def test_a_taken_port_is_named(node: SparkraftNode, tmp_path: Path) -> None:
    with node:
        second = SparkraftNode(tmp_path / "second")
        second.port = node.port
        second.write_properties()
        second.format()
        assert str(node.port) in sentence(second.refused_start())


def may_write_nothing(node: SparkraftNode) -> None:
    """Let permissions count for the node's process even where root runs it."""
    if os.geteuid() != 0:
        return
    if not shutil.which("setpriv"):
        pytest.skip("root may write everywhere, and there is no setpriv to change that")
    node.prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]


def test_an_unwritable_directory_is_named(node: SparkraftNode) -> None:
    may_write_nothing(node)
    node.log_dir.chmod(0o555)
    said = sentence(node.refused_start())
    assert str(node.log_dir) in said
    assert "Permission denied" in said
    node.log_dir.chmod(0o755)
    node.start()
    assert node.stop() == 0


def test_one_unwritable_directory_of_two_goes_offline(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    node = SparkraftNode(tmp_path, overrides={"log.dirs": f"{good},{bad}"})
    node.format()
    may_write_nothing(node)
    bad.chmod(0o555)
    with node:
        said = node.output_path.read_text()
        assert f"A log directory is offline: open in {bad}" in said
        assert "Traceback" not in said
        assert node.stop() == 0
    bad.chmod(0o755)


def test_a_file_where_the_directory_should_be_is_named(tmp_path: Path) -> None:
    node = SparkraftNode(tmp_path)
    node.log_dir.write_text("")
    assert str(node.log_dir) in sentence(node.refused_start())


def test_an_unformatted_directory_says_what_to_do(tmp_path: Path) -> None:
    said = sentence(SparkraftNode(tmp_path).refused_start())
    assert "is not formatted; run `sparkraft storage format`" in said


def test_the_directory_of_another_node_is_left_alone(node: SparkraftNode) -> None:
    edit(node.log_dir / "meta.properties", "node.id=1", "node.id=7")
    assert "belongs to node 7, but this is node 1" in sentence(node.refused_start())


def test_a_directory_of_another_cluster_is_left_alone(node: SparkraftNode, tmp_path: Path) -> None:
    foreign = SparkraftNode(tmp_path / "foreign")
    foreign.format()
    other = "L3vqrRfFSKCVFCNyvqWGcA"
    properties = foreign.log_dir / "meta.properties"
    text = properties.read_text()
    cluster_id = next(line for line in text.splitlines() if line.startswith("cluster.id="))
    properties.write_text(text.replace(cluster_id, f"cluster.id={other}"))
    node.overrides["log.dirs"] = f"{node.log_dir},{foreign.log_dir}"
    node.write_properties()
    said = sentence(node.refused_start())
    assert f"belongs to cluster {other}" in said
    assert str(foreign.log_dir) in said


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("meta.properties", "version=1\nnode.id=one\n", "meta.properties"),
        ("__cluster_metadata-0/quorum-state", "{", "quorum-state is damaged"),
        ("bootstrap.checkpoint", "short", "bootstrap.checkpoint"),
    ],
)
def test_a_damaged_file_is_named(name: str, content: str, said: str, node: SparkraftNode) -> None:
    (node.log_dir / name).write_text(content)
    line = sentence(node.refused_start())
    assert said in line
    assert str(node.log_dir) in line


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    often = {"metadata.log.max.record.bytes.between.snapshots": "100"}
    with SparkraftNode(tmp_path, overrides=often) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        snapshots = node.log_dir / "__cluster_metadata-0"
        wait_until(lambda: any(snapshots.glob("*-*.checkpoint")), "there is a snapshot")
        assert node.stop() == 0
        newest = max(snapshots.glob("*-*.checkpoint"))
        data = bytearray(newest.read_bytes())
        data[len(data) // 2] ^= 1
        newest.write_bytes(data)
        assert newest.name in sentence(node.refused_start())


def test_too_few_files_are_named(node: SparkraftNode) -> None:
    node.prefix = with_limits("ulimit -n 64")
    said = sentence(node.refused_start())
    assert "may open only 64 files (ulimit -n)" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"process.roles=broker\nnode.id=\\u00zz\n", "line 2: malformed \\u escape"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"", "process.roles is missing"),
        (
            b"zookeeper.connect=127.0.0.1:2181\nlog.dirs=/d\nzookeeper.set.acl=true\n",
            "zookeeper.set.acl=true needs a user",
        ),
        (None, "No such file"),
    ],
    ids=["escape", "not text", "empty", "zookeeper", "missing"],
)
def test_a_properties_file_that_makes_no_sense_is_named(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    node = SparkraftNode(tmp_path)
    node.properties_path.unlink()
    if content is not None:
        node.properties_path.write_bytes(content)
    line = sentence(node.refused_start())
    assert said in line
    assert str(node.properties_path) in line


def test_an_unknown_key_is_said_and_ignored(node: SparkraftNode) -> None:
    node.overrides["num.partitons"] = "3"
    node.write_properties()
    with node:
        said = node.output_path.read_text()
        assert "Unknown config num.partitons is ignored" in said
        assert node.stop() == 0


SAFETY_KEYS = {
    "authorizer.class.name": "org.example.Authorizer",
    "listener.security.protocol.map": "PLAINTEXT:TLS,CONTROLLER:PLAINTEXT",
    "principal.builder.class": "org.example.Builder",
    "security.providers": "org.example.Creator",
    "create.topic.policy.class.name": "org.example.Policy",
    "alter.config.policy.class.name": "org.example.Policy",
    "client.quota.callback.class": "org.example.Quota",
    "replica.selector.class": "org.example.Selector",
    "remote.log.storage.system.enable": "true",
    "config.providers": "file",
}
"""Keys that ask for safety which does not exist here yet, each with a value that asks for it."""


TLS_MISTAKES = {
    "no store": ({}, "listener PLAINTEXT: a TLS listener needs ssl.keystore.location"),
    "no such file": (
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/nowhere/node.pem"},
        "ssl.keystore.location=/nowhere/node.pem: No such file or directory",
    ),
    "no trust store": (
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/nowhere/node.pem",
            "ssl.client.auth": "required",
        },
        "ssl.client.auth=required needs ssl.truststore.location",
    ),
    "a password": (
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/nowhere/node.pem",
            "ssl.keystore.password": "s3cret",
        },
        "ssl.keystore.password cannot be used with type PEM",
    ),
}


@pytest.mark.parametrize("mistake", TLS_MISTAKES)
def test_a_tls_listener_that_cannot_be_served_is_named(mistake: str, tmp_path: Path) -> None:
    configs, said = TLS_MISTAKES[mistake]
    node = SparkraftNode(tmp_path)
    node.format()
    protocols = {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"}
    node.overrides |= protocols | configs
    node.write_properties()
    line = sentence(node.refused_start())
    assert said in line
    assert "s3cret" not in line


@pytest.mark.parametrize("key", SAFETY_KEYS)
def test_safety_that_does_not_exist_yet_is_not_pretended(key: str, tmp_path: Path) -> None:
    node = SparkraftNode(tmp_path, overrides={key: SAFETY_KEYS[key]})
    line = sentence(node.refused_start())
    assert "does not start rather than" in line
    assert "s3cret" not in line, "secrets are not shown"
    assert not node.log_dir.exists(), "nothing was touched"


PLAIN = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
GSSAPI = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
MAP = "SASL_PLAINTEXT:SASL_PLAINTEXT"
UNUSABLE_SASL = {
    "no mechanism": ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms is empty"),
    "an unknown mechanism": (
        {"sasl.enabled.mechanisms": "DIGEST-MD5"},
        "SASL mechanism DIGEST-MD5 is not implemented",
    ),
    "no key of Kerberos": (
        {"sasl.enabled.mechanisms": "GSSAPI"},
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config is missing",
    ),
    "a principal without a host": (
        {"sasl.enabled.mechanisms": "GSSAPI", GSSAPI: kerberos_module(Path("k"), "kafka")},
        "principal of a listener's login module must be service/host@REALM",
    ),
    "no users": ({PLAIN: None}, f"{PLAIN} is missing"),
    "a broken module": ({PLAIN: "x required a=s3cret"}, "does not end with a semicolon"),
    "another class": ({PLAIN: 'Jndi required a="s3cret";'}, "unknown login module"),
    "no credentials of its own": (
        {PLAIN: f'{PLAIN_MODULE} required user_a="s3cret";'},
        "needs the options username and password",
    ),
    "no mechanism between brokers": (
        {"sasl.mechanism.inter.broker.protocol": "GSSAPI"},
        "sasl.mechanism.inter.broker.protocol=GSSAPI is not in the sasl.enabled.mechanisms",
    ),
    "no users of controllers": (
        {
            "listener.security.protocol.map": f"{MAP},CONTROLLER:SASL_PLAINTEXT",
            "sasl.mechanism.controller.protocol": "PLAIN",
        },
        "listener.name.controller.plain.sasl.jaas.config is missing",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE_SASL)
def test_sasl_that_cannot_work_is_named(name: str, tmp_path: Path) -> None:
    changes, said = UNUSABLE_SASL[name]
    node = sasl_node(tmp_path)
    for key, value in changes.items():
        node.overrides.pop(key, None)
        if value is not None:
            node.overrides[key] = value
    node.write_properties()
    line = sentence(node.refused_start())
    assert said in line
    assert "s3cret" not in line
    assert not node.log_dir.exists(), "nothing was touched"

"""What a configuration may say, and what stops the start."""

import pytest

from sparkraft.security.protocols import SecurityProtocol
from sparkraft.server import limits
from sparkraft.server.config import ConfigError, NodeConfig, cordoned, describe
from sparkraft.server.properties import parse_properties
from sparkraft.server.tls_config import check_tls, tls_settings_of

BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data/a,/data/b",
}


def test_properties_are_read_as_java_reads_them():
    text = (
        "# comment\n! another\n  a = 1\nb:2\nc 3\nlong=one,\\\n   two\n"
        "esc\\=aped=\\u00e9\\t|\nempty=\nkey only\n\\#x=y\r\nlast=1\\"
    )
    assert parse_properties(text) == {
        "a": "1", "b": "2", "c": "3", "long": "one,two", "esc=aped": "é\t|", "empty": "",
        "key": "only", "#x": "y", "last": "1",
    }  # fmt: skip


def test_a_malformed_escape_names_its_line():
    with pytest.raises(ConfigError, match="line 2"):
        NodeConfig.from_text("a=1\nb=\\u00zz\n")


def test_roles_listeners_and_defaults():
    config = NodeConfig(BASE)
    assert (config.node_id, config.is_broker, config.is_controller) == (1, True, True)
    assert config.log_dirs == ("/data/a", "/data/b")
    assert config.metadata_log_dir == "/data/a"
    assert [a.name for a in config.broker_listeners] == ["PLAINTEXT"]
    assert [a.port for a in config.controller_listeners] == [9093]
    assert config["num.partitions"] == 1
    assert config.topic_defaults["retention.ms"] == 604_800_000
    assert config.unknown == []


def test_overrides_win_and_unknown_keys_are_listed():
    config = NodeConfig.from_text(
        "\n".join(f"{k}={v}" for k, v in BASE.items()) + "\nno.such.key=1\n",
        {"num.partitions": "4"},
    )
    assert config["num.partitions"] == 4
    assert config.unknown == ["no.such.key"]


def test_keys_without_effect_are_listed_and_those_that_code_reads_are_not():
    import re
    from pathlib import Path

    import sparkraft.server
    from sparkraft.server.config import _NOT_IMPLEMENTED, OWN_CONFIGS
    from sparkraft.server.supported_configs import SUPPORTED_CONFIGS
    from sparkraft.server.zookeeper_config import ZOOKEEPER_CONFIGS

    config = NodeConfig(BASE | {"num.io.threads": "8", "log.retention.hours": "5", "x.y": "z"})
    assert config.without_effect == ["num.io.threads"]
    folder = Path(sparkraft.server.__file__).parent
    read = set()
    for path in folder.rglob("*.py"):
        pattern = r"\.(?:number|text|flag|words)\(\s*\"([a-z.]+)\""
        read |= set(re.findall(pattern, path.read_text()))
    known = SUPPORTED_CONFIGS | set(OWN_CONFIGS) | set(_NOT_IMPLEMENTED) | set(ZOOKEEPER_CONFIGS)
    assert read - known == set()


def test_secrets_are_not_shown():
    config = NodeConfig(BASE | {"ssl.key.password": "sesame"})
    assert describe(config)["ssl.key.password"] == "[hidden]"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"node.id": "x"}, "node.id"),
        ({"process.roles": ""}, "process.roles"),
        ({"process.roles": "zookeeper"}, "process.roles"),
        ({"num.partitions": "0"}, "num.partitions"),
        ({"listeners": "PLAINTEXT:9092"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:1"}, "different name"),
        ({"listeners": "PLAINTEXT://:99999,CONTROLLER://:9093"}, "65535"),
        ({"listeners": "PLAINTEXT://:9092"}, "controller.listener.names"),
        (
            {"listeners": "SSL://:9092,CONTROLLER://:9093"},
            "listener CONTROLLER has no entry in listener.security.protocol.map",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:TLS,CONTROLLER:PLAINTEXT"},
            "listener PLAINTEXT requires TLS, but only PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "CONTROLLER"),
        ({"advertised.listeners": "OTHER://x:1"}, "OTHER"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "0.0.0.0"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name"),
        ({"authorizer.class.name": "org.apache.kafka.metadata.X"}, "StandardAuthorizer"),
        ({"remote.log.storage.system.enable": "true"}, "tiered"),
        ({"create.topic.policy.class.name": "X"}, "policy"),
        ({"controller.quorum.voters": ""}, "must be set"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "must be in"),
        ({"controller.quorum.voters": "localhost:9093"}, "id@host:port"),
        ({"broker.id": "2"}, "must be equal"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"broker.heartbeat.interval.ms": "5000"}, "half"),
        ({"sparkraft.record.validation": "maybe"}, "sparkraft.record.validation"),
    ],
)
def test_what_can_not_be_stops_the_start_with_a_sentence(changes, said):
    with pytest.raises(ConfigError) as caught:
        NodeConfig(BASE | changes)
    assert said in str(caught.value)


def test_a_key_set_to_what_is_done_anyway_is_fine():
    NodeConfig(
        BASE
        | {
            "authorizer.class.name": "",
            "remote.log.storage.system.enable": "FALSE",
            "security.inter.broker.protocol": "PLAINTEXT",
        }
    )


def test_roles_apart():
    broker = NodeConfig(
        BASE
        | {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": "PLAINTEXT://:9092",
        }
    )
    assert not broker.is_controller
    with pytest.raises(ConfigError, match="only a broker"):
        NodeConfig(BASE | {"process.roles": "broker", "node.id": "2"})
    controller = NodeConfig(
        BASE | {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}
    )
    assert not controller.is_broker
    with pytest.raises(ConfigError, match="only a controller"):
        NodeConfig(BASE | {"process.roles": "controller"})


TLS_STORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem"}


def test_a_controller_listener_named_after_a_protocol_has_that_protocol():
    """As Kafka's `effectiveListenerSecurityProtocolMap`; it used to be PLAINTEXT."""
    controller = BASE | {
        "process.roles": "controller",
        "controller.listener.names": "SSL",
        "listeners": "SSL://:9093",
    }
    with pytest.raises(ConfigError, match="a TLS listener needs"):
        check_tls(NodeConfig(controller))
    config = NodeConfig(controller | TLS_STORE)
    assert config.controller_listeners[0].security_protocol is SecurityProtocol.SSL
    assert NodeConfig(BASE).controller_listeners[0].security_protocol is SecurityProtocol.PLAINTEXT


def test_a_broker_checks_the_controllers_listener_that_it_does_not_bind():
    broker = BASE | {"process.roles": "broker", "node.id": "2", "listeners": "PLAINTEXT://:9092"}
    protocols = "listener.security.protocol.map"
    assert NodeConfig(broker).protocol_of("CONTROLLER") is SecurityProtocol.PLAINTEXT
    config = NodeConfig(broker | {protocols: "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"})
    assert config.protocol_of("CONTROLLER") is SecurityProtocol.SSL
    for given, said in [
        ({protocols: "PLAINTEXT:PLAINTEXT"}, "CONTROLLER has no entry"),
        ({protocols: "PLAINTEXT:PLAINTEXT,CONTROLLER:TLS"}, "requires TLS"),
        (
            {
                protocols: "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
                "listener.name.controller.ssl.truststore.password": "x",
            },
            "listener CONTROLLER: ssl.truststore.password",
        ),
    ]:
        with pytest.raises(ConfigError, match=said):
            check_tls(NodeConfig(broker | given))


def test_tls_of_a_listener_comes_from_its_prefix_first():
    config = NodeConfig(
        BASE
        | TLS_STORE
        | {
            "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
            "listener.name.controller.ssl.keystore.location": "/c.pem",
        }
    )
    stores = [tls_settings_of(config, name).key_store for name in ("PLAINTEXT", "CONTROLLER")]
    assert [store.location for store in stores if store] == ["/k.pem", "/c.pem"]


def test_listeners_share_what_the_process_may_open(monkeypatch):
    monkeypatch.setattr(limits, "raise_file_limit", lambda: 1024)
    most = limits.connections_max(2**31 - 1, listeners=1)
    assert 500 < most < 1024 - 256
    assert limits.connections_max(2**31 - 1, listeners=2) * 2 <= most
    assert limits.connections_max(10, listeners=2) == 10


def test_cordoned_directories_are_log_directories_or_all_of_them():
    assert cordoned([], ["/a", "/b"]) == frozenset()
    assert cordoned(["/b"], ["/a", "/b"]) == {"/b"}
    assert cordoned(["*"], ["/a", "/b"]) == {"/a", "/b"}
    with pytest.raises(ConfigError, match="not in log"):
        cordoned(["/a", "/c"], ["/a", "/b"])
    with pytest.raises(ConfigError, match="and other values"):
        cordoned(["*", "/a"], ["/a", "/b"])

"""The line at a node's start about its listeners and their clients."""

import logging
from pathlib import Path

import pytest

from sparkraft.security.standard_authorizer import CLASS_NAME
from sparkraft.server.config import NodeConfig
from sparkraft.server.openness import is_local, openness
from tests.server.harness import node_in, run
from tests.support.certificates import Authority, pem_configs

PORTS = {"CLIENTS": 9092, "INSIDE": 9093, "CONTROLLER": 9094}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    return pem_configs(authority.issue("node"), authority.ca_path)


def line(given: dict[str, str], *, http: tuple[str, int] | None = None, **more: str) -> str:
    """Of a node with three listeners; underscores in names stand for dots."""
    config = NodeConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@127.0.0.1:9094",
            "listeners": "CLIENTS://:9092,INSIDE://[::1]:9093,CONTROLLER://127.0.0.1:9094",
            "advertised.listeners": "CLIENTS://localhost:9092,INSIDE://[::1]:9093",
            "inter.broker.listener.name": "INSIDE",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/none",
            **given,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )
    return openness(config, PORTS, http)


def test_an_open_node():
    protocols = {
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
    }
    assert line(protocols, http=("127.0.0.1", 9644)) == (
        "Open to: everyone at CLIENTS *:9092, not encrypted; "
        "everyone on this machine at INSIDE [::1]:9093, not encrypted; "
        "everyone on this machine at CONTROLLER 127.0.0.1:9094, not encrypted; "
        "everyone on this machine at http 127.0.0.1:9644. "
        "Without authorizer.class.name, each of them may do everything"
    )


def test_a_secured_node(stores: dict[str, str]):
    configs = stores | {
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,INSIDE:SSL,CONTROLLER:SSL",
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.controller.ssl.client.auth": "required",
        "listener.name.inside.ssl.client.auth": "requested",
        "sparkraft.http.listener": "https://0.0.0.0:9644",
        "listener.name.http.ssl.client.auth": "required",
        "authorizer.class.name": CLASS_NAME,
        "super.users": "User:admin;User:node",
    }
    assert line(configs, http=("0.0.0.0", 9644)) == (
        "Open to: users of PLAIN, SCRAM-SHA-512 at CLIENTS *:9092; "
        "everyone on this machine at INSIDE [::1]:9093; "
        "holders of a trusted certificate on this machine at CONTROLLER 127.0.0.1:9094; "
        "holders of a trusted certificate at https 0.0.0.0:9644. "
        "ACLs by StandardAuthorizer, with 2 super users"
    )
    assert line(configs, allow_everyone_if_no_acl_found="true").endswith(
        "; allow.everyone.if.no.acl.found: resources without an entry are open to everyone"
    )


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("", False), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("kafka1.example", False)],
)  # fmt: skip
def test_addresses_of_this_machine(host: str, local: bool):
    assert is_local(host) is local


def test_a_node_logs_it(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def test() -> None:
        async with node_in(tmp_path, **{"sparkraft.http.listener": "127.0.0.1:0"}) as node:
            assert node._http is not None
            (said,) = [line for line in caplog.messages if line.startswith("Open to: ")]
            assert f"at PLAINTEXT 127.0.0.1:{node.ports['PLAINTEXT']}, not encrypted" in said
            assert f"at http 127.0.0.1:{node._http.port}. " in said

    with caplog.at_level(logging.INFO):
        run(test())

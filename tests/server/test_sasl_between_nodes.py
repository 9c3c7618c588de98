"""Three nodes that authenticate each other, on broker and controller listeners."""

import asyncio
import logging
import time
from pathlib import Path

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.scram_admin import NewCredential, ScramAdmin
from sparkraft.client.security import secured_connect
from sparkraft.client.token_endpoint import TokenEndpoint, TokenEndpointLogin
from sparkraft.client.token_requests import SecretRequest
from sparkraft.client.values import NewTopic
from sparkraft.security.login import Login
from sparkraft.security.scram import SHA_256
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import CLASS_NAME
from sparkraft.server.config import ALLOWED_URLS, ConfigError, NodeConfig
from sparkraft.server.node import Node
from tests.server.harness import make_env, run, until
from tests.server.test_three_nodes_in_one_loop import IDS, Nodes
from tests.support.access_tokens import AUDIENCE, ISSUER, Issuer, key_set
from tests.support.certificates import Authority, pem_configs
from tests.support.sasl import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from tests.support.token_endpoint import TokenServer

PASSWORD = "between-nodes-9135"
PLAIN_USERS = f'{PLAIN_MODULE} required username="node" password="{PASSWORD}" '
SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN_USERS} user_node="{PASSWORD}";',
    "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN_USERS} user_node="{PASSWORD}";',
    "authorizer.class.name": CLASS_NAME,
    "super.users": "User:node",
}
"""Only `User:node` may do anything, so what works is authenticated."""


def login(mechanism: str = "PLAIN") -> Login:
    return Login(mechanism, "node", Secret(PASSWORD))


def nodes_of(path: Path, **changes: str | None) -> Nodes:
    nodes = Nodes(path)
    for config in nodes.configs.values():
        config.update(SECURED)
        for name, value in changes.items():
            config.pop(name, None)
            if value is not None:
                config[name] = value
    return nodes


async def replicated(client: Cluster, topic: str) -> None:
    """A record that all three replicas must have before it is acknowledged."""
    new = NewTopic(name=topic, assignment={0: [1, 2, 3]}, configs={"min.insync.replicas": "3"})
    (outcome,) = (await Admin(client).create_topics([new])).values()
    assert not isinstance(outcome, KafkaError), outcome
    async with Producer(client, ProducerSettings(acks=-1)) as producer:
        await producer.send(topic, b"value", partition=0)


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_all_connections_of_three_nodes_are_authenticated(tmp_path, protocol):
    configs = {"listener.security.protocol.map": f"PLAINTEXT:{protocol},CONTROLLER:{protocol}"}
    connect = None
    if protocol == "SASL_SSL":
        authority = Authority(tmp_path / "authority")
        configs |= pem_configs(authority.issue("node"), authority.ca_path)
        connect = secured_connect(
            {"security.protocol": protocol} | pem_configs(None, authority.ca_path)
        )

    async def test():
        nodes = nodes_of(tmp_path, **configs)
        try:
            await nodes.start(*IDS)
            async with Cluster(nodes.bootstrap, login=login(), connect=connect) as client:
                await replicated(client, "first")
                active = next(n for n in IDS if nodes.running[n].raft.is_leader)
                await nodes.stop(active)
                await nodes.start(active)
                await replicated(client, "second")
        finally:
            await nodes.stop(*nodes.running)

    run(test())


def test_brokers_authenticate_each_other_by_scram(tmp_path):
    """The user is created once the quorum works; until then followers are refused and retry."""
    scram = f'{SCRAM_MODULE} required username="node" password="{PASSWORD}";'
    changes = {
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": scram,
    }

    async def test():
        nodes = nodes_of(tmp_path, **changes)
        try:
            await nodes.start(*IDS)
            async with Cluster(nodes.bootstrap, login=login()) as client:
                await ScramAdmin(client).alter(
                    "node", add=[NewCredential(SHA_256, Secret(PASSWORD))]
                )
                await replicated(client, "by-scram")
            async with Cluster(nodes.bootstrap, login=login("SCRAM-SHA-256")) as client:
                await client.any_connection()
        finally:
            await nodes.stop(*nodes.running)

    run(test())


def bearer_configs(keys: Path, url: str) -> dict[str, str]:
    """Nodes with the account `node` of a token endpoint."""
    module = f'{OAUTH_MODULE} required clientId="node" clientSecret="{PASSWORD}";'
    keys_url = f"file://{keys}"
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": module,
        "listener.name.controller.oauthbearer.sasl.jaas.config": module,
        "sasl.oauthbearer.jwks.endpoint.url": keys_url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.token.endpoint.url": url,
        ALLOWED_URLS: f"{keys_url},{url}",
    }


def test_nodes_authenticate_each_other_by_access_tokens(tmp_path, caplog):
    """At brokers and controllers, and again while tokens expire."""
    issuer = Issuer()
    (tmp_path / "keys.json").write_text(key_set(issuer.entry()))

    async def test(server: TokenServer) -> None:
        nodes = nodes_of(tmp_path, **bearer_configs(tmp_path / "keys.json", server.url))
        server.claims = lambda: {"exp": int(time.time()) + 5}
        try:
            await nodes.start(*IDS)
            request = SecretRequest(client_id="node", client_secret=Secret(PASSWORD))
            account = TokenEndpoint(url=server.url, request=request)
            async with Cluster(nodes.bootstrap, login=TokenEndpointLogin(account)) as client:
                await replicated(client, "first")
                before = server.seen
                await until(lambda: server.seen >= before + 2)
                await replicated(client, "second")
        finally:
            await nodes.stop(*nodes.running)

    with TokenServer(issuer, {"node": PASSWORD}) as server, caplog.at_level(logging.DEBUG):
        run(test(server))
        assert len(server.requests) == server.seen
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({ALLOWED_URLS: "file://KEYS"}, f"token.endpoint.url is not in {ALLOWED_URLS}"),
        ({"sasl.oauthbearer.token.endpoint.url": None}, "OAUTHBEARER needs sasl.oauthbearer.token"),
        (
            {"listener.name.controller.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required;"},
            "needs sasl.oauthbearer.client.credentials.client.id",
        ),
    ],
)
def test_token_endpoints_that_cannot_be_used_stop_the_start(tmp_path, changes, message):
    keys = tmp_path / "keys.json"
    keys.write_text(key_set(Issuer().entry()))
    configs: dict[str, str | None] = {**bearer_configs(keys, "http://127.0.0.1:1/"), **changes}
    if changes.get(ALLOWED_URLS):
        configs[ALLOWED_URLS] = f"file://{keys}"
    config = nodes_of(tmp_path, **configs).configs[1]
    with pytest.raises(ConfigError, match=message) as caught:
        Node(NodeConfig(config), make_env())
    assert PASSWORD not in str(caught.value)


def test_a_node_joins_only_with_the_right_password(tmp_path, caplog):
    async def test():
        nodes = nodes_of(tmp_path)
        right = dict(nodes.configs[3])
        wrong = PLAIN_USERS.replace(PASSWORD, "another-7733")
        key = "listener.name.controller.plain.sasl.jaas.config"
        stranger = Node(NodeConfig(right | {key: f'{wrong} user_node="{PASSWORD}";'}), make_env())
        start = asyncio.get_running_loop().create_task(stranger.start())
        try:
            await nodes.start(1, 2)
            await until(lambda: "Authentication at quorum node 1 failed" in caplog.text)
            image = nodes.running[1].broker.image
            assert {1, 2} <= set(image.brokers)
            assert 3 not in image.brokers
            assert not start.done()
            start.cancel()
            await stranger.stop()
            await nodes.start(3)
        finally:
            await nodes.stop(*nodes.running)

    with caplog.at_level(logging.DEBUG):
        run(test())
    assert "Invalid username or password" in caplog.text
    assert caplog.text.count("Authentication at quorum node 1 failed") == 1
    for password in (PASSWORD, "another-7733"):
        assert password not in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"sasl.mechanism.controller.protocol": "SCRAM-SHA-256"},
            "is not in the sasl.enabled.mechanisms of listener CONTROLLER",
        ),
        (
            {
                "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "listener.name.controller.scram-sha-256.sasl.jaas.config": (
                    f'{SCRAM_MODULE} required username="node" password="{PASSWORD}";'
                ),
            },
            "controllers cannot authenticate each other by SCRAM",
        ),
        (
            {"listener.name.controller.plain.sasl.jaas.config": None},
            "listener.name.controller.plain.sasl.jaas.config is missing",
        ),
        ({"super.users": "User:other"}, "super.users must contain User:node"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(tmp_path, changes, message):
    async def test():
        node = Node(NodeConfig(config), make_env())
        try:
            await node.start()
        finally:
            await node.stop()

    config = nodes_of(tmp_path, **changes).configs[1]
    with pytest.raises(ConfigError, match=message):
        run(test())


def test_a_node_that_is_only_a_broker_needs_credentials_for_the_controllers(tmp_path):
    config = nodes_of(tmp_path).configs[1]
    config |= {
        "process.roles": "broker",
        "node.id": "4",
        "listeners": config["listeners"].partition(",")[0],
    }
    del config["listener.name.controller.plain.sasl.jaas.config"]
    with pytest.raises(ConfigError, match=r"controller\.plain\.sasl\.jaas\.config is missing"):
        Node(NodeConfig(config), make_env())

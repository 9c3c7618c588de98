"""Three nodes that know each other by certificates only, on all listeners, with access control."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.security import secured_connect
from sparkraft.client.values import NewTopic
from sparkraft.server.node import Node
from sparkraft.tls.stream import TlsFailedError
from tests.server.harness import run, until
from tests.server.test_three_nodes_in_one_loop import IDS, Nodes
from tests.support.certificates import Authority, pem_configs

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def secured(nodes: Nodes, authority: Authority) -> None:
    """Require client certificates on all listeners; the nodes' names are super users."""
    for n in IDS:
        nodes.configs[n] |= pem_configs(authority.issue(f"node{n}"), authority.ca_path) | {
            "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=(node[0-9])$/$1/,DEFAULT",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:node1;User:node2;User:node3;User:CN=admin",
            "default.replication.factor": "3",
        }


def client_of(name: str, authority: Authority) -> dict[str, str]:
    configs = pem_configs(authority.issue(name), authority.ca_path)
    return configs | {"security.protocol": "SSL"}


def bootstrap(nodes: Nodes) -> str:
    return ",".join(f"127.0.0.1:{node.ports['PLAINTEXT']}" for node in nodes.running.values())


def names_seen(node: Node) -> set[str]:
    """The users of the open connections of a node."""
    found = (c.session.principal for each in node.listeners for c in each._connections)
    return {principal.name for principal in found}


def test_nodes_authenticate_each_other_by_certificates(tmp_path: Path):
    authority = Authority(tmp_path / "authority")
    admin, eve = client_of("admin", authority), client_of("eve", authority)

    async def test() -> None:
        nodes = Nodes(tmp_path)
        secured(nodes, authority)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(lambda: nodes.stop(*nodes.running))
            await nodes.start(*IDS)
            cluster = await stack.enter_async_context(
                Cluster(bootstrap(nodes), connect=secured_connect(admin))
            )
            await Admin(cluster).create_topics([NewTopic(name="t", partitions=3)])
            producer = await stack.enter_async_context(Producer(cluster, ProducerSettings()))
            await asyncio.gather(*(producer.send("t", b"x", partition=p) for p in (0, 1, 2)))
            others = {n: {f"node{other}" for other in IDS if other != n} for n in IDS}
            await until(lambda: all(others[n] <= names_seen(nodes.running[n]) for n in IDS))
            stranger = await stack.enter_async_context(
                Cluster(bootstrap(nodes), connect=secured_connect(eve))
            )
            refused = await Admin(stranger).create_topics([NewTopic(name="u", partitions=1)])
            outcome = refused["u"]
            assert isinstance(outcome, KafkaError)
            assert outcome.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    run(test())


def test_a_node_with_a_certificate_of_another_authority_is_left_out(tmp_path: Path):
    authority, foreign = Authority(tmp_path / "own"), Authority(tmp_path / "foreign", "foreign")

    async def test() -> None:
        nodes = Nodes(tmp_path)
        secured(nodes, authority)
        nodes.configs[3] |= pem_configs(foreign.issue("node3"), authority.ca_path)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(lambda: nodes.stop(*nodes.running))
            starting = asyncio.ensure_future(nodes.start(3))
            stack.callback(starting.cancel)
            await nodes.start(1, 2)
            await until(lambda: nodes.running[1].listeners[1].tls_failures > 0)
            image = nodes.running[1].broker.image  # type: ignore[union-attr]
            assert sorted(image.brokers) == [1, 2]
            assert not starting.done()

    run(test())


def test_nodes_compare_the_names_of_certificates(tmp_path: Path):
    """One node's is for another host: no other node connects to it, though it is of the right
    authority, and the node may still connect to the others."""
    authority = Authority(tmp_path / "authority")
    admin = client_of("admin", authority)

    async def test() -> None:
        nodes = Nodes(tmp_path)
        secured(nodes, authority)
        elsewhere = authority.issue("node3", hosts=["elsewhere.example"])
        nodes.configs[3] |= pem_configs(elsewhere, authority.ca_path)
        for n in IDS:
            nodes.configs[n]["replica.lag.time.max.ms"] = "1000"
        async with AsyncExitStack() as stack:
            stack.push_async_callback(lambda: nodes.stop(*nodes.running))
            await nodes.start(1, 2)
            reached = bootstrap(nodes)
            await nodes.start(3)
            cluster = await stack.enter_async_context(
                Cluster(reached, connect=secured_connect(admin))
            )
            new = [
                NewTopic(name="led-by-1", assignment={0: [1, 2, 3]}),
                NewTopic(name="led-by-3", assignment={0: [3, 1, 2]}),
            ]
            for outcome in (await Admin(cluster).create_topics(new)).values():
                assert not isinstance(outcome, KafkaError), outcome

            def isr(topic: str) -> set[int]:
                broker = nodes.running[1].broker
                assert broker is not None
                found = broker.image.topic(topic)
                return set() if found is None else set(found.partitions[0].isr)

            await until(lambda: isr("led-by-3") == {3})
            assert isr("led-by-1") == {1, 2, 3}
            assert nodes.running[3].listeners[0].tls_failures > 0
            dialing = nodes.running[1]._dialing
            assert dialing is not None
            with pytest.raises(TlsFailedError, match="is not valid for"):
                await dialing.to_brokers(
                    asyncio.Protocol, "127.0.0.1", nodes.running[3].ports["PLAINTEXT"]
                )

    run(test())

"""A secured cluster of Kafka 3.9.2 leaves ZooKeeper under three secured controllers, or returns.

As in test_secured_migration.py; the controllers' listener is secured, too: nodes authenticate there
by PLAIN, and no user is anonymous.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.admin import Admin
from sparkraft.client.values import NewTopic
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.standard_authorizer import CLASS_NAME as STANDARD_AUTHORIZER
from sparkraft.zookeeper.requests import Acl as ZnodeAcl
from sparkraft.zookeeper.requests import Delete, GetAcl, GetChildren
from tests.support.certificates import Authority
from tests.support.ports import wait_until
from tests.support.sasl import PLAIN, server_module
from tests.support.secured_zookeeper import (
    LISTENER,
    allow,
    broker_configs,
    client,
    client_file,
    create_admin,
    kafka_environment,
    listener_configs,
    until_live,
    until_seen,
)
from tests.support.zookeeper import (
    SecuredEnsemble,
    controller_of,
    digest_login,
    secured_submit,
)
from tests.zookeeper.migration.clusters import MIGRATING, MigratingBroker, Quorum
from tests.zookeeper.migration.test_secured_migration import ALONE, check, prepare, stage

pytestmark = [pytest.mark.java, pytest.mark.real_time, pytest.mark.long]

SECONDS = 120
AT_CONTROLLERS = {
    "listener.security.protocol.map": f"CONTROLLER:SASL_PLAINTEXT,{LISTENER}:{LISTENER}",
    "sasl.mechanism.controller.protocol": PLAIN,
    "listener.name.controller.sasl.enabled.mechanisms": PLAIN,
    "listener.name.controller.plain.sasl.jaas.config": server_module(PLAIN),
}
"""How nodes authenticate at controllers."""

CONTROLLERS = {
    **listener_configs(),
    **digest_login(),
    **AT_CONTROLLERS,
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin",
}


class SecuredBroker(MigratingBroker):
    """A broker with SASL listeners; its controllers have them, too."""

    def join(self, controller: Any) -> None:
        """Restart in ZooKeeper mode, known to the controllers."""
        quorum = {
            "controller.quorum.voters": controller.voters,
            "controller.listener.names": "CONTROLLER",
        }
        self._restart({**MIGRATING, **quorum, **AT_CONTROLLERS})


class Cluster:
    """Brokers 1 and 2 in ZooKeeper mode, three controllers that wait, and what must stay."""

    def __init__(
        self, ensemble: SecuredEnsemble, file: Path, brokers: list[SecuredBroker], quorum: Quorum
    ) -> None:
        self.ensemble, self.file = ensemble, file
        self.brokers, self.quorum = brokers, quorum
        self.expected: tuple[Any, ...] = ()

    def wait_for_stage(self, name: str) -> None:
        wait_until(
            lambda: name in stage(self.ensemble, self.file), self.quorum.output_tail(), SECONDS
        )

    def check(self, *, change: str = "") -> None:
        """Each broker has everything; `change` names a topic that alice may see from here on."""
        for broker in self.brokers:
            asyncio.run(until_whole(broker.bootstrap, len(self.brokers)))
            asyncio.run(check(broker.bootstrap, self.expected))
        if change:
            asyncio.run(self._change(change))

    async def _change(self, topic: str) -> None:
        """A topic and an entry, which each broker learns; the entry is removed again."""
        first, *_ = self.brokers
        async with client(first.bootstrap) as admin:
            await created(admin, topic)
            assert await AclAdmin(admin).create_acls([allow("User:alice", topic)]) == [None]
            for broker in self.brokers:
                await until_seen(broker.bootstrap, "alice", sorted(["a", topic]))
            (deleted,) = await AclAdmin(admin).delete_acls([AclFilter(resource_name=topic)])
            assert deleted == [allow("User:alice", topic)]
            for broker in self.brokers:
                await until_seen(broker.bootstrap, "alice", ["a"])

    def kill_the_active_controller(self) -> None:
        killed = self.quorum.active()
        killed.kill()
        wait_until(lambda: self.quorum.active() is not killed, "another controller", SECONDS)
        killed.start()


async def created(admin: Any, topic: str) -> None:
    """Create a topic; the controller may be changing."""
    made: Any = None
    for _ in range(200):
        made = (await Admin(admin).create_topics([NewTopic(name=topic, partitions=2)]))[topic]
        if not isinstance(made, KafkaError) or "already exists" in str(made):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(made)


async def until_whole(bootstrap: str, count: int) -> None:
    async with client(bootstrap) as found:
        await until_live(found, count)


@contextmanager
def cluster(jars: Path, folder: Path) -> Iterator[Cluster]:
    """Two brokers of Kafka, and the controllers."""
    with ExitStack() as stack:
        ensemble = SecuredEnsemble(jars, folder, Authority(folder / "ca"))
        stack.enter_context(ensemble)
        file = client_file(folder)
        create_admin(ensemble, file)
        brokers = []
        for number in (1, 2):
            broker = SecuredBroker(
                folder / str(number), number, ensemble.connect, jars, ALONE, is_ours=False
            )
            broker.environment |= kafka_environment(ensemble)
            broker.overrides = {**broker.overrides, **broker_configs(broker.port)}
            broker.write_properties()
            brokers.append(stack.enter_context(broker))
        quorum = Quorum(folder / "quorum", ensemble.connect, 3, overrides=CONTROLLERS)
        stack.enter_context(quorum)
        found = Cluster(ensemble, file, brokers, quorum)
        for broker in brokers:
            asyncio.run(until_whole(broker.bootstrap, len(brokers)))
        found.expected = asyncio.run(prepare(brokers[0].bootstrap, brokers=len(brokers)))
        found.check()
        yield found


def test_a_secured_cluster_of_kafka_leaves_zookeeper_while_controllers_are_killed(
    zookeeper_jars: Path, tmp_path: Path
):
    with cluster(zookeeper_jars, tmp_path) as found:
        found.wait_for_stage("waiting")
        for broker in found.brokers:
            broker.join(found.quorum)
        found.wait_for_stage("dual write")
        found.check(change="in-dual-write")
        found.kill_the_active_controller()
        found.check(change="after-a-takeover")
        for broker in found.brokers:
            broker.leave_zookeeper()
            found.check()
            found.kill_the_active_controller()
        found.wait_for_stage("kraft brokers")
        found.check(change="in-kraft-mode")
        found.quorum.restart(migrates=False)
        found.check(change="at-the-end")

        async def topics(session: Any) -> list[str]:
            names, _ = await session.submit(GetChildren(path="/brokers/topics"))
            acl, _ = await session.submit(GetAcl(path="/brokers/topics/in-kraft-mode"))
            assert acl == (ZnodeAcl(31, "sasl", "kafka"), ZnodeAcl(1, "world", "anyone"))
            return list(names)

        assert "at-the-end" not in secured_submit(found.ensemble, topics)


def test_a_secured_cluster_of_kafka_returns_to_zookeeper_from_three_controllers(
    zookeeper_jars: Path, tmp_path: Path
):
    """Roll-back after a broker ran in KRaft mode and another controller took over.

    Each broker must follow the new controller before it stops: until then the method
    `KafkaServer.controlledShutdown` waits five minutes for a KRaft controller that has stopped.
    """
    with cluster(zookeeper_jars, tmp_path) as found:
        first, *_ = found.brokers
        found.wait_for_stage("waiting")
        for broker in found.brokers:
            broker.join(found.quorum)
        found.wait_for_stage("dual write")
        found.check(change="in-dual-write")
        first.leave_zookeeper()
        found.check(change="in-kraft-mode")
        found.kill_the_active_controller()
        found.check(change="after-a-takeover")
        first.return_to_zookeeper(migrates=True)
        found.wait_for_stage("dual write")
        found.check()
        found.quorum.stop()

        async def delete(session: Any) -> None:
            for path in ("/controller", "/migration"):
                await session.submit(Delete(path=path))

        secured_submit(found.ensemble, delete)
        wait_until(
            lambda: controller_of(found.ensemble.connect)[0] in {1, 2}, "a broker rules", SECONDS
        )
        for broker in found.brokers:
            found.check(change=f"before-{broker.broker_id}-returns")
            broker.return_to_zookeeper(migrates=False)
        found.check(change="at-the-end")

        async def topics(session: Any) -> list[str]:
            names, _ = await session.submit(GetChildren(path="/brokers/topics"))
            return list(names)

        assert {
            "in-dual-write", "in-kraft-mode", "after-a-takeover", "at-the-end"
        } <= set(secured_submit(found.ensemble, topics))  # fmt: skip

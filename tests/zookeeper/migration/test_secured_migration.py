"""A secured broker, of Kafka 3.9.2 or ours, leaves ZooKeeper under a KRaft controller of ours.

The broker authenticates clients and the controller by SCRAM, the ensemble knows nodes as one user,
and znodes have access control lists. Lists, credentials, quotas and tokens stay the same.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.admin import Admin
from sparkraft.client.scram_admin import NewCredential, ScramAdmin
from sparkraft.client.token_admin import TokenAdmin
from sparkraft.client.values import NewTopic
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import PatternType
from sparkraft.security.scram import BY_NAME
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import CLASS_NAME as STANDARD_AUTHORIZER
from tests.support.certificates import Authority
from tests.support.ports import wait_until
from tests.support.sasl import PASSWORDS, SHA_256
from tests.support.secured_zookeeper import (
    LISTENER,
    allow,
    broker_configs,
    client,
    client_file,
    create_admin,
    kafka_environment,
    listener_configs,
    quotas_of,
    set_quotas,
    until_live,
    until_logged_in,
    until_quotas,
    until_seen,
)
from tests.support.zookeeper import SecuredEnsemble, digest_login
from tests.zookeeper.migration.clusters import MIGRATING, MigratingBroker, OurController

pytestmark = [pytest.mark.java, pytest.mark.real_time, pytest.mark.long]

SECONDS = 120
PROTOCOLS = {"listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{LISTENER}:{LISTENER}"}
ALONE = {"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"}


class SecuredBroker(MigratingBroker):
    """A broker of Kafka with a SASL listener."""

    def join(self, controller: Any) -> None:
        """Restart in ZooKeeper mode, known to the controller."""
        quorum = {
            "controller.quorum.voters": controller.voters,
            "controller.listener.names": "CONTROLLER",
        }
        self._restart({**MIGRATING, **quorum, **PROTOCOLS})


def stage(ensemble: SecuredEnsemble, file: Path) -> str:
    """The stage that `zookeeper-migration status` prints."""
    command = [sys.executable, "-m", "sparkraft.cli.main", "zookeeper-migration", "status"]
    done = subprocess.run(
        [*command, "--zookeeper", ensemble.connect, "--zk-tls-config-file", str(file)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


async def described(bootstrap: str) -> tuple[Any, ...]:
    """All that must stay: lists, credentials, quotas, tokens."""
    async with client(bootstrap) as admin, client(bootstrap, "alice") as alice:
        credentials = await ScramAdmin(admin).describe()
        return (
            await AclAdmin(admin).describe_acls(AclFilter()),
            # Nodes list the mechanisms of a user in different orders.
            {
                user: sorted(found, key=lambda each: each.mechanism.name)
                for user, found in credentials.items()
            },
            await quotas_of(admin),
            [(each.token_id, each.hmac.reveal()) for each in await TokenAdmin(alice).describe()],
        )


async def prepare(bootstrap: str, *, brokers: int = 1) -> tuple[Any, ...]:
    """Two topics, of which alice sees one, and one of each thing that is copied."""
    async with client(bootstrap) as admin:
        await until_live(admin, brokers)
        topics = [NewTopic(name=each, partitions=1) for each in ("a", "b")]
        made = await Admin(admin).create_topics(topics)
        assert not any(isinstance(each, KafkaError) for each in made.values()), made
        password = Secret(PASSWORDS["alice"])
        add = [NewCredential(each, password) for each in BY_NAME.values()]
        await ScramAdmin(admin).alter("alice", add=add)
        entries = [allow("User:alice", "a"), allow("User:bob", "b-", PatternType.PREFIXED)]
        assert await AclAdmin(admin).create_acls(entries) == [None, None]
        await until_seen(bootstrap, "alice", ["a"])
        await until_quotas(admin, await set_quotas(admin, 1024.0))
    async with client(bootstrap, "alice") as alice:
        await TokenAdmin(alice).create()
    return await described(bootstrap)


async def check(bootstrap: str, expected: tuple[Any, ...]) -> None:
    """Nothing has changed, and alice and her token log in and see what they may."""
    await until_seen(bootstrap, "alice", ["a"])
    assert await described(bootstrap) == expected
    ((token_id, hmac),) = expected[3]
    seen = await until_logged_in(
        bootstrap, token_id, password=hmac, mechanism=SHA_256, by_token=True
    )
    assert seen == ["a"]


@pytest.mark.parametrize("is_ours", [False, True], ids=["kafka", "ours"])
def test_a_secured_cluster_keeps_lists_credentials_quotas_and_tokens(
    zookeeper_jars: Path, tmp_path: Path, *, is_ours: bool
):
    with SecuredEnsemble(zookeeper_jars, tmp_path, Authority(tmp_path / "ca")) as ensemble:
        file = client_file(tmp_path)
        create_admin(ensemble, file)
        broker = SecuredBroker(
            tmp_path / "broker", 1, ensemble.connect, zookeeper_jars, ALONE, is_ours=is_ours
        )
        more: dict[str, str] = {}
        if is_ours:
            more = {**digest_login(), "sparkraft.controllership.enable": "true"}
        else:
            broker.environment |= kafka_environment(ensemble)
        broker.overrides = {**broker.overrides, **broker_configs(broker.port), **more}
        broker.write_properties()
        with broker:
            expected = asyncio.run(prepare(broker.bootstrap))
            overrides = {
                **listener_configs(),
                **digest_login(),
                **PROTOCOLS,
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": "User:admin;User:ANONYMOUS",
            }
            with OurController(tmp_path / "controller", ensemble.connect, overrides) as controller:
                broker.join(controller)
                wait_until(
                    lambda: "dual write" in stage(ensemble, file), controller.output_tail(), SECONDS
                )
                asyncio.run(check(broker.bootstrap, expected))
                asyncio.run(change_in_dual_write(broker.bootstrap))
                broker.overrides["super.users"] = "User:admin;User:ANONYMOUS"
                broker.leave_zookeeper()
                asyncio.run(check(broker.bootstrap, expected))


async def change_in_dual_write(bootstrap: str) -> None:
    """A list that the KRaft controller writes back reaches the broker in ZooKeeper mode."""
    async with client(bootstrap) as admin:
        entry = allow("User:alice", "b")
        assert await AclAdmin(admin).create_acls([entry]) == [None]
        await until_seen(bootstrap, "alice", ["a", "b"])
        assert await AclAdmin(admin).delete_acls([AclFilter(resource_name="b")]) == [[entry]]
        await until_seen(bootstrap, "alice", ["a"])

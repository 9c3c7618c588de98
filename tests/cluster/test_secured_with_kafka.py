"""A cluster of both kinds with SASL_SSL on every connection: users, entries, quotas and tokens.

Nodes log in by PLAIN at controllers and by SCRAM at brokers. A change through a broker of one kind
is checked at all brokers, and again after the loss of the active controller.
"""

from base64 import b64decode
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.admin import Admin
from sparkraft.client.producer import Producer, ProducerSettings
from sparkraft.client.quota_admin import QuotaAdmin
from sparkraft.client.scram_admin import NewCredential, ScramAdmin
from sparkraft.client.security import secured_connect
from sparkraft.client.token_admin import TokenAdmin, TokenInfo
from sparkraft.security.acls import Acl
from sparkraft.security.login import Login
from sparkraft.security.quotas import quota_entity
from sparkraft.security.scram import BY_NAME
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.certificates import Authority, pem_configs
from tests.support.clusters import Cluster, Kind, Member
from tests.support.ports import wait_until
from tests.support.replicas import until_in_sync
from tests.support.sasl import PASSWORDS, PLAIN, SHA_256, SHA_512, server_module

pytestmark = [pytest.mark.real_clients, pytest.mark.java, pytest.mark.long]

WAIT_SECONDS = 90
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": PLAIN,
    "sasl.mechanism.controller.protocol": PLAIN,
    "listener.name.controller.plain.sasl.jaas.config": server_module(PLAIN),
    "listener.name.plaintext.sasl.enabled.mechanisms": f"{PLAIN},{SHA_256},{SHA_512}",
    "sasl.mechanism.inter.broker.protocol": SHA_512,
    "listener.name.plaintext.plain.sasl.jaas.config": server_module(PLAIN),
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": server_module(SHA_512),
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": server_module(SHA_256),
    "authorizer.class.name": CLASS_NAME,
    "super.users": "User:admin",
    "delegation.token.secret.key": "planted-secret-key-8815",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
}
ADMIN = Login(PLAIN, "admin", Secret(PASSWORDS["admin"]))
TOPIC, LITERAL, ALL, ALLOW = 2, 3, 2, 3
PARTITIONS = range(3)
RATE = 100_000
"""Bytes a second: with eleven windows of a second, 1.1 MB are free."""


def user(name: str) -> Login:
    return Login(SHA_256, name, Secret(f"{name}-secret"))


def by_token(token: TokenInfo) -> Login:
    return Login(SHA_512, token.token_id, token.hmac, by_token=True)


class Secured:
    """The cluster, and requests by its users."""

    def __init__(self, directory: Path, jars: Path, kinds: tuple[Kind, ...]) -> None:
        authority = Authority(directory / "authority")
        stores = pem_configs(authority.issue("node"), authority.ca_path)
        trusting = {"security.protocol": "SASL_SSL"} | pem_configs(None, authority.ca_path)
        self.ca_path = authority.ca_path
        self.cluster = Cluster(
            directory,
            [Member(n, kind) for n, kind in enumerate(kinds, 1)],
            overrides=SETTINGS | stores,
            jars=jars,
            login=ADMIN,
            connect=secured_connect(trusting),
        )
        credential = f"{SHA_512}=[name=admin,password={PASSWORDS['admin']}]"
        for node in self.cluster.nodes.values():
            node.format_as = (*node.format_as, "--add-scram", credential)

    def kind(self, node_id: int) -> Kind:
        return self.cluster.members[node_id].kind

    def of_kind(self, kind: Kind) -> int:
        """A broker of this kind that runs."""
        return next(n for n in self.cluster.running if self.kind(n) == kind)

    def ask(
        self,
        work: Callable[[Admin], Coroutine[Any, Any, Any]],
        *,
        of: int | None = None,
        login: Login = ADMIN,
    ) -> Any:
        self.cluster.login = login
        try:
            return self.cluster.ask(work, of=of)
        finally:
            self.cluster.login = ADMIN

    def logs_in(self, login: Login, of: int) -> bool:
        try:
            self.ask(lambda admin: admin.describe_cluster(), of=of, login=login)
        except KafkaError as error:
            if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            return False
        return True

    def until_login(self, login: Login, *, works: bool = True) -> None:
        for node_id in self.cluster.running:
            wait_until(
                lambda of=node_id: self.logs_in(login, of) == works,
                f"{login.user} logs in at {node_id}: {works}",
                WAIT_SECONDS,
            )

    def produce(self, login: Login, value: bytes) -> None:
        """A record to each partition, whose leaders are all nodes."""

        async def work(admin: Admin) -> None:
            settings = ProducerSettings(acks=-1)
            async with Producer(admin.cluster, settings) as producer:
                sent = [
                    await producer.send("shared", value, partition=partition)
                    for partition in PARTITIONS
                ]
            for outcome in sent:
                await outcome

        self.ask(work, login=login)


def change_users(secured: Secured) -> None:
    for name, kind in (("alice", "sparkraft"), ("bob", "kafka")):
        credential = NewCredential(BY_NAME[SHA_256], Secret(f"{name}-secret"))

        async def work(
            admin: Admin, name: str = name, credential: NewCredential = credential
        ) -> None:
            await ScramAdmin(admin.cluster).alter(name, add=[credential])

        secured.ask(work, of=secured.of_kind(kind))
        secured.until_login(user(name))


def change_entries(secured: Secured) -> None:
    """Both may use the topic, each by an entry that was made at one kind; then bob may not."""

    def entry(name: str) -> Acl:
        return Acl(TOPIC, "shared", LITERAL, f"User:{name}", "*", ALL, ALLOW)

    for name, kind in (("alice", "kafka"), ("bob", "sparkraft")):
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            secured.produce(user(name), b"denied")

        async def work(admin: Admin, name: str = name) -> None:
            assert await AclAdmin(admin.cluster).create_acls([entry(name)]) == [None]

        secured.ask(work, of=secured.of_kind(kind))
        wait_until(lambda name=name: allowed(secured, name), f"{name} may", WAIT_SECONDS)


def allowed(secured: Secured, name: str) -> bool:
    try:
        secured.produce(user(name), f"of {name}".encode())
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        return False
    return True


def limit_alice(secured: Secured, rate: float | None, kind: Kind) -> None:
    """Set the quota at one kind, and wait until all describe it."""
    entity = quota_entity([("user", "alice")])

    async def change(admin: Admin) -> None:
        changes = {"producer_byte_rate": rate}
        assert await QuotaAdmin(admin.cluster).alter_client_quotas(entity, changes) is None

    async def describe(admin: Admin) -> Any:
        return await QuotaAdmin(admin.cluster).describe_client_quotas({"user": "alice"})

    secured.ask(change, of=secured.of_kind(kind))
    wanted = {} if rate is None else {entity: {"producer_byte_rate": rate}}
    for node_id in secured.cluster.running:
        wait_until(
            lambda of=node_id: secured.ask(describe, of=of) == wanted,
            f"{node_id} knows the quota",
            WAIT_SECONDS,
        )


def throttling_brokers(secured: Secured) -> set[int]:
    """The brokers that hold alice up when she sends 1.5 MB to each."""
    from confluent_kafka import Producer as LibrdkafkaProducer

    throttled: set[int] = set()

    def note(event: Any) -> None:
        if event.throttle_time > 0:
            throttled.add(event.broker_id)

    producer = LibrdkafkaProducer(
        {
            "bootstrap.servers": secured.cluster.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(secured.ca_path),
            "sasl.mechanism": SHA_256,
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
            "throttle_cb": note,
            "batch.size": 110_000,
        }
    )
    for _ in range(15):
        for partition in PARTITIONS:
            producer.produce("shared", bytes(100_000), partition=partition)
    assert producer.flush(WAIT_SECONDS) == 0
    wait_until(lambda: producer.poll(0.1) == 0, "no event is left", WAIT_SECONDS)
    return throttled


def new_token(secured: Secured, kind: Kind) -> TokenInfo:
    async def work(admin: Admin) -> TokenInfo:
        return await TokenAdmin(admin.cluster).create()

    token: TokenInfo = secured.ask(work, of=secured.of_kind(kind), login=user("alice"))
    assert str(token.owner) == "User:alice"
    secured.until_login(by_token(token))
    return token


@pytest.mark.parametrize(
    "kinds", [("sparkraft", "sparkraft", "kafka"), ("kafka", "kafka", "sparkraft")]
)
def test_what_one_kind_records_the_other_enforces(
    tmp_path: Path, kafka_jars: Path, kinds: tuple[Kind, Kind, Kind]
) -> None:
    secured = Secured(tmp_path, kafka_jars, kinds)
    cluster = secured.cluster
    both: tuple[Kind, Kind] = ("sparkraft", "kafka")
    with cluster:
        cluster.create_topic("shared", partitions=len(PARTITIONS), replicas=3)
        change_users(secured)
        change_entries(secured)
        tokens = [new_token(secured, kind) for kind in both]
        for token in tokens:
            secured.produce(by_token(token), b"by token")
        for kind in both:
            limit_alice(secured, RATE, kind)
            assert throttling_brokers(secured) == set(cluster.brokers)
            limit_alice(secured, None, kind)
        until_in_sync(cluster, "shared", len(PARTITIONS), 3)
        cluster.kill(dead := cluster.leader())
        cluster.leader(other_than=dead)
        for login in (user("alice"), user("bob"), *map(by_token, tokens)):
            secured.produce(login, b"after the failover")

        async def expire(admin: Admin) -> None:
            for token in tokens:
                await TokenAdmin(admin.cluster).expire(b64decode(token.hmac.reveal()))

        secured.ask(expire, login=user("alice"))
        for token in tokens:
            secured.until_login(by_token(token), works=False)
        for node in cluster.nodes.values():
            said = node.output_path.read_text()
            secrets = [*PASSWORDS.values(), "alice-secret", "planted-secret-key-8815"]
            assert all(secret not in said for secret in secrets)

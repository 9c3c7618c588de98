"""Kafka 3.9.2 and ours on one secured ensemble: each reads and enforces what the other wrote.

The ensemble knows the brokers as one user, and znodes have access control lists. Brokers
authenticate each other by SCRAM, with credentials from `configs --zookeeper`.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from sparkraft.base.errors import KafkaError
from sparkraft.cli.zookeeper_check import main as check_command
from sparkraft.cli.zookeeper_controller import main as controller_command
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.scram_admin import NewCredential, ScramAdmin
from sparkraft.client.security import secured_connect
from sparkraft.client.token_admin import TokenAdmin
from sparkraft.client.values import NewTopic
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.scram import BY_NAME
from sparkraft.security.secret import Secret
from sparkraft.zookeeper.requests import Acl as ZnodeAcl
from sparkraft.zookeeper.requests import GetAcl, GetChildren, GetData
from sparkraft.zookeeper.security import read_ensemble_security
from tests.support.certificates import Authority, named
from tests.support.ports import wait_until
from tests.support.sasl import PASSWORDS, SHA_256, SHA_512
from tests.support.secured_zookeeper import (
    AUTHORIZER,
    OneBroker,
    allow,
    broker_configs,
    client,
    client_file,
    create_admin,
    kafka_environment,
    set_quotas,
    until_live,
    until_logged_in,
    until_quotas,
    until_seen,
)
from tests.support.zookeeper import SecuredEnsemble, digest_login, secured_submit, submit
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker

pytestmark = [pytest.mark.java, pytest.mark.real_time, pytest.mark.real_clients]

KAFKA, OURS = 1, 2


class Brokers:
    """A broker of Kafka and one of ours.

    Attributes:
        kafka, ours: where they serve clients.
        file: for `--zk-tls-config-file`.
    """

    def __init__(self, jars: Path, folder: Path, ensemble: SecuredEnsemble) -> None:
        self.ensemble = ensemble
        self.file = client_file(folder)
        self.of_kafka = KafkaBroker(folder / "kafka", KAFKA, ensemble.connect, jars)
        self.of_kafka.environment |= kafka_environment(ensemble)
        self.of_ours = OurBroker(folder / "ours", OURS, ensemble.connect)
        more = {**digest_login(), "sparkraft.controllership.enable": "true"}
        self.of_ours.overrides = {**self.of_ours.overrides, **more}
        for node in (self.of_kafka, self.of_ours):
            node.overrides = {**node.overrides, **broker_configs(node.port)}
            node.write_properties()
        self.kafka, self.ours = self.of_kafka.bootstrap, self.of_ours.bootstrap

    @property
    def both(self) -> tuple[str, str]:
        """Where each serves clients."""
        return self.kafka, self.ours


@pytest.fixture(scope="module")
def brokers(zookeeper_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("secured-mixed")
    with SecuredEnsemble(zookeeper_jars, folder, Authority(folder / "ca")) as ensemble:
        made = Brokers(zookeeper_jars, folder, ensemble)
        create_admin(ensemble, made.file)
        with made.of_kafka, made.of_ours:
            yield made


def test_each_enforces_lists_and_accepts_credentials_and_tokens_of_the_other(
    brokers: Brokers, capsys: pytest.CaptureFixture[str]
):
    async def test() -> None:
        async with client(brokers.kafka) as kafka, client(brokers.ours) as ours:
            for each in (kafka, ours):
                await until_live(each, len((KAFKA, OURS)))
            made = await Admin(ours).create_topics(
                [NewTopic(name=name, assignment={0: [1, 2]}) for name in ("a", "b", "pre-1")]
            )
            assert not any(isinstance(each, KafkaError) for each in made.values()), made
            # The controller writes credentials: the client finds it, whichever it is.
            add = [NewCredential(BY_NAME[SHA_256], Secret(PASSWORDS["alice"]))]
            await ScramAdmin(ours).alter("alice", add=add)
            for broker in brokers.both:
                assert await until_logged_in(broker, "alice") == []
            await check_lists(brokers, kafka, ours)
            await check_tokens(brokers)
            for writer, rate in ((kafka, 1024.0), (ours, 2048.0)):
                wanted = await set_quotas(writer, rate)
                for reader in (kafka, ours):
                    await until_quotas(reader, wanted)
            assert list(await ScramAdmin(ours).describe(["alice"])) == ["alice"]

    asyncio.run(test())
    check_lists_of_znodes(brokers)
    checked = [brokers.ensemble.connect, "--zk-tls-config-file", str(brokers.file)]
    assert check_command(checked) == 0
    assert "ACLs:       yes" in capsys.readouterr().out


async def check_lists(brokers: Brokers, kafka: Cluster, ours: Cluster) -> None:
    """Lists of ours, then of Kafka's: both enforce both, extend them and delete them."""
    of_ours, of_kafka = AclAdmin(ours), AclAdmin(kafka)
    prefixed = allow("User:alice", "pre-", PatternType.PREFIXED)
    assert await of_ours.create_acls([allow("User:alice", "a"), prefixed]) == [None, None]
    await until_seen(brokers.kafka, "alice", ["a", "pre-1"])
    assert await of_kafka.create_acls([allow("User:alice", "b")]) == [None]
    await until_seen(brokers.ours, "alice", ["a", "b", "pre-1"])
    described = [await each.describe_acls(AclFilter()) for each in (of_kafka, of_ours)]
    assert described[0] == described[1]
    assert len(described[0]) == 3
    assert await of_kafka.create_acls([allow("User:bob", "a")]) == [None]
    assert await of_ours.create_acls([allow("User:carol", "b")]) == [None]
    for admin, topic, other in ((of_ours, "b", "User:carol"), (of_kafka, "a", "User:bob")):
        (deleted,) = await admin.delete_acls([AclFilter(resource_name=topic)])
        assert not isinstance(deleted, KafkaError)
        assert sorted(deleted) == [allow("User:alice", topic), allow(other, topic)]
    for broker in brokers.both:
        await until_seen(broker, "alice", ["pre-1"])


async def check_tokens(brokers: Brokers) -> None:
    """A token from each broker logs in at the other, and is renewed and removed there."""
    for here, there in (brokers.both, brokers.both[::-1]):
        async with client(here, "alice") as alice:
            token = await TokenAdmin(alice).create()
        hmac = token.hmac.reveal()
        seen = await until_logged_in(there, token.token_id, password=hmac, by_token=True)
        assert seen == ["pre-1"]
        async with client(there, "alice") as alice:
            tokens = TokenAdmin(alice)
            (described,) = await tokens.describe()
            assert (described.token_id, described.hmac.reveal()) == (token.token_id, hmac)
            assert await tokens.renew(b64decode(hmac), period_ms=60_000) > 0
            await tokens.expire(b64decode(hmac))
        async with client(here, "alice") as alice:
            await until_no_tokens(TokenAdmin(alice))


async def until_no_tokens(tokens: TokenAdmin) -> None:
    for _ in range(400):
        if not await tokens.describe():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the token is not removed")


def check_lists_of_znodes(brokers: Brokers) -> None:
    """Every znode has the list that Kafka's ZkData gives it, whichever broker created it."""
    security = read_ensemble_security({**digest_login(), "zookeeper.set.acl": "true"})

    async def read(session: Any) -> dict[str, tuple[ZnodeAcl, ...]]:
        found: dict[str, tuple[ZnodeAcl, ...]] = {}
        left = ["/"]
        while left:
            path = left.pop()
            names, _ = await session.submit(GetChildren(path=path))
            left += [f"{path.rstrip('/')}/{name}" for name in names if name != "zookeeper"]
            if path != "/":
                found[path], _ = await session.submit(GetAcl(path=path))
        return found

    found = secured_submit(brokers.ensemble, read)
    assert len(found) > 40
    creator = ZnodeAcl(31, "sasl", "kafka")
    for path, acl in found.items():
        expected = tuple(
            creator if each.scheme == "auth" else each for each in security.acl_of(path)
        )
        assert acl == expected, path


@pytest.mark.long  # in the test above either broker may be the controller
def test_both_write_credentials_as_the_controller(brokers: Brokers):
    password = "of-a-new-user-5531"

    def controller() -> int:
        async def read(session: Any) -> int:
            data, _ = await session.submit(GetData(path="/controller"))
            return int(json.loads(data)["brokerid"])

        return secured_submit(brokers.ensemble, read)

    async def change(user: str) -> None:
        async with client(brokers.ours) as ours:
            add = [NewCredential(each, Secret(password)) for each in BY_NAME.values()]
            await ScramAdmin(ours).alter(user, add=add)
        for broker in brokers.both:
            for mechanism in (SHA_256, SHA_512):
                await until_logged_in(broker, user, password=password, mechanism=mechanism)

    seen = set()
    for attempt in range(30):
        current = controller()
        if current not in seen:
            asyncio.run(change(f"user-{attempt}"))
            seen.add(current)
        if seen == {KAFKA, OURS}:
            return
        moved = ["move", "--zookeeper", brokers.ensemble.connect]
        assert controller_command([*moved, "--zk-tls-config-file", str(brokers.file)]) == 0
        wait_until(lambda: controller() in (KAFKA, OURS), "there is a controller", 20)
    raise AssertionError(f"only {seen} became the controller")


@pytest.mark.long  # requests above are authorized in the same way
def test_a_client_of_another_project_produces_and_consumes_what_it_may(brokers: Brokers):
    """librdkafka, as admin and as a user that may read one topic, with leaders of both kinds."""
    user, password = "reader", "of-the-reader-2246"

    async def prepare() -> None:
        async with client(brokers.ours) as ours:
            await until_live(ours, len((KAFKA, OURS)))
            topic = NewTopic(name="read", assignment={0: [KAFKA, OURS], 1: [OURS, KAFKA]})
            made = await Admin(ours).create_topics([topic])
            assert not isinstance(made["read"], KafkaError), made
            add = [NewCredential(BY_NAME[SHA_512], Secret(password))]
            await ScramAdmin(ours).alter(user, add=add)
            group = Acl(
                AclResourceType.GROUP, "g", PatternType.LITERAL, f"User:{user}", "*",
                AclOperation.READ, AclPermissionType.ALLOW,
            )  # fmt: skip
            assert await AclAdmin(ours).create_acls([allow(f"User:{user}", "read"), group]) == [
                None, None,
            ]  # fmt: skip
        for broker in brokers.both:
            await until_seen(broker, user, ["read"], password=password, mechanism=SHA_512)

    def configs(name: str, secret: str, mechanism: str) -> dict[str, str]:
        return {
            "bootstrap.servers": brokers.ours,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": secret,
        }

    asyncio.run(prepare())
    failures: list[object] = []

    def produce(producer: Producer) -> None:
        for number in range(20):
            producer.produce(
                "read",
                str(number),
                partition=number % 2,
                on_delivery=lambda error, _: failures.append(error.name()) if error else None,
            )
        assert producer.flush(60) == 0

    produce(Producer(configs("admin", PASSWORDS["admin"], SHA_256)))
    assert not failures
    produce(Producer(configs(user, password, SHA_512)))
    assert set(failures) == {"TOPIC_AUTHORIZATION_FAILED"}
    consumer = Consumer(
        {**configs(user, password, SHA_512), "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["read"])
    found: list[int] = []
    for _ in range(120):
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(int(message.value()))
        if len(found) == 20:
            break
    consumer.close()
    assert sorted(found) == list(range(20))


@pytest.mark.long  # unlike the cluster above, only certificates: at the ensemble and at brokers
def test_both_authenticate_by_certificates(zookeeper_jars: Path, tmp_path: Path):
    authority = Authority(tmp_path / "ca")
    keys = {
        name: authority.issue(name, subject=named(name)) for name in ("broker", "alice", "admin")
    }

    def tls(name: str) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keys[name]),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.ca_path),
        }

    def one(bootstrap: str, name: str = "admin") -> Cluster:
        properties = {"security.protocol": "SSL", **tls(name)}
        return OneBroker(bootstrap, connect=secured_connect(properties))

    async def test(kafka: KafkaBroker, ours: OurBroker) -> None:
        async with one(kafka.bootstrap) as of_kafka, one(ours.bootstrap) as of_ours:
            for each in (of_kafka, of_ours):
                await until_live(each, len((KAFKA, OURS)))
            topic = NewTopic(name="a", assignment={0: [KAFKA, OURS], 1: [OURS, KAFKA]})
            made = await Admin(of_ours).create_topics([topic])
            assert not isinstance(made["a"], KafkaError), made
            entry = allow("User:CN=alice", "a")
            assert await AclAdmin(of_ours).create_acls([entry]) == [None]
            for broker in (kafka, ours):
                async with one(broker.bootstrap, "alice") as alice:
                    await until_topics(alice, ["a"])
            # Both lead and follow over TLS.
            for each in (of_kafka, of_ours):
                await until_in_sync(each)

    with SecuredEnsemble(zookeeper_jars, tmp_path, authority) as ensemble:
        connect = ensemble.secure_connect
        kafka = KafkaBroker(tmp_path / "kafka", KAFKA, connect, zookeeper_jars)
        ours = OurBroker(tmp_path / "ours", OURS, connect)
        for node in (kafka, ours):
            listener = f"SSL://127.0.0.1:{node.port}"
            node.overrides = {
                **node.overrides,
                **ensemble.tls_configs(),
                **tls("broker"),
                "zookeeper.ssl.keystore.type": "PEM",
                "zookeeper.ssl.keystore.location": str(keys["broker"]),
                "zookeeper.set.acl": "true",
                "listeners": listener,
                "advertised.listeners": listener,
                "security.inter.broker.protocol": "SSL",
                "ssl.client.auth": "required",
                "authorizer.class.name": AUTHORIZER,
                "super.users": "User:CN=broker;User:CN=admin",
            }
        ours.overrides["sparkraft.controllership.enable"] = "true"
        for node in (kafka, ours):
            node.write_properties()
        with kafka, ours:
            asyncio.run(test(kafka, ours))
            acl, _ = submit(ensemble.connect, GetAcl(path="/kafka-acl/Topic/a"))
            assert acl == (ZnodeAcl(31, "x509", "CN=broker"), ZnodeAcl(1, "world", "anyone"))


async def until_topics(found: Cluster, expected: list[str]) -> None:
    for _ in range(400):
        if sorted(await Admin(found).list_topics()) == expected:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not {expected}")


async def until_in_sync(found: Cluster) -> None:
    isrs: list[list[int]] = []
    for _ in range(400):
        topics = await Admin(found).list_topics()
        isrs = [sorted(each.isr) for each in topics["a"].partitions.values()]
        if isrs == [[KAFKA, OURS], [KAFKA, OURS]]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{isrs}")

"""Our client on a real ensemble with TLS, users and access control lists."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sparkraft.cli.configs import main as configs_command
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.zookeeper_security_migration import main as security_migration_command
from sparkraft.cli.zookeeper_session import ensemble_session
from sparkraft.security.scram import BY_NAME, keys_of, salted_password
from sparkraft.security.secret import Secret
from sparkraft.zookeeper.errors import Code, ZooKeeperError
from sparkraft.zookeeper.requests import OPEN_ACL, Acl, Create, GetAcl, GetData, Multi, SetData
from sparkraft.zookeeper.znodes.credentials import decode_credential
from sparkraft.zookeeper.znodes.topics import decode_configs
from tests.support.certificates import Authority, named
from tests.support.zookeeper import SecuredEnsemble, digest_login

CERTIFICATE_USER = "CN=broker"


@pytest.fixture(scope="module")
def secured(zookeeper_jars, tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured-zookeeper")
    authority = Authority(folder / "ca")
    with SecuredEnsemble(zookeeper_jars, folder, authority) as ensemble:
        yield ensemble


@pytest.fixture
def session(secured, tmp_path):
    """Returns a session with these configs."""
    count = iter(range(100))

    @asynccontextmanager
    async def opened(*, tls=False, **configs):
        file = tmp_path / f"client-{next(count)}.properties"
        server = secured.connect
        if tls:
            server = secured.secure_connect
            configs = secured.tls_configs() | configs
        file.write_text("".join(f"{key}={value}\n" for key, value in configs.items()))
        async with ensemble_session(server, str(file)) as client:
            yield client

    return opened


def test_a_user_owns_its_znodes_and_others_only_read_them(session):
    async def test():
        user = {**digest_login(), "zookeeper.set.acl": "true"}
        async with session(**user) as owner, session() as stranger:
            for path in ("/config/users/alice", "/brokers/ids"):
                await owner.create_recursive(path)
            acl, _ = await owner.submit(GetAcl(path="/brokers/ids"))
            assert acl == (Acl(31, "sasl", "kafka"), Acl(1, "world", "anyone"))
            acl, _ = await owner.submit(GetAcl(path="/config/users/alice"))
            assert acl == (Acl(31, "sasl", "kafka"),)
            await owner.submit(
                Multi((Create(path="/brokers/ids/1", ephemeral=True),
                       SetData(path="/brokers/ids/1", data=b"x", version=0)))
            )  # fmt: skip
            assert (await stranger.submit(GetData(path="/brokers/ids/1")))[0] == b"x"
            for refused in (
                GetData(path="/config/users/alice"),
                SetData(path="/brokers/ids/1", data=b"y"),
                Create(path="/brokers/ids/2"),
            ):
                with pytest.raises(ZooKeeperError) as raised:
                    await stranger.submit(refused)
                assert raised.value.code == Code.NO_AUTH

    asyncio.run(test())


def test_a_wrong_password_opens_no_session(session, monkeypatch):
    monkeypatch.setattr("sparkraft.cli.zookeeper_session.CONNECT_MS_MAX", 3_000)

    async def test():
        wrong = digest_login("wrong-4471")
        with pytest.raises(CommandError) as raised:
            async with session(**wrong):
                raise AssertionError("it must not open")
        assert "AUTH_FAILED" in str(raised.value)
        assert "wrong-4471" not in str(raised.value)

    asyncio.run(test())


def test_over_tls_the_certificate_is_the_user(session, secured):
    async def test():
        key = secured.authority.issue("broker", subject=named("broker"))
        configs = {
            "zookeeper.ssl.keystore.location": str(key),
            "zookeeper.set.acl": "true",
        }
        async with session(tls=True, **configs) as client:
            await client.create_recursive("/of-certificate")
            acl, _ = await client.submit(GetAcl(path="/of-certificate"))
            assert acl == (Acl(31, "x509", CERTIFICATE_USER), Acl(1, "world", "anyone"))

    asyncio.run(test())


def test_an_ensemble_of_another_authority_is_refused(session, tmp_path, monkeypatch):
    monkeypatch.setattr("sparkraft.cli.zookeeper_session.CONNECT_MS_MAX", 3_000)

    async def test():
        other = Authority(tmp_path / "other", "another authority")
        with pytest.raises(CommandError, match="certificate"):
            async with session(
                tls=True, **{"zookeeper.ssl.truststore.location": str(other.ca_path)}
            ):
                raise AssertionError("it must not open")

    asyncio.run(test())


def configs(secured, tmp_path, *arguments):
    file = tmp_path / "client.properties"
    user = {**digest_login(), "zookeeper.set.acl": "true"}
    file.write_text("".join(f"{key}={value}\n" for key, value in user.items()))
    return configs_command(
        ["--zookeeper", secured.connect, "--zk-tls-config-file", str(file), *arguments]
    )


def test_credentials_are_created_and_deleted_without_a_broker(secured, tmp_path, session):
    entity = ("--alter", "--entity-type", "users", "--entity-name", "a b")
    path = "/config/users/a%20b"

    async def stored():
        async with session(**digest_login()) as client:
            return decode_configs(path, (await client.submit(GetData(path=path)))[0])

    added = "SCRAM-SHA-256=[iterations=8192,password=p-7741],SCRAM-SHA-512=[password=p-7741]"
    assert configs(secured, tmp_path, *entity, "--add-config", added) == 0
    values = asyncio.run(stored())
    assert sorted(values) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    credential = decode_credential(path, "SCRAM-SHA-256", values["SCRAM-SHA-256"])
    assert credential.iterations == 8192
    keys = keys_of(
        BY_NAME["SCRAM-SHA-256"],
        salted_password(BY_NAME["SCRAM-SHA-256"], Secret("p-7741"), credential.salt, 8192),
    )
    assert (credential.stored_key, credential.server_key) == (keys.stored_key, keys.server_key)
    assert configs(secured, tmp_path, *entity, "--delete-config", "SCRAM-SHA-256") == 0
    assert sorted(asyncio.run(stored())) == ["SCRAM-SHA-512"]
    with pytest.raises(CommandError, match="not set"):
        configs(secured, tmp_path, *entity, "--delete-config", "SCRAM-SHA-256")
    for wrong in (
        ("--describe", "--entity-type", "users"),
        (*entity, "--add-config", "SCRAM-SHA-256=[password=p]", "--bootstrap-server", "h:1"),
        ("--alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "a=b"),
    ):
        with pytest.raises(UsageError, match="--zookeeper"):
            configs(secured, tmp_path, *wrong)


def test_the_lists_of_a_cluster_are_set_and_removed(secured, tmp_path):
    connect = f"{secured.connect}/cluster"
    file = tmp_path / "user.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in digest_login().items()))
    arguments = ["--zookeeper.connect", connect, "--zk-tls-config-file", str(file)]
    paths = ("/config/users/alice", "/brokers/topics/t/partitions/0/state", "/controller")
    creator = Acl(31, "sasl", "kafka")

    async def prepare():
        async with ensemble_session(secured.connect, None) as stranger:
            for path in paths:
                await stranger.create_recursive(f"/cluster{path}")

    async def lists():
        async with ensemble_session(connect, str(file)) as client:
            return [(await client.submit(GetAcl(path=path)))[0] for path in ("/", *paths)]

    asyncio.run(prepare())
    for wrong in (["--zookeeper.connect", connect], [*arguments, "--enable.path.check"]):
        with pytest.raises((UsageError, CommandError), match=r"must name a user|missing znodes"):
            security_migration_command(["--zookeeper.acl", "secure", *wrong])
    assert asyncio.run(lists()) == [OPEN_ACL] * 4
    assert security_migration_command(["--zookeeper.acl", "secure", *arguments]) == 0
    readable = (creator, Acl(1, "world", "anyone"))
    assert asyncio.run(lists()) == [readable, (creator,), readable, readable]
    checked = [*arguments, "--enable.path.check"]
    assert security_migration_command(["--zookeeper.acl", "unsecure", *checked]) == 0
    assert asyncio.run(lists()) == [OPEN_ACL] * 4


def test_sasl_and_tls_together(session):
    async def test():
        user = {**digest_login(), "zookeeper.set.acl": "true"}
        async with session(tls=True, **user) as client:
            await client.create_recursive("/of-both")
            acl, _ = await client.submit(GetAcl(path="/of-both"))
            assert Acl(31, "sasl", "kafka") in acl

    asyncio.run(test())

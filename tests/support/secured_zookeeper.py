"""Clusters on a secured ensemble: configs of their brokers, and clients of their users."""

import asyncio
from pathlib import Path
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.configs import main as configs_command
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.connection import Connection
from sparkraft.protocol.messages import k48_describe_client_quotas as k48
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from sparkraft.security.acls import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.login import Login
from sparkraft.security.secret import Secret
from tests.support.sasl import PASSWORDS, SHA_256, SHA_512, server_module
from tests.support.zookeeper import SecuredEnsemble, digest_login

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
TOKEN_KEY = "planted-token-key-4402"
LISTENER = "SASL_PLAINTEXT"

Quotas = dict[Any, float]
"""Entity and key → rate."""


def listener_configs() -> dict[str, str]:
    """Configs by which a node authenticates at brokers, and brokers their clients."""
    prefix = f"listener.name.{LISTENER.lower()}"
    return {
        "inter.broker.listener.name": LISTENER,
        "sasl.enabled.mechanisms": f"{SHA_256},{SHA_512}",
        "sasl.mechanism.inter.broker.protocol": SHA_256,
        f"{prefix}.scram-sha-256.sasl.jaas.config": server_module(SHA_256),
        f"{prefix}.scram-sha-512.sasl.jaas.config": server_module(SHA_512),
        "delegation.token.secret.key": TOKEN_KEY,
        "zookeeper.set.acl": "true",
    }


def broker_configs(port: int) -> dict[str, str]:
    """Configs of a broker in ZooKeeper mode, Kafka's or ours."""
    return {
        "listeners": f"{LISTENER}://127.0.0.1:{port}",
        "advertised.listeners": f"{LISTENER}://127.0.0.1:{port}",
        "listener.security.protocol.map": f"{LISTENER}:{LISTENER}",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        **listener_configs(),
    }


def kafka_environment(ensemble: SecuredEnsemble) -> dict[str, str]:
    """Variables by which Kafka's broker is the ensemble's user."""
    return {"JAVA_TOOL_OPTIONS": f"-Djava.security.auth.login.config={ensemble.jaas_path}"}


def client_file(folder: Path) -> Path:
    """A file for `--zk-tls-config-file`."""
    path = folder / "zookeeper-client.properties"
    configs = {**digest_login(), "zookeeper.set.acl": "true"}
    path.write_text("".join(f"{key}={text}\n" for key, text in configs.items()))
    return path


def create_admin(ensemble: SecuredEnsemble, file: Path) -> None:
    """Create the credential by which brokers authenticate, before any of them runs."""
    code = configs_command(
        ["--zookeeper", ensemble.connect, "--zk-tls-config-file", str(file), "--alter",
         "--entity-type", "users", "--entity-name", "admin",
         "--add-config", f"{SHA_256}=[password={PASSWORDS['admin']}]"]
    )  # fmt: skip
    assert code == 0


class OneBroker(Cluster):
    """A client that asks its bootstrap server, unless only the controller serves a request."""

    async def any_connection(self) -> Connection:
        return await self.connect(*self.bootstrap[0])


def client(bootstrap: str, user: str = "admin", **given: Any) -> Cluster:
    """A client of one broker."""
    password = Secret(given.pop("password", "") or PASSWORDS[user])
    mechanism = given.pop("mechanism", SHA_256)
    return OneBroker(bootstrap, login=Login(mechanism, user, password, **given))


async def until_live(found: Cluster, count: int) -> None:
    """Return once a broker knows as many brokers."""
    for _ in range(400):
        if len((await found.refresh()).nodes) == count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{found.view.nodes}, not {count} brokers")


async def until_logged_in(bootstrap: str, user: str, **given: Any) -> list[str]:
    """Log in once the broker knows the credential; the topics that the user sees there."""
    for _ in range(400):
        try:
            async with client(bootstrap, user, **given) as found:
                return sorted(await Admin(found).list_topics())
        except KafkaError as error:
            if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            await asyncio.sleep(0.05)
    raise AssertionError(f"{user} cannot log in at {bootstrap}")


async def until_seen(bootstrap: str, user: str, expected: list[str], **given: Any) -> None:
    """Return once the user sees these topics at a broker."""
    seen = None
    for _ in range(400):
        seen = await until_logged_in(bootstrap, user, **given)
        if seen == expected:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{user} sees {seen} at {bootstrap}, not {expected}")


def allow(principal: str, name: str, pattern: int = PatternType.LITERAL) -> Acl:
    """An entry that lets a principal read topics."""
    read, permission = AclOperation.READ, AclPermissionType.ALLOW
    return Acl(AclResourceType.TOPIC, name, pattern, principal, "*", read, permission)


ENTITIES = (
    (("user", "alice"),),
    (("user", "alice"), ("client-id", "a b")),
    (("user", None),),
    (("client-id", None),),
    (("ip", "127.0.0.9"),),
)
"""Entities of quotas, of each kind."""


async def set_quotas(writer: Cluster, rate: float) -> Quotas:
    """Set a quota of each of `ENTITIES`; all quotas afterwards."""
    wanted: Quotas = {}
    for entity in ENTITIES:
        key = "connection_creation_rate" if entity[0][0] == "ip" else "consumer_byte_rate"
        parts = [k49.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        entry = k49.AlterClientQuotasRequestEntryData(
            entity=parts, ops=[k49.OpData(key=key, value=rate)]
        )
        answer = await writer.ask_any(k49.AlterClientQuotasRequest(entries=[entry]))
        assert answer.entries[0].error_code == 0, answer
        wanted[frozenset(entity), key] = rate
    return wanted


async def quotas_of(reader: Cluster) -> Quotas:
    """All quotas, as a broker describes them."""
    answer = await reader.ask_any(k48.DescribeClientQuotasRequest(components=[], strict=False))
    return {
        (frozenset((part.entity_type, part.entity_name) for part in entry.entity), value.key):
        value.value
        for entry in answer.entries or []
        for value in entry.values
    }  # fmt: skip


async def until_quotas(reader: Cluster, wanted: Quotas) -> None:
    """Return once a broker describes exactly these."""
    found: Quotas = {}
    for _ in range(400):
        found = await quotas_of(reader)
        if found == wanted:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{found}, not {wanted}")

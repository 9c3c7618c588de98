"""The same requests about delegation tokens to Apache Kafka and to us, on nodes with an authorizer.

Every response is compared field by field, without ids, HMACs and the time of the run: to owners,
requesters, renewers and others, with and without rights, to clients that logged in with a token or
not at all, on a listener of brokers and on one of controllers, and with tokens turned off.
"""

import asyncio
import hashlib
import hmac
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.connection import Connection
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.json_form import to_json
from sparkraft.protocol.messages import k38_create_delegation_token as k38
from sparkraft.protocol.messages import k39_renew_delegation_token as k39
from sparkraft.protocol.messages import k40_expire_delegation_token as k40
from sparkraft.protocol.messages import k41_describe_delegation_token as k41
from sparkraft.protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from sparkraft.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from sparkraft.security.login import Login
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import CLASS_NAME
from tests.support.nodes import KafkaNode, NodeProcess, SparkraftNode
from tests.support.ports import accepts, lasting_ports, wait_until
from tests.support.sasl import PASSWORDS, server_module

pytestmark = [pytest.mark.real_clients, pytest.mark.java, pytest.mark.long]

KEY = "planted-secret-key-3391"
USERS = {**PASSWORDS, "bob": "bob-secret-1177", "eve": "eve-secret-9913"}
PATIENCE_S = 120
SECOND, DAY = 1_000, 86_400_000
VERSIONS = range(1, 4)


def overrides(*, key: str) -> tuple[dict[str, str], int]:
    """A node's configuration, and the port of its PLAINTEXT listener."""
    sasl, plain, controller = lasting_ports(3)
    listener = "listener.name.sasl_plaintext"
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    module = server_module("PLAIN").split(" user_")[0]
    listeners = f"SASL_PLAINTEXT://127.0.0.1:{sasl},PLAINTEXT://127.0.0.1:{plain}"
    config = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{listener}.plain.sasl.jaas.config": f"{module} {users};",
        **{
            f"{listener}.{name.lower()}.sasl.jaas.config": server_module(name)
            for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        },
        "authorizer.class.name": CLASS_NAME,
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": key,
    }
    return config, plain


@dataclass
class Dialogue:
    """Requests to one node, and its answers."""

    ports: dict[str, int]
    answers: list[tuple[str, Any]] = field(default_factory=list)
    tokens: dict[str, k38.CreateDelegationTokenResponse] = field(default_factory=dict)
    begun_ms: int = 0

    async def connect(self, actor: str) -> Connection:
        """A connection of a user, of `plain` or `controller` without one, or `TOKEN's worker`."""
        port, login = self.ports["sasl"], None
        if actor in {"plain", "controller"}:
            port = self.ports[actor]
        elif actor.endswith("'s worker"):
            token = self.tokens[actor.removesuffix("'s worker")]
            secret = Secret(b64encode(bytes(token.hmac)).decode())
            login = Login("SCRAM-SHA-512", token.token_id, secret, by_token=True)
        else:
            login = Login("PLAIN", actor, Secret(USERS[actor]))
        return await Connection.open("127.0.0.1", port, login=login, timeout_ms=60_000)

    async def ask(
        self, actor: str, request: Message, version: int | None = None, *, token: str = ""
    ) -> Any:
        """Send a request, and keep the answer; `token` names what it creates."""
        key = ApiKey(request.SCHEMA.key)
        version = API_INFO[key].max_version if version is None else version
        try:
            connection = await self.connect(actor)
            answer = await connection.send(request, version=version)
            await connection.close()
        except KafkaError as error:
            answer = error
        if isinstance(answer, KafkaError):
            told: Any = answer.code.name
        else:
            if token:
                self.tokens[token] = answer
            told = self._neutral(to_json(answer, version))
        label = f"{len(self.answers)}: {actor}, {API_INFO[key].name} v{version}"
        self.answers.append((label, told))
        return answer

    def _neutral(self, value: Any, name: str = "") -> Any:
        """Without ids, HMACs and times of day; ids are checked against their HMACs."""
        if isinstance(value, dict):
            if value.get("tokenId"):
                digest = hmac.digest(KEY.encode(), value["tokenId"].encode(), hashlib.sha512)
                assert value["hmac"] == b64encode(digest).decode()
                known = {token.token_id: label for label, token in self.tokens.items()}
                value = value | {"tokenId": known.get(value["tokenId"], "new"), "hmac": "fits"}
            return {key: self._neutral(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return sorted((self._neutral(each, name) for each in value), key=str)
        if "imestamp" in name and value > SECOND:
            return f"within {round((value - self.begun_ms) / (10 * 60 * SECOND))} times 10 min"
        return value

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Brokers learn of the controller's decisions a moment later."""
        async with asyncio.timeout(PATIENCE_S):
            while not await condition():  # noqa: ASYNC110 (another process changes it)
                await asyncio.sleep(0.05)

    async def known(self, *labels: str) -> None:
        """Wait until the broker shows exactly these tokens to the super user."""

        async def shows() -> bool:
            connection = await self.connect("admin")
            answer = await connection.send(k41.DescribeDelegationTokenRequest(owners=None))
            await connection.close()
            expected = {self.tokens[label].token_id for label in labels}
            return {token.token_id for token in answer.tokens} == expected

        await self.until(shows)

    async def allow(self, *entries: tuple[AclOperation, AclResourceType, str]) -> None:
        """Give rights to bob, and wait until the broker enforces the last, which must be new."""
        creations = [
            AclCreation(
                resource_type=kind, resource_name=name, principal="User:bob", host="*",
                resource_pattern_type=PatternType.LITERAL, operation=operation,
                permission_type=AclPermissionType.ALLOW,
            )
            for operation, kind, name in entries
        ]  # fmt: skip
        connection = await self.connect("admin")
        answer = await connection.send(CreateAclsRequest(creations=creations))
        await connection.close()
        assert [each.error_code for each in answer.results] == [0] * len(entries)


def creation(*renewers: str, owner: str = "", kind: str = "User", lifetime_ms: int = -1) -> Any:
    return k38.CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else None,
        owner_principal_name=owner or None,
        renewers=[
            k38.CreatableRenewers(principal_type=kind, principal_name=name) for name in renewers
        ],
        max_lifetime_ms=lifetime_ms,
    )


def description(*owners: str) -> Any:
    named = [
        k41.DescribeDelegationTokenOwner(principal_type="User", principal_name=name)
        for name in owners
    ]
    return k41.DescribeDelegationTokenRequest(owners=named or None)


def renewal(token: Any, period_ms: int = -1) -> Any:
    return k39.RenewDelegationTokenRequest(
        hmac=token if isinstance(token, bytes) else bytes(token.hmac), renew_period_ms=period_ms
    )


def expiry(token: Any, period_ms: int = -1) -> Any:
    return k40.ExpireDelegationTokenRequest(
        hmac=token if isinstance(token, bytes) else bytes(token.hmac),
        expiry_time_period_ms=period_ms,
    )


NOBODY_MAY = [creation(), creation("r", kind="Group"), renewal(b"x"), expiry(b"x"), description()]


async def enabled(told: Dialogue) -> None:
    """Every check of every request."""
    for request in NOBODY_MAY:
        await told.ask("plain", request)
    for request in NOBODY_MAY[:4]:
        await told.ask("controller", request)
    for version in VERSIONS:
        label = f"of alice, v{version}"
        bare = k38.CreateDelegationTokenRequest(max_lifetime_ms=-1)
        await told.ask("alice", bare, version, token=label)
    await told.ask("alice", creation("bob", lifetime_ms=2 * 3_600_000), token="renewed by bob")
    for lifetime_ms in (0, 1, 30 * DAY):
        await told.ask("alice", creation(lifetime_ms=lifetime_ms), token=f"for {lifetime_ms} ms")
    await told.ask("alice", creation("r", "s", kind="Group"))
    await told.ask("alice", creation("alice", owner="alice"), token="of alice by name")
    await told.ask("eve", creation(owner="alice"))
    await told.ask("eve", creation("r", owner="alice", kind="Group"))
    await told.ask("admin", creation(owner="alice"), token="of alice by admin")
    await told.ask("admin", creation(owner="bob"), token="of bob by admin")
    await told.known(*told.tokens)
    for version in VERSIONS:
        for actor in ("alice", "bob", "eve", "admin"):
            await told.ask(actor, description(), version)
    for owners in (("alice",), ("bob",), ("admin",), ("eve", "bob"), ("nobody",)):
        for actor in ("alice", "bob", "admin"):
            await told.ask(actor, description(*owners))
    await told.ask("admin", k41.DescribeDelegationTokenRequest(owners=[]))
    await _renewed(told)
    await _rights(told)
    await _workers(told)


async def _renewed(told: Dialogue) -> None:
    token = told.tokens["renewed by bob"]
    for version in (1, 2):
        for period_ms in (-1, 0, 3_600_000, 30 * DAY):
            await told.ask("bob", renewal(token, period_ms), version)
    for actor in ("admin", "eve"):
        await told.ask(actor, renewal(token))
        await told.ask(actor, expiry(token, 5))
        await told.ask(actor, expiry(token, -1))
    by_admin = told.tokens["of alice by admin"]
    await told.ask("admin", renewal(by_admin))
    await told.ask("alice", renewal(by_admin))
    for wrong in (b"", b"x", bytes(64)):
        await told.ask("alice", renewal(wrong))
        await told.ask("alice", expiry(wrong))
    expired = told.tokens["of alice, v1"]
    await told.ask("alice", expiry(expired, 0))
    await asyncio.sleep(0.05)  # Its last millisecond is over, and controllers know of it.

    async def known_as_expired() -> bool:
        connection = await told.connect("alice")
        answer = await connection.send(renewal(expired))
        await connection.close()
        return bool(answer.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED)

    await told.until(known_as_expired)
    for request in (renewal(expired), expiry(expired, 5)):
        for actor in ("alice", "eve"):
            await told.ask(actor, request)
    await told.ask("bob", expiry(told.tokens["of bob by admin"], 7 * 3_600_000))
    await told.ask("eve", expiry(expired, -1))
    await told.ask("alice", expiry(expired, -1))
    del told.tokens["of alice, v1"]
    await told.known(*told.tokens)
    await told.ask("alice", renewal(expired))
    await told.ask("admin", description())


async def _rights(told: Dialogue) -> None:
    """Each right of bob's alone; rights on alice's tokens are no rights on admin's."""
    one = told.tokens["of alice, v2"].token_id
    user, token = AclResourceType.USER, AclResourceType.DELEGATION_TOKEN
    steps = [
        [(AclOperation.CREATE_TOKENS, user, "User:eve"), (AclOperation.DESCRIBE, token, "none")],
        [(AclOperation.DESCRIBE, token, one)],
        [(AclOperation.CREATE_TOKENS, user, "User:alice")],
        [(AclOperation.DESCRIBE_TOKENS, user, "User:alice")],
    ]
    for step in steps:
        await told.allow(*step)

        async def enforced(step: Any = step) -> bool:
            return await _has(told, step[-1][0])

        if step is not steps[0]:
            await told.until(enforced)
        await told.ask("bob", description())
        if step is steps[2]:
            await told.ask("bob", creation(owner="alice"), token="of alice by bob")
            await told.known(*told.tokens)
        elif step is not steps[3]:
            await told.ask("bob", creation(owner="alice"))
        await told.ask("bob", creation(owner="admin"))
        await told.ask("bob", description("alice"))


async def _has(told: Dialogue, operation: AclOperation) -> bool:
    """Whether bob has the right of a step, by what it allows."""
    connection = await told.connect("bob")
    try:
        if operation is AclOperation.CREATE_TOKENS:
            answer = await connection.send(creation("r", owner="alice", kind="Group"))
            return bool(answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE)
        seen = (await connection.send(description("alice"))).tokens
        wanted = {told.tokens["of alice, v2"].token_id}
        if operation is AclOperation.DESCRIBE_TOKENS:
            wanted.add(told.tokens["of alice, v3"].token_id)
        return wanted <= {token.token_id for token in seen}
    finally:
        await connection.close()


async def _workers(told: Dialogue) -> None:
    """A client with a token has its owner's name, and may not send these requests."""
    for label in ("of alice, v3", "of alice by bob"):
        for request in (*NOBODY_MAY, creation(owner="alice"), creation(owner="admin")):
            await told.ask(f"{label}'s worker", request)
    gone = told.tokens["of alice, v3"]
    await told.ask("alice", expiry(gone))
    await told.known(*(label for label in told.tokens if label != "of alice, v3"))
    await told.ask("of alice, v3's worker", description())


async def disabled(told: Dialogue) -> None:
    """Tokens are off; what is checked before that has its error."""
    for actor in ("alice", "admin", "plain"):
        for request in NOBODY_MAY:
            await told.ask(actor, request)
        await told.ask(actor, creation(owner="bob"))
        await told.ask(actor, description("alice"))
        await told.ask(actor, k41.DescribeDelegationTokenRequest(owners=[]))
    for version in VERSIONS:
        bare = k38.CreateDelegationTokenRequest(max_lifetime_ms=-1)
        await told.ask("alice", bare, version)


async def answers_of(node: NodeProcess, plain: int, script: Any) -> list[tuple[str, Any]]:
    import time

    config = node.overrides
    ports = [int(each.rpartition(":")[2]) for each in config["listeners"].split(",")]
    told = Dialogue({"sasl": ports[0], "plain": plain, "controller": ports[2]})
    told.begun_ms = int(time.time() * 1000)
    async with asyncio.timeout(PATIENCE_S * 3):
        await script(told)
    return told.answers


@pytest.mark.parametrize(
    ("key", "script"),
    [(KEY, enabled), ("", disabled)],
    ids=["enabled", "disabled"],
)
def test_both_give_the_same_answers(
    kafka_jars: Path, tmp_path: Path, key: str, script: Any
) -> None:
    told = []
    for node_class, name in ((KafkaNode, "kafka"), (SparkraftNode, "ours")):
        config, plain = overrides(key=key)
        ports = [int(each.rpartition(":")[2]) for each in config["listeners"].split(",")]
        node = node_class(
            tmp_path / name, overrides=config, jars=kafka_jars, ports=(ports[0], ports[2])
        )
        with node:
            for port in (plain, ports[2]):
                wait_until(lambda port=port: accepts(port), f"{name} listens on {port}")
            told.append(asyncio.run(answers_of(node, plain, script)))
    differing = [
        f"{label}\n  Kafka {theirs}\n  we    {ours}"
        for (label, theirs), (_, ours) in zip(*told, strict=True)
        if theirs != ours
    ]
    assert not differing, f"{len(differing)} of {len(told[0])} differ:\n" + "\n".join(differing)
    assert len(told[0]) > (110 if key else 20)

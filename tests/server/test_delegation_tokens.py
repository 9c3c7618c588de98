"""Delegation tokens on nodes: who may ask for them, who logs in with them, what they may do."""

import logging
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.connection import Connection
from sparkraft.protocol import codec, headers
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages import k38_create_delegation_token as k38
from sparkraft.protocol.messages import k39_renew_delegation_token as k39
from sparkraft.protocol.messages import k40_expire_delegation_token as k40
from sparkraft.protocol.messages import k41_describe_delegation_token as k41
from sparkraft.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparkraft.protocol.messages.k58_envelope import EnvelopeRequest
from sparkraft.security.acls import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.delegation_token import TokenKey
from sparkraft.security.login import Login
from sparkraft.security.principal import KafkaPrincipal
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import CLASS_NAME, StandardAuthorizer
from sparkraft.server.broker.envelope import principal_bytes
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.node import Node
from sparkraft.server.sasl_config import inter_broker_login
from tests.server.harness import config_of, connect, format_dir, make_env, run, running, until
from tests.support.envelopes import response_in
from tests.support.sasl import PASSWORDS, SHA_256, SHA_512, server_module

KEY = "planted-secret-key-3391"
USERS = {**PASSWORDS, "bob": "bob-secret-1177"}
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
HOUR_MS = 3_600_000


def properties(path: Path, *, key: str = KEY, **overrides: str) -> dict[str, str]:
    """A node whose clients authenticate by PLAIN, or by SCRAM with a token."""
    format_dir(path)
    listener = "listener.name.plaintext"
    plain = server_module("PLAIN").removesuffix(";") + f' user_bob="{USERS["bob"]}";'
    return config_of(path) | {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{listener}.plain.sasl.jaas.config": plain,
        f"{listener}.scram-sha-256.sasl.jaas.config": server_module(SHA_256),
        f"{listener}.scram-sha-512.sasl.jaas.config": server_module(SHA_512),
        "delegation.token.secret.key": key,
        **{name.replace("_", "."): value for name, value in overrides.items()},
    }


@asynccontextmanager
async def node_with_tokens(path: Path, **given: Any):
    async with running(properties(path, **given)) as node:
        yield node


async def log_in(node: Node, user: str) -> Connection:
    login = Login("PLAIN", user, Secret(USERS[user]))
    return await Connection.open("127.0.0.1", node.ports["PLAINTEXT"], login=login)


def login_by(response: Any, mechanism: str = SHA_256) -> Login:
    from base64 import b64encode

    secret = Secret(b64encode(bytes(response.hmac)).decode())
    return Login(mechanism, response.token_id, secret, by_token=True)


async def log_in_by(node: Node, response: Any, mechanism: str = SHA_256) -> Connection:
    """Log in by the token in a response to CreateDelegationToken, once it is known."""
    await until(lambda: response.token_id in node.broker.image.delegation_tokens)
    login = login_by(response, mechanism)
    return await Connection.open("127.0.0.1", node.ports["PLAINTEXT"], login=login)


def creation(*renewers: str, owner: str | None = None) -> k38.CreateDelegationTokenRequest:
    return k38.CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[
            k38.CreatableRenewers(principal_type="User", principal_name=name) for name in renewers
        ],
        max_lifetime_ms=-1,
    )


def description(*owners: str) -> k41.DescribeDelegationTokenRequest:
    """Of tokens of these owners; of all if none is named."""
    named = [
        k41.DescribeDelegationTokenOwner(principal_type="User", principal_name=name)
        for name in owners
    ]
    return k41.DescribeDelegationTokenRequest(owners=named or None)


ALL_REQUESTS = [
    creation(),
    k39.RenewDelegationTokenRequest(hmac=b"x"),
    k40.ExpireDelegationTokenRequest(hmac=b"x"),
    description(),
]


async def codes(connection: Connection, requests: Any = None) -> list[int]:
    return [(await connection.send(each)).error_code for each in requests or ALL_REQUESTS]


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_client_with_a_token_is_its_owner_and_gets_no_further_tokens(tmp_path, mechanism):
    async def test():
        async with node_with_tokens(tmp_path) as node:
            alice = await log_in(node, "alice")
            token = await alice.send(creation("bob"))
            assert (token.error_code, token.principal_name) == (0, "alice")
            assert token.hmac == TokenKey(Secret(KEY)).hmac_of(token.token_id)
            worker = await log_in_by(node, token, mechanism)
            assert await codes(worker) == [NOT_ALLOWED] * 4
            refused = await worker.send(creation())
            assert (refused.issue_timestamp_ms, refused.max_timestamp_ms) == (-1, -1)
            assert refused.principal_name == "alice"
            await worker.close()
            await alice.close()

    run(test())


def test_versions_without_an_owner(tmp_path):
    async def test():
        async with node_with_tokens(tmp_path) as node:
            alice = await log_in(node, "alice")
            for version in (1, 2):
                request = k38.CreateDelegationTokenRequest(max_lifetime_ms=-1)
                created = await alice.send(request, version=version)
                assert created.error_code == 0
                await until(lambda c=created: c.token_id in node.broker.image.delegation_tokens)
                found = await alice.send(description(), version=version)
                assert created.token_id in [each.token_id for each in found.tokens]
            worker = await log_in_by(node, created)
            refused = await worker.send(
                k38.CreateDelegationTokenRequest(max_lifetime_ms=-1), version=1
            )
            assert refused.error_code == NOT_ALLOWED
            await worker.close()
            await alice.close()

    run(test())


def test_clients_that_did_not_authenticate_get_none(tmp_path):
    """On a PLAINTEXT listener of brokers and of controllers; the renewer is not looked at."""

    async def test():
        format_dir(tmp_path)
        plain = config_of(tmp_path, delegation_token_secret_key=KEY)
        async with running(plain) as node:
            for listener in ("PLAINTEXT", "CONTROLLER"):
                client = await connect(node, listener)
                requests = ALL_REQUESTS if listener == "PLAINTEXT" else ALL_REQUESTS[:3]
                assert await codes(client, requests) == [NOT_ALLOWED] * len(requests)
                await client.close()

    run(test())


def test_without_a_key_tokens_are_off(tmp_path):
    async def test():
        async with node_with_tokens(tmp_path, key="") as node:
            alice = await log_in(node, "alice")
            assert await codes(alice) == [DISABLED] * 4
            bad = creation("bob")
            bad.renewers[0].principal_type = "Group"
            assert await codes(alice, [bad]) == [ErrorCode.INVALID_PRINCIPAL_TYPE]
            await alice.close()

    run(test())


def test_a_token_is_renewed_described_and_removed(tmp_path):
    async def test():
        async with node_with_tokens(tmp_path) as node:
            alice, bob = await log_in(node, "alice"), await log_in(node, "bob")
            token = await alice.send(creation("bob"))
            renewal = k39.RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=HOUR_MS)
            renewed = await bob.send(renewal)
            assert renewed.error_code == 0

            async def described():
                found = (await bob.send(description("alice"))).tokens
                return found and found[0].expiry_timestamp == renewed.expiry_timestamp_ms

            await until(described)
            (found,) = (await bob.send(description("alice"))).tokens
            assert found.hmac == token.hmac
            assert [each.principal_name for each in found.renewers] == ["bob"]
            assert (await alice.send(description("bob"))).tokens == [found]
            empty = k41.DescribeDelegationTokenRequest(owners=[])
            assert (await alice.send(empty)).tokens == []
            removal = k40.ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1)
            assert await codes(bob, [removal, removal]) == [0, 62]
            await until(lambda: not node.broker.image.delegation_tokens)
            with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
                await Connection.open("127.0.0.1", node.ports["PLAINTEXT"], login=login_by(token))
            await alice.close()
            await bob.close()

    run(test())


def allowing(*entries: tuple[AclOperation, AclResourceType, str]) -> list[Acl]:
    return [
        Acl(kind, name, PatternType.LITERAL, "User:bob", "*", operation, AclPermissionType.ALLOW)
        for operation, kind, name in entries
    ]


def test_rights_on_users_and_tokens(tmp_path):
    """Each operation alone, and every other one of the two types without it."""
    secured = {"authorizer_class_name": CLASS_NAME, "super_users": "User:admin;User:ANONYMOUS"}
    token_type, user_type = AclResourceType.DELEGATION_TOKEN, AclResourceType.USER

    async def test():
        async with node_with_tokens(tmp_path, **secured) as node:
            authorizer = node.authorizer
            assert isinstance(authorizer, StandardAuthorizer)
            alice, bob = await log_in(node, "alice"), await log_in(node, "bob")
            token = await alice.send(creation())
            await until(lambda: token.token_id in node.broker.image.delegation_tokens)

            async def visible() -> int:
                answer = await bob.send(description())
                assert answer.error_code == 0
                return len(answer.tokens)

            others = [
                (operation, kind, name)
                for kind, names in ((token_type, (token.token_id,)), (user_type, ("User:alice",)))
                for name in names
                for operation in AclOperation
                if operation > AclOperation.ALL
            ]
            create = AclOperation.CREATE_TOKENS, user_type, "User:alice"
            describe = AclOperation.DESCRIBE, token_type, token.token_id
            describe_all = AclOperation.DESCRIBE_TOKENS, user_type, "User:alice"
            implying = {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE,
                        AclOperation.ALTER}  # fmt: skip
            unable = [
                each for each in others
                if each not in (create, describe, describe_all)
                and not (each[1] == token_type and each[0] in implying)
            ]  # fmt: skip
            failed = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            of_alice = creation(owner="alice")
            for granted, sees, code in (
                (unable, 0, failed),
                ([describe], 1, failed),
                ([describe_all], 1, failed),
            ):
                authorizer.load(allowing(*granted))
                assert await visible() == sees, granted
                refused = await bob.send(of_alice)
                assert refused.error_code == code
                names = refused.principal_name, refused.token_requester_principal_name
                assert names == ("alice", "bob")
                assert refused.expiry_timestamp_ms == -1
            authorizer.load(allowing(create))
            assert await visible() == 0
            created = await bob.send(of_alice)
            assert created.error_code == 0
            await until(lambda: created.token_id in node.broker.image.delegation_tokens)
            assert await visible() == 1, "its requester sees a token"
            assert (await bob.send(creation())).error_code == 0, "of oneself: no right needed"
            await alice.close()
            await bob.close()

    run(test())


def enveloped(request: Any, principal: KafkaPrincipal) -> EnvelopeRequest:
    key = ApiKey(request.SCHEMA.key)
    version = API_INFO[key].max_version
    header = headers.RequestHeader(
        request_api_key=int(key), request_api_version=version, correlation_id=1, client_id="c"
    )
    data = codec.encode(header, headers.request_header_version(key, version))
    return EnvelopeRequest(
        request_data=data + codec.encode(request, version),
        request_principal=principal_bytes(principal),
        client_host_address=bytes((10, 1, 2, 3)),
    )


def test_the_controller_checks_forwarded_requests_again(tmp_path):
    """The broker's own connection may be PLAINTEXT; the client's token flag counts."""

    async def test():
        async with node_with_tokens(tmp_path) as node:
            broker = await connect(node, "CONTROLLER")
            for token, code in ((True, NOT_ALLOWED), (False, 0)):
                alice = KafkaPrincipal("User", "alice", token_authenticated=token)
                for request in ALL_REQUESTS[:3]:
                    key = ApiKey(request.SCHEMA.key)
                    answer = await broker.send(enveloped(request, alice))
                    inner = response_in(answer, key, API_INFO[key].max_version, 1)
                    expected = code or (0 if key == ApiKey.CREATE_DELEGATION_TOKEN else 62)
                    assert inner.error_code == expected
            await broker.close()

    run(test())


def test_a_session_ends_when_its_token_expires(tmp_path):
    """The client learns it at its login; an expired token does not log in, swept or not."""

    async def test():
        env = make_env()
        async with running(properties(tmp_path), env) as node:
            alice = await log_in(node, "alice")
            token = await alice.send(creation())
            worker = await log_in_by(node, token)
            session = next(
                each.session
                for each in node.listeners[0]._connections
                if each.session.principal.token_authenticated
            )
            day_ms = 86_400_000
            left_ms = session.expires_at_ms - env.clock.mono_ms()
            assert day_ms - 60_000 < left_ms <= day_ms
            soon = k40.ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=0)
            assert (await alice.send(soon)).error_code == 0

            def has_expired() -> bool:
                found = node.broker.image.delegation_tokens[token.token_id]
                return found.has_expired(env.clock.wall_ms())

            await until(has_expired)
            with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
                await Connection.open("127.0.0.1", node.ports["PLAINTEXT"], login=login_by(token))
            await worker.close()
            await alice.close()

    run(test())


def test_expired_tokens_are_removed_in_time(tmp_path):
    async def test():
        timing = {"delegation_token_expiry_check_interval_ms": "20",
                  "delegation_token_expiry_time_ms": "300"}  # fmt: skip
        async with node_with_tokens(tmp_path, **timing) as node:
            alice = await log_in(node, "alice")
            token = await alice.send(creation())
            assert token.expiry_timestamp_ms == token.issue_timestamp_ms + 300
            await until(
                lambda: token.token_id not in node.controller_services.image.delegation_tokens
            )
            await alice.close()

    run(test())


def test_no_secret_reaches_logs_files_or_configs(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)

    async def test():
        async with node_with_tokens(tmp_path) as node:
            alice = await log_in(node, "alice")
            token = await alice.send(creation("bob"))
            await alice.send(k39.RenewDelegationTokenRequest(hmac=token.hmac))
            (await log_in_by(node, token)).abort("done")
            resource = DescribeConfigsResource(resource_type=4, resource_name="1")
            configs = await alice.send(DescribeConfigsRequest(resources=[resource]))
            by_name = {each.name: each for each in configs.results[0].configs}
            assert by_name["delegation.token.secret.key"].value is None
            assert by_name["delegation.token.secret.key"].is_sensitive
            await alice.close()
            return token

    token: Any = None

    async def keep():
        nonlocal token
        token = await test()

    run(keep())
    from base64 import b64encode

    encoded = b64encode(bytes(token.hmac))
    written = caplog.text.encode() + b"".join(
        each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()
    )
    assert token.token_id.encode() in written
    for secret in (KEY.encode(), bytes(token.hmac), encoded, bytes(token.hmac).hex().encode()):
        assert secret not in written
    assert f"created delegation token {token.token_id} of User:alice" in caplog.text
    assert "renewed a delegation token" in caplog.text


def test_nodes_do_not_log_in_by_tokens(tmp_path):
    config = properties(tmp_path)
    key = "listener.name.plaintext.scram-sha-256.sasl.jaas.config"
    config[key] = config[key].replace(";", ' tokenauth="true";')
    config["sasl.mechanism.inter.broker.protocol"] = "SCRAM-SHA-256"
    with pytest.raises(ConfigError, match="nodes cannot authenticate with delegation tokens"):
        inter_broker_login(NodeConfig(config))

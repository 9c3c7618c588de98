"""Brokers in ZooKeeper mode with SASL listeners, access control lists, credentials and tokens."""

import asyncio
import json
import logging
from base64 import b64decode
from contextlib import asynccontextmanager

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.acl_admin import AclAdmin
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster
from sparkraft.client.connection import Connection
from sparkraft.client.scram_admin import NewCredential, ScramAdmin
from sparkraft.client.token_admin import TokenAdmin
from sparkraft.client.values import NewTopic
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from sparkraft.protocol.messages import k51_alter_user_scram_credentials as k51
from sparkraft.protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
from sparkraft.protocol.messages.k05_stop_replica import StopReplicaRequest
from sparkraft.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from sparkraft.protocol.messages.k07_controlled_shutdown import ControlledShutdownRequest
from sparkraft.protocol.messages.k56_alter_partition import AlterPartitionRequest
from sparkraft.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.login import Login
from sparkraft.security.scram import BY_NAME
from sparkraft.security.secret import Secret
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.identity import StartRefused
from sparkraft.zookeeper.requests import Create, SetData
from tests.server.harness import batch, produce, run, until
from tests.support.ports import lasting_ports
from tests.support.sasl import PASSWORDS, PLAIN, SHA_256, SHA_512, server_module
from tests.zookeeper.broker.nodes import nodes_in

pytestmark = [pytest.mark.real_time]

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
KEY = "planted-token-key-7715"
TOPIC, LITERAL, PREFIXED = AclResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED


def secured(port):
    """Configs of a broker: users by PLAIN and SCRAM, lists, tokens."""
    prefix = "listener.name.clients"
    return {
        "listeners": f"CLIENTS://127.0.0.1:{port}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": f"{PLAIN},{SHA_256},{SHA_512}",
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        **{
            f"{prefix}.{mechanism.lower()}.sasl.jaas.config": server_module(mechanism)
            for mechanism in (PLAIN, SHA_256, SHA_512)
        },
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        "delegation.token.secret.key": KEY,
        "delegation.token.expiry.check.interval.ms": "200",
    }


async def start(nodes, *brokers, **changes):
    for broker in brokers:
        (port,) = lasting_ports(1)
        nodes.set_port(broker, port)
        await nodes.start(broker, **secured(port) | changes)


def client(nodes, user="admin", *, broker=None, mechanism=PLAIN, password="", by_token=False):
    bootstrap = nodes.bootstrap if broker is None else nodes.address(broker)
    secret = Secret(password or PASSWORDS[user])
    return Cluster(bootstrap, login=Login(mechanism, user, secret, by_token=by_token))


@asynccontextmanager
async def two(folder):
    async with nodes_in(folder) as nodes:
        await start(nodes, 1, 2)
        await until(lambda: all(sorted(nodes[at].broker.image.brokers) == [1, 2] for at in (1, 2)))
        async with client(nodes) as admin:
            await nodes.create(Admin(admin), "t", {0: [1, 2]})
            yield nodes, admin


def allow(principal, operation=AclOperation.READ, *, name="t", pattern=LITERAL):
    return Acl(TOPIC, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)


def znode(nodes, path):
    return json.loads(nodes.ensemble.znodes.get(path).data)


def version(nodes, path):
    return nodes.ensemble.znodes.get(path).version


async def sees(nodes, user, broker):
    """The topics that a user sees at a broker."""
    async with client(nodes, user, broker=broker) as cluster:
        return sorted(await Admin(cluster).list_topics())


async def until_seen(nodes, user, broker, expected):
    for _ in range(2_000):
        if await sees(nodes, user, broker) == expected:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{user} does not see {expected} at broker {broker}")


def test_a_list_is_written_as_by_kafka_and_enforced_by_every_broker(tmp_path):
    async def test():
        async with two(tmp_path) as (nodes, _):
            assert await sees(nodes, "alice", 1) == []
            async with client(nodes, broker=2) as cluster:
                acls = AclAdmin(cluster)
                entry = allow("User:alice")
                made = await acls.create_acls(
                    [entry, allow("User:bob", name="p", pattern=PREFIXED)]
                )
                assert made == [None, None]
                assert znode(nodes, "/kafka-acl/Topic/t") == {
                    "version": 1,
                    "acls": [
                        {"principal": "User:alice", "permissionType": "Allow", "host": "*",
                         "operation": "Read"},
                    ],
                }  # fmt: skip
                (change,) = nodes.children("/kafka-acl-changes")
                assert change == "acl_changes_0000000000"
                data = nodes.ensemble.znodes.get(f"/kafka-acl-changes/{change}").data
                assert data == b"TOPIC:t"
                (change,) = nodes.children("/kafka-acl-extended-changes")
                assert znode(nodes, f"/kafka-acl-extended-changes/{change}") == {
                    "version": 1, "resourceType": "TOPIC", "name": "p", "patternType": "PREFIXED",
                }  # fmt: skip
                # At once where it was created, and soon elsewhere.
                assert await sees(nodes, "alice", 2) == ["t"]
                await until_seen(nodes, "alice", 1, ["t"])
                assert await acls.create_acls([entry]) == [None]
                assert version(nodes, "/kafka-acl/Topic/t") == 0
                more = allow("User:bob", AclOperation.WRITE)
                assert await acls.create_acls([more]) == [None]
                assert version(nodes, "/kafka-acl/Topic/t") == 1
                found = await acls.describe_acls(AclFilter(resource_name="t"))
                assert found == sorted([entry, more])
                gone = await acls.delete_acls(
                    [AclFilter(principal="User:alice"), AclFilter(resource_name="t")]
                )
                # The first filter that selects an entry reports it.
                assert gone == [[entry], [more]]
                assert "t" not in nodes.children("/kafka-acl/Topic")
                assert nodes.children("/kafka-acl-extended/prefixed/Topic") == ["p"]
                await until_seen(nodes, "alice", 1, [])
            # A list of the cluster lets alice change lists, and a broker of ours denies others.
            async with client(nodes, "alice", broker=1) as cluster:
                with pytest.raises(KafkaError) as raised:
                    await AclAdmin(cluster).describe_acls(AclFilter())
                assert raised.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    run(test())


def test_a_list_of_another_writer_is_enforced_and_a_malformed_one_changes_nothing(tmp_path):
    async def test():
        async with two(tmp_path) as (nodes, admin):
            entry = {"principal": "User:alice", "permissionType": "Allow", "host": "*",
                     "operation": "Describe"}  # fmt: skip
            path = "/kafka-acl/Topic/t"
            data = json.dumps({"version": 1, "acls": [entry]}).encode()
            notice = Create(
                path="/kafka-acl-changes/acl_changes_", data=b"Topic:t", sequential=True
            )
            await nodes.submit(Create(path=path, data=data))
            await nodes.submit(notice)
            for broker in (1, 2):
                await until_seen(nodes, "alice", broker, ["t"])
            await nodes.submit(SetData(path=path, data=b"{"))
            await nodes.submit(notice)
            await nodes.submit(
                Create(path="/kafka-acl-changes/acl_changes_", data=b"nonsense", sequential=True)
            )
            # Notifications are applied in their order, so this one comes after both.
            async with client(nodes, broker=2) as other:
                made = await AclAdmin(other).create_acls([allow("User:alice", name="u")])
                assert made == [None]
            await until(lambda: allow("User:alice", name="u") in acls_of(nodes, 1))
            assert len(acls_of(nodes, 1)) == 2
            assert await sees(nodes, "alice", 1) == ["t"]
            # It cannot be extended either.
            (refused,) = await AclAdmin(admin).create_acls([allow("User:bob")])
            assert refused.code == ErrorCode.UNKNOWN_SERVER_ERROR
            await nodes.stop(2)
            with pytest.raises(StartRefused, match="/kafka-acl/Topic/t"):
                await start(nodes, 2)

    run(test())


def test_what_kafka_3_9_cannot_store_is_refused_entry_by_entry(tmp_path):
    async def test():
        async with two(tmp_path) as (nodes, admin):
            made = await AclAdmin(admin).create_acls(
                [
                    allow("User:a", name="a/b"),
                    Acl(AclResourceType.TRANSACTIONAL_ID, "x", LITERAL, "User:a", "*",
                        AclOperation.TWO_PHASE_COMMIT, AclPermissionType.ALLOW),
                    allow("User:a", name="good"),
                ]
            )  # fmt: skip
            assert [None if each is None else (each.code, each.detail) for each in made] == [
                (ErrorCode.INVALID_REQUEST, "Failed to create ACL"),
                (ErrorCode.INVALID_REQUEST, "Failed to create ACL"),
                None,
            ]
            assert nodes.children("/kafka-acl/Topic") == ["good"]

    run(test())


def test_two_brokers_that_change_a_list_at_once_lose_no_entry(tmp_path):
    async def test():
        async with (
            two(tmp_path) as (nodes, _),
            client(nodes, broker=1) as first,
            client(nodes, broker=2) as second,
        ):
            entries = [allow(f"User:u{number}") for number in range(12)]
            made = await asyncio.gather(
                *(
                    AclAdmin((first, second)[at % 2]).create_acls([entry])
                    for at, entry in enumerate(entries)
                )
            )
            assert made == [[None]] * 12
            assert len(znode(nodes, "/kafka-acl/Topic/t")["acls"]) == 12
            for broker in (1, 2):
                await until(
                    lambda at=broker: (
                        sorted(nodes[at].broker.image.acls.values()) == sorted(entries)
                    )
                )

    run(test())


def test_credentials_share_the_znode_with_quotas_and_let_clients_log_in(tmp_path):
    async def test():
        async with two(tmp_path) as (nodes, admin):
            entity = [k49.EntityData(entity_type="user", entity_name="new user")]
            op = k49.OpData(key="producer_byte_rate", value=1024.0)
            entry = k49.AlterClientQuotasRequestEntryData(entity=entity, ops=[op])
            assert (await admin.ask_any(k49.AlterClientQuotasRequest(entries=[entry]))).entries
            scram = ScramAdmin(admin)
            await scram.alter(
                "new user",
                add=[NewCredential(BY_NAME[each], Secret("pass-8842")) for each in BY_NAME],
            )
            values = znode(nodes, "/config/users/new%20user")["config"]
            assert sorted(values) == [SHA_256, SHA_512, "producer_byte_rate"]
            fields = dict(part.partition("=")[::2] for part in values[SHA_256].split(","))
            assert list(fields) == ["salt", "stored_key", "server_key", "iterations"]
            assert len(b64decode(fields["stored_key"])) == 32
            for broker in (1, 2):
                await until(lambda at=broker: len(nodes[at].broker.image.scram) == 2)
                for mechanism in (SHA_256, SHA_512):
                    user = client(nodes, "new user", broker=broker, mechanism=mechanism,
                                  password="pass-8842")  # fmt: skip
                    async with user as cluster:
                        assert await Admin(cluster).list_topics() == {}
            assert list(await scram.describe()) == ["new user"]
            await scram.alter("new user", delete=list(BY_NAME.values()))
            assert znode(nodes, "/config/users/new%20user")["config"] == {
                "producer_byte_rate": "1024"
            }
            await until(lambda: not nodes[2].broker.image.scram)
            with pytest.raises(KafkaError) as raised:
                await scram.alter("new user", delete=[BY_NAME[SHA_256]])
            assert raised.value.code == ErrorCode.RESOURCE_NOT_FOUND

    run(test())


def test_a_request_changes_both_mechanisms_of_a_user_or_none(tmp_path):
    def upsertion(user, mechanism, iterations=4096):
        return k51.ScramCredentialUpsertion(
            name=user, mechanism=BY_NAME[mechanism].type, iterations=iterations, salt=b"s",
            salted_password=b"p" * 32,
        )  # fmt: skip

    async def test():
        async with two(tmp_path) as (nodes, admin):
            request = k51.AlterUserScramCredentialsRequest(
                upsertions=[
                    upsertion("both", SHA_256),
                    upsertion("both", SHA_512),
                    upsertion("half", SHA_256),
                    upsertion("half", SHA_512, iterations=1),
                    upsertion("twice", SHA_256),
                    upsertion("twice", SHA_256),
                ]
            )
            response = await admin.ask_controller(request)
            assert {each.user: each.error_code for each in response.results} == {
                "both": 0,
                "half": ErrorCode.UNACCEPTABLE_CREDENTIAL,
                "twice": ErrorCode.DUPLICATE_RESOURCE,
            }
            assert nodes.children("/config/users") == ["both"]
            # Only the controller does it: Kafka 3.9 refuses it elsewhere, and so do we.
            async with client(nodes, broker=2) as cluster:
                refused = await cluster.ask_any(request)
                assert {each.error_code for each in refused.results} == {ErrorCode.NOT_CONTROLLER}

    run(test())


def test_a_token_of_one_broker_logs_in_at_the_other_until_it_is_removed(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    secrets = [KEY, *PASSWORDS.values()]

    async def test():
        async with two(tmp_path) as (nodes, _), client(nodes, "alice", broker=1) as cluster:
            tokens = TokenAdmin(cluster)
            token = await tokens.create()
            path = f"/delegation_token/tokens/{token.token_id}"
            assert znode(nodes, path)["owner"] == "User%3Aalice"
            (change,) = nodes.children("/delegation_token/token_changes")
            data = nodes.ensemble.znodes.get(f"/delegation_token/token_changes/{change}").data
            assert data.decode() == token.token_id
            hmac = token.hmac.reveal()
            secrets.append(hmac)
            await until(lambda: token.token_id in nodes[2].broker.image.delegation_tokens)
            worker = client(nodes, token.token_id, broker=2, mechanism=SHA_256, password=hmac,
                            by_token=True)  # fmt: skip
            async with worker as logged_in:
                assert await Admin(logged_in).list_topics() == {}
            at = await tokens.renew(b64decode(hmac), period_ms=3_600_000)
            assert znode(nodes, path)["expiryTimestamp"] == at
            assert [each.token_id for each in await tokens.describe()] == [token.token_id]
            # It expires, and the controller removes it.
            await tokens.expire(b64decode(hmac), period_ms=0)
            await until(lambda: nodes.children("/delegation_token/tokens") == [])
            await until(lambda: not nodes[2].broker.image.delegation_tokens)

    run(test())
    assert "is the controller" in caplog.text
    for secret in secrets:
        assert secret not in caplog.text


def test_with_an_authorizer_only_the_controller_takes_requests_for_it(tmp_path):
    async def test():
        async with two(tmp_path) as (nodes, admin):
            made = await Admin(admin).create_topics([NewTopic(name="u", partitions=1)])
            assert not isinstance(made["u"], KafkaError)
            async with client(nodes, broker=2) as cluster:
                request = k51.AlterUserScramCredentialsRequest(
                    deletions=[k51.ScramCredentialDeletion(name="a", mechanism=1)]
                )
                refused = await cluster.ask_any(request)
                assert refused.results[0].error_code == ErrorCode.NOT_CONTROLLER
                # Our client then asks the broker that Metadata names.
                made = await Admin(cluster).create_topics([NewTopic(name="v", partitions=1)])
                assert not isinstance(made["v"], KafkaError)
                add = [NewCredential(BY_NAME[SHA_256], Secret("pass-1196"))]
                await ScramAdmin(cluster).alter("v", add=add)

    run(test())


def test_a_list_that_changes_while_a_session_is_expired_is_enforced_in_the_next_one(tmp_path):
    async def test():
        async with two(tmp_path) as (nodes, admin):
            entry = allow("User:alice")
            assert await AclAdmin(admin).create_acls([entry]) == [None]
            await until_seen(nodes, "alice", 2, ["t"])
            session = nodes[2].session_id
            nodes.ensemble.expire(session)
            # Nobody notifies of this change, and of that of another resource an old session would.
            nodes.ensemble.znodes.get("/kafka-acl/Topic/t").data = json.dumps(
                {"version": 1, "acls": []}
            ).encode()
            await until(lambda: nodes[2].session_id not in (0, session))
            await until_seen(nodes, "alice", 2, [])
            assert await AclAdmin(admin).create_acls([allow("User:alice", name="u")]) == [None]
            await until(lambda: allow("User:alice", name="u") in acls_of(nodes, 2))

    run(test())


def acls_of(nodes, broker):
    return set(nodes[broker].broker.image.acls.values())


@pytest.mark.parametrize("is_first", [True, False])
def test_a_change_whose_reply_is_lost_is_applied_once_and_reaches_other_brokers(tmp_path, is_first):
    async def test():
        async with two(tmp_path) as (nodes, _), client(nodes, broker=1) as cluster:
            acls = AclAdmin(cluster)
            if not is_first:
                assert await acls.create_acls([allow("User:bob")]) == [None]
            lost = lose_reply(nodes, nodes[1].session_id, "/kafka-acl/Topic/t")
            assert await acls.create_acls([allow("User:alice")]) == [None]
            assert lost == ["/kafka-acl/Topic/t"]
            stored = znode(nodes, "/kafka-acl/Topic/t")["acls"]
            assert len(stored) == 2 - is_first
            await until(lambda: allow("User:alice") in acls_of(nodes, 2))

    run(test())


def lose_reply(nodes, session_id, path):
    """Apply the next write of a znode in a session, and disconnect before its reply."""
    ensemble, lost = nodes.ensemble, []
    write = ensemble.write

    def apply_and_disconnect(session, request):
        result = write(session, request)
        if request.path == path and session.id == session_id:
            ensemble.write = write
            lost.append(path)
            session.link.close()
        return result

    ensemble.write = apply_and_disconnect
    return lost


def test_the_controller_uses_a_listener_of_its_own_with_its_own_credentials(tmp_path):
    module = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="controller" password="c-3317" user_controller="c-3317";'
    )
    protocols = "CLIENTS:SASL_PLAINTEXT,CONTROL:SASL_PLAINTEXT"

    async def test():
        async with nodes_in(tmp_path) as nodes:
            for broker in (1, 2):
                ports = lasting_ports(2)
                nodes.set_port(broker, ports[0])
                changes = {
                    "listeners": f"CLIENTS://127.0.0.1:{ports[0]},CONTROL://127.0.0.1:{ports[1]}",
                    "listener.security.protocol.map": protocols,
                    "control.plane.listener.name": "CONTROL",
                    "listener.name.control.sasl.enabled.mechanisms": PLAIN,
                    "listener.name.control.plain.sasl.jaas.config": module,
                    "super.users": "User:admin;User:controller",
                }
                await nodes.start(broker, **secured(ports[0]) | changes)
            await until(
                lambda: all(sorted(nodes[at].broker.image.brokers) == [1, 2] for at in (1, 2))
            )
            async with client(nodes) as admin:
                await nodes.create(Admin(admin), "t", {0: [1, 2], 1: [2, 1]})

    run(test())


def test_a_quota_in_a_znode_throttles(tmp_path):
    async def test():
        async with two(tmp_path) as (nodes, admin):
            entity = [k49.EntityData(entity_type="user", entity_name="admin")]
            op = k49.OpData(key="producer_byte_rate", value=100.0)
            entry = k49.AlterClientQuotasRequestEntryData(entity=entity, ops=[op])
            await admin.ask_any(k49.AlterClientQuotasRequest(entries=[entry]))
            await until(lambda: bool(nodes[1].broker.image.quotas))
            port = int(nodes.address(1).rpartition(":")[2])
            login = Login(PLAIN, "admin", Secret(PASSWORDS["admin"]))
            connection = await Connection.open("127.0.0.1", port, login=login)
            topic_id = nodes[1].broker.image.topics_by_name["t"]
            response = await connection.send(produce(topic_id, batch(b"x" * 5_000)))
            assert response.responses[0].partition_responses[0].error_code == 0
            assert response.throttle_time_ms > 0
            await connection.close()

    run(test())


def test_a_long_list_is_stored_and_enforced(tmp_path):
    async def test():
        async with two(tmp_path) as (nodes, admin):
            acls = AclAdmin(admin)
            entries = [allow(f"User:u{number}") for number in range(1_500)]
            assert set(await acls.create_acls([*entries, allow("User:alice")])) == {None}
            assert len(znode(nodes, "/kafka-acl/Topic/t")["acls"]) == 1_501
            for broker in (1, 2):
                await until_seen(nodes, "alice", broker, ["t"])
            (gone,) = await acls.delete_acls([AclFilter(resource_name="t")])
            assert len(gone) == 1_501
            assert nodes.children("/kafka-acl/Topic") == []

    run(test())


def test_requests_of_brokers_and_the_controller_need_the_right_to_act_for_the_cluster(tmp_path):
    requests = [
        LeaderAndIsrRequest(controller_id=2, controller_epoch=9, broker_epoch=-1),
        StopReplicaRequest(controller_id=2, controller_epoch=9, broker_epoch=-1),
        UpdateMetadataRequest(controller_id=2, controller_epoch=9, broker_epoch=-1),
        ControlledShutdownRequest(broker_id=2, broker_epoch=-1),
        AlterPartitionRequest(broker_id=2, broker_epoch=-1),
        AllocateProducerIdsRequest(broker_id=2, broker_epoch=-1),
    ]

    async def test():
        async with nodes_in(tmp_path) as nodes:
            # A list without data is empty.
            for path in ("/kafka-acl", "/kafka-acl/Topic", "/kafka-acl/Topic/t"):
                await nodes.submit(Create(path=path))
            await start(nodes, 1)
            await until(lambda: sorted(nodes[1].broker.image.brokers) == [1])
            port = int(nodes.address(1).rpartition(":")[2])
            login = Login(PLAIN, "alice", Secret(PASSWORDS["alice"]))
            connection = await Connection.open("127.0.0.1", port, login=login)
            for request in requests:
                response = await connection.send(request)
                assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, request
            assert nodes[1].is_controller
            assert sorted(nodes[1].broker.image.brokers) == [1]
            await connection.close()

    run(test())


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
         "AclAuthorizer"),
        ("authorizer.class.name", "org.example.Authorizer", "AclAuthorizer"),
        ("authorizer.zookeeper.url", "127.0.0.1:2182", "another ensemble"),
    ],
)  # fmt: skip
def test_other_authorizers_are_refused(key, value, reason, tmp_path):
    properties = {"broker.id": "1", "zookeeper.connect": "127.0.0.1:1", "log.dirs": str(tmp_path)}
    with pytest.raises(ConfigError, match=reason):
        NodeConfig(properties | secured(0) | {key: value})

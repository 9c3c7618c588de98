"""A node with Kafka's StandardAuthorizer: its entries are replayed, enforced and kept."""

import asyncio
import logging
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.cli.main import main
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE
from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from sparkraft.protocol.messages.k16_list_groups import ListGroupsRequest
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from sparkraft.protocol.messages.k29_describe_acls import DescribeAclsRequest
from sparkraft.protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from sparkraft.protocol.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from sparkraft.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from sparkraft.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.security.principal import KafkaPrincipal
from sparkraft.security.standard_authorizer import CLASS_NAME, StandardAuthorizer
from sparkraft.server import access_control
from sparkraft.server.access_control import AclPublisher, authorizer_of
from sparkraft.server.config import ConfigError, NodeConfig
from sparkraft.server.node import Node
from sparkraft.server.raft.metadata_log_listener import CommittedBatch
from tests.server.harness import (
    CLUSTER_ID,
    append,
    batch,
    config_of,
    connect,
    create_topic,
    make_env,
    node_in,
    run,
    until,
)
from tests.support.sessions import client_session

ANY, LITERAL, PREFIXED, MATCH = 1, 3, 4, 2
TOPIC, CLUSTER = 2, 4
ALL, READ, WRITE, ALTER = 2, 3, 4, 7
DENY, ALLOW = 2, 3
SECURED = {"authorizer_class_name": CLASS_NAME, "super_users": "User:ANONYMOUS;User:admin"}
BOB = KafkaPrincipal("User", "bob")
OPEN = {"authorizer_class_name": CLASS_NAME, "allow_everyone_if_no_acl_found": " TRUE "}


def creation(name: str, **more: Any) -> AclCreation:
    wanted = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:bob",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**{**wanted, **more})


def everything() -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


async def create(client: Any, *creations: AclCreation) -> list[int]:
    response = await client.send(CreateAclsRequest(creations=list(creations)))
    return [result.error_code for result in response.results]


async def listed(client: Any) -> list[tuple[str, str, int, int]]:
    response = await client.send(everything())
    assert response.error_code == 0
    return [
        (resource.resource_name, acl.principal, acl.operation, acl.permission_type)
        for resource in response.resources
        for acl in resource.acls
    ]


def session_of(node: Any) -> Any:
    """A session of the user bob on this node."""
    return client_session(BOB, authorizer=node.authorizer)


def may(node: Any, operation: AclOperation, name: str, kind: int = TOPIC) -> bool:
    allowed: bool = node.authorizer.authorize(
        session_of(node), operation, AclResourceType(kind), name
    )
    return allowed


def test_entries_are_created_described_enforced_deleted_and_survive_restarts(tmp_path):
    async def test():
        async with node_in(tmp_path, **SECURED) as node:
            client = await connect(node)
            wanted = [creation("a"), creation("b-", resource_pattern_type=PREFIXED), creation("c")]
            assert await create(client, *wanted) == [0, 0, 0]
            await until(lambda: may(node, AclOperation.READ, "a"))
            assert may(node, AclOperation.READ, "b-1")
            assert not may(node, AclOperation.WRITE, "a")
            assert not may(node, AclOperation.READ, "b")
            assert await listed(client) == [
                (name, "User:bob", READ, ALLOW) for name in ("a", "b-", "c")
            ]
            deletion = DeleteAclsRequest(
                filters=[
                    DeleteAclsFilter(
                        resource_type_filter=TOPIC,
                        resource_name_filter="b-1",
                        pattern_type_filter=MATCH,
                        principal_filter=None,
                        host_filter=None,
                        operation=ANY,
                        permission_type=ANY,
                    )
                ]
            )
            (result,) = (await client.send(deletion)).filter_results
            assert [match.resource_name for match in result.matching_acls] == ["b-"]
            await until(lambda: not may(node, AclOperation.READ, "b-1"))
            await client.close()
        async with node_in(tmp_path, **SECURED) as node:
            assert may(node, AclOperation.READ, "c")
            assert not may(node, AclOperation.READ, "b-1")
            client = await connect(node, "CONTROLLER")
            assert [name for name, *_ in await listed(client)] == ["a", "c"]
            await client.close()

    run(test())


def test_controllers_create_and_delete_too(tmp_path):
    async def test():
        async with node_in(tmp_path, **SECURED) as node:
            client = await connect(node, "CONTROLLER")
            assert await create(client, creation("a"), creation("")) == [
                0,
                ErrorCode.INVALID_REQUEST,
            ]
            await until(lambda: may(node, AclOperation.READ, "a"))
            await client.close()

    run(test())


def test_a_described_filter_selects_by_pattern(tmp_path):
    async def test():
        async with node_in(tmp_path, **SECURED) as node:
            client = await connect(node)
            await create(
                client,
                creation("abc"),
                creation("ab", resource_pattern_type=PREFIXED),
                creation("*", permission_type=DENY),
                creation("other"),
            )
            request = everything()
            request.resource_type_filter = TOPIC
            request.resource_name_filter = "abc"
            for pattern, names in ((MATCH, ["*", "ab", "abc"]), (LITERAL, ["abc"])):
                request.pattern_type_filter = pattern
                found = (await client.send(request)).resources
                assert [resource.resource_name for resource in found] == names
            await client.close()

    run(test())


def test_a_client_without_entries_is_denied_and_one_with_some_is_served(tmp_path):
    async def test():
        async with node_in(tmp_path, **SECURED) as node:
            admin = await connect(node)
            topic_id = await create_topic(admin, "t")
            for listener in node.listeners:  # from now on clients are nobody special
                listener.session_of = lambda host: client_session(  # type: ignore[method-assign]
                    BOB, authorizer=node.authorizer, client_host=host
                )
            bob = await connect(node)
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert (await append(bob, topic_id, batch(b"v"), acks=1)).error_code == denied
            assert await create(bob, creation("t", operation=WRITE)) == [
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            ]
            assert (await bob.send(everything())).error_code == (
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
            assert await create(admin, creation("t", operation=WRITE)) == [0]
            await until(lambda: may(node, AclOperation.WRITE, "t"))
            for _ in range(3):
                assert (await append(bob, topic_id, batch(b"v"), acks=1)).error_code == 0
            assert await create(admin, creation("t", operation=ALL, permission_type=DENY)) == [0]
            await until(lambda: not may(node, AclOperation.WRITE, "t"))
            assert (await append(bob, topic_id, batch(b"v"), acks=1)).error_code == denied
            await admin.close()
            await bob.close()

    run(test())


def test_everyone_is_allowed_until_somebody_has_an_entry(tmp_path):
    async def test():
        async with node_in(tmp_path, **OPEN) as node:
            client = await connect(node)
            topic_id = await create_topic(client, "t")
            assert (await append(client, topic_id, batch(b"v"), acks=1)).error_code == 0
            assert await create(client, creation("t", principal="User:x")) == [0]
            await until(lambda: not may(node, AclOperation.READ, "t"))
            answer = await append(client, topic_id, batch(b"v"), acks=1)
            assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert may(node, AclOperation.READ, "other")
            await client.close()

    run(test())


# ---- the start


def with_voters(tmp_path, count: int, **more: str) -> NodeConfig:
    properties = config_of(tmp_path, **{"authorizer_class_name": CLASS_NAME, **more})
    if count > 1:
        properties["controller.quorum.voters"] += ",2@127.0.0.1:1"
    return NodeConfig(properties)


def test_controllers_of_a_quorum_must_be_super_users(tmp_path):
    with pytest.raises(ConfigError, match=r"super\.users must contain User:ANONYMOUS"):
        authorizer_of(with_voters(tmp_path, 2))
    assert authorizer_of(with_voters(tmp_path, 1)).allows_all is False
    assert authorizer_of(with_voters(tmp_path, 2, super_users="User:ANONYMOUS"))


def with_bootstrap_servers(tmp_path, *servers: str, **more: str) -> dict[str, str]:
    properties = config_of(tmp_path, **{"authorizer_class_name": CLASS_NAME, **more})
    del properties["controller.quorum.voters"]
    return properties | {"controller.quorum.bootstrap.servers": ",".join(servers)}


def test_controllers_of_a_dynamic_quorum_must_be_super_users(tmp_path):
    three = ("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
    with pytest.raises(ConfigError, match=r"super\.users must contain User:ANONYMOUS"):
        authorizer_of(NodeConfig(with_bootstrap_servers(tmp_path, *three)))
    users = with_bootstrap_servers(tmp_path, *three, super_users="User:ANONYMOUS")
    assert authorizer_of(NodeConfig(users))
    assert authorizer_of(NodeConfig(with_bootstrap_servers(tmp_path, *three[:1])))


def test_the_voters_of_the_log_count_if_the_configs_name_one_controller(tmp_path):
    """A list of addresses need not be complete; the voters of a dynamic quorum are in its log."""
    properties = with_bootstrap_servers(tmp_path / "data", "127.0.0.1:1")
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    voters = f"1@127.0.0.1:1:{Uuid(bytes(15) + b'a')},2@127.0.0.1:2:{Uuid(bytes(15) + b'b')}"
    command = ["storage", "format", "-c", str(path), "-t", CLUSTER_ID]
    assert main([*command, "--initial-controllers", voters]) == 0

    async def test():
        node = Node(NodeConfig(properties), make_env())
        try:
            await node.start()
        finally:
            await node.stop()

    with pytest.raises(ConfigError, match=r"super\.users must contain User:ANONYMOUS"):
        run(test())


def test_a_node_warns_of_a_principal_of_nodes_that_is_not_a_super_user(tmp_path, caplog):
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = 'username="node" password="n" user_node="n";'
    properties = config_of(tmp_path, authorizer_class_name=CLASS_NAME) | {
        "super.users": "User:ANONYMOUS",
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{login} {users}",
    }
    authorizer_of(NodeConfig(properties))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("User:node is not in super.users")
    caplog.clear()
    authorizer_of(NodeConfig(properties | {"super.users": "User:ANONYMOUS;User:node"}))
    assert caplog.records == []


def test_malformed_super_users_and_other_classes_stop_the_start(tmp_path):
    with pytest.raises(ConfigError, match="'admin'"):
        authorizer_of(with_voters(tmp_path, 1, super_users="admin"))
    with pytest.raises(ConfigError, match="StandardAuthorizer"):
        NodeConfig(config_of(tmp_path, authorizer_class_name="org.example.Authorizer"))


def test_the_authorizers_keys_are_known(tmp_path):
    config = NodeConfig(config_of(tmp_path, **(SECURED | OPEN)))
    assert config.unknown == []
    assert config.without_effect == []


# ---- the publisher


def uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def entry(number: int, name: str) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=uuid(number), resource_type=TOPIC, resource_name=name, pattern_type=LITERAL,
        principal="User:bob", host="*", operation=READ, permission_type=ALLOW,
    )  # fmt: skip


class Log:
    """Commits records to an image and its publisher."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.authorizer = StandardAuthorizer()
        self.publisher = AclPublisher(self.authorizer, lambda: self.image)

    def commit(self, *records: Any, is_stable: bool = True) -> None:
        image = self.image
        for record in records:
            image = apply(image, record)
        self.pending = image
        if is_stable:
            self.image = image
        self.publisher.on_commit(CommittedBatch(0, 0, 1, 0, 1, list(records)))  # type: ignore[arg-type]

    def may_read(self, name: str) -> bool:
        session = client_session(BOB, authorizer=self.authorizer)
        return self.authorizer.authorize(session, AclOperation.READ, AclResourceType.TOPIC, name)


def test_the_publisher_follows_replacements_removals_and_snapshots():
    log = Log()
    log.publisher.on_high_watermark(1)  # type: ignore[arg-type]
    log.commit(entry(1, "a"), entry(2, "b"))
    assert log.may_read("a")
    log.commit(entry(1, "c"), RemoveAccessControlEntryRecord(id=uuid(2)))
    assert [log.may_read(name) for name in "abc"] == [False, False, True]
    log.image = apply(EMPTY_IMAGE, entry(9, "d"))
    log.publisher.on_snapshot(None)  # type: ignore[arg-type]
    assert [log.may_read(name) for name in "cd"] == [False, True]
    log.commit(RemoveAccessControlEntryRecord(id=uuid(9)))
    assert not log.may_read("d")


def test_the_entries_of_a_snapshot_are_indexed_in_pieces_and_enforced_at_once(monkeypatch):
    monkeypatch.setattr(access_control, "ENTRIES_PER_ITERATION", 2)
    log = Log()
    log.publisher.on_high_watermark(1)  # type: ignore[arg-type]
    log.commit(entry(1, "a"))
    image = EMPTY_IMAGE
    for number, name in enumerate("bcdef", 2):
        image = apply(image, entry(number, name))
    for _ in log.publisher.prepare_snapshot(image):
        assert [log.may_read(name) for name in "abc"] == [True, False, False]
    assert len(list(log.publisher.prepare_snapshot(image))) == 2
    log.image = image
    monkeypatch.setattr(log.authorizer, "load", None)  # it would index all of them in one go
    log.publisher.on_snapshot(image)
    assert [log.may_read(name) for name in "abc"] == [False, True, True]


def test_entries_of_a_metadata_transaction_are_enforced_when_it_ends():
    log = Log()
    log.publisher.on_high_watermark(1)  # type: ignore[arg-type]
    log.commit(entry(1, "a"), is_stable=False)
    assert not log.may_read("a")
    log.image = log.pending
    log.publisher.on_commit(CommittedBatch(0, 0, 1, 0, 1, []))  # type: ignore[arg-type]
    assert log.may_read("a")


def test_the_authorizer_decides_once_all_is_loaded():
    log = Log()
    log.commit(entry(1, "a"))
    assert not log.authorizer.is_loaded
    log.publisher.on_high_watermark(1)  # type: ignore[arg-type]
    assert log.authorizer.is_loaded
    assert log.may_read("a")


def test_a_controller_listener_serves_only_super_users_before_the_load(tmp_path):
    async def test():
        async with node_in(tmp_path, **SECURED) as node:
            node.authorizer._is_loaded = False
            client = await connect(node, "CONTROLLER")
            assert (await client.send(everything())).error_code == 0
            for listener in node.listeners:
                listener.session_of = lambda host: client_session(  # type: ignore[method-assign]
                    BOB, authorizer=node.authorizer, client_host=host
                )
            bob = await connect(node, "CONTROLLER")
            assert (await bob.send(everything())).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            await client.close()
            await bob.close()
            await asyncio.sleep(0)

    run(test())


def test_denials_are_logged_as_kafkas_authorizer_does_and_filters_are_not(tmp_path, caplog):
    async def test():
        async with node_in(tmp_path, **SECURED) as node:
            admin = await connect(node)
            topic_id = await create_topic(admin, "t")
            for listener in node.listeners:
                listener.session_of = lambda host: client_session(  # type: ignore[method-assign]
                    BOB, authorizer=node.authorizer, client_host=host
                )
            bob = await connect(node)
            await append(bob, topic_id, batch(b"v"), acks=1)
            await bob.send(MetadataRequest(topics=None))
            await bob.send(ListGroupsRequest())
            await bob.send(InitProducerIdRequest(transactional_id=None))
            await admin.close()
            await bob.close()

    caplog.set_level(logging.INFO, "sparkraft.authorizer")
    run(test())
    lines = [record.getMessage() for record in caplog.records if "authorizer" in record.name]
    assert lines == [
        "Principal = User:bob is Denied operation = WRITE from host = 127.0.0.1 on resource = "
        "Topic:LITERAL:t for request = Produce with resourceRefCount = 1 based on rule DefaultDeny"
    ]


def test_authorized_operations_are_those_of_the_entries(tmp_path):
    async def test():
        async with node_in(tmp_path, **SECURED) as node:
            admin = await connect(node)
            await create_topic(admin, "t")
            assert await create(
                admin,
                creation("t", operation=READ),
                creation("t", operation=ALTER),
                creation("t", operation=ALTER, permission_type=DENY),
                creation("absent", operation=READ),
            ) == [0, 0, 0, 0]
            await until(lambda: may(node, AclOperation.READ, "absent"))
            for listener in node.listeners:
                listener.session_of = lambda host: client_session(  # type: ignore[method-assign]
                    BOB, authorizer=node.authorizer, client_host=host
                )
            bob = await connect(node)
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in ("t", "absent", "hidden")],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
            )
            found = {topic.name: topic for topic in (await bob.send(request)).topics}
            bits = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
            assert found["t"].topic_authorized_operations == bits
            assert found["absent"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert found["absent"].topic_authorized_operations == bits
            assert found["hidden"].topic_authorized_operations == -(1 << 31)
            cluster = await bob.send(
                DescribeClusterRequest(endpoint_type=1, include_cluster_authorized_operations=True)
            )
            assert cluster.cluster_authorized_operations == 0
            assert await create(
                admin,
                creation("kafka-cluster", resource_type=CLUSTER, operation=ALTER),
            ) == [0]
            await until(lambda: may(node, AclOperation.ALTER, "kafka-cluster", CLUSTER))
            cluster = await bob.send(
                DescribeClusterRequest(endpoint_type=1, include_cluster_authorized_operations=True)
            )
            bits = 1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE
            assert cluster.cluster_authorized_operations == bits
            await admin.close()
            await bob.close()

    run(test())

"""Each API with exactly the access control entries it needs, and with all others but one of them.

The table is Kafka's (KafkaApis, ControllerApis), one row for each way to be allowed. A row's
request is sent with its grants: no authorization error. Then without one grant, but with every
other operation on that resource that does not imply it: that grant's error.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k03_metadata as k03
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k22_init_producer_id as k22
from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
from sparkraft.protocol.messages import k25_add_offsets_to_txn as k25
from sparkraft.protocol.messages import k28_txn_offset_commit as k28
from sparkraft.protocol.messages import k32_describe_configs as k32
from sparkraft.protocol.messages import k33_alter_configs as k33
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k47_offset_delete as k47
from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68
from sparkraft.protocol.messages import k10001_resign_controller as k10001
from sparkraft.protocol.messages import k10003_describe_isr_changes as k10003
from sparkraft.security.acls import (
    CLUSTER_NAME,
    IMPLIED_BY,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.standard_authorizer import CLASS_NAME, StandardAuthorizer
from sparkraft.server.api.authorization import NoAuthorization, denied
from sparkraft.server.api.registry import served_apis
from tests.server.harness import connect, create_topic, node_in, run, until
from tests.server.test_denied import SILENT, committed, expected, version_of

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
)
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID

NAMES = {TOPIC: "t", GROUP: "g", CLUSTER: CLUSTER_NAME, TRANSACTIONAL_ID: "x"}
CODES = {kind: int(denied(kind).code) for kind in NAMES}


@dataclass(frozen=True)
class Grant:
    """An operation that a request needs.

    Attributes:
        or_else: another operation on the same resource that would do.
        error: of the request without it, if it is not that of the resource type.
    """

    operation: AclOperation
    kind: AclResourceType
    name: str = ""
    or_else: AclOperation | None = None
    error: ErrorCode | None = None

    def acl(self, operation: AclOperation | None = None) -> Acl:
        name = self.name or NAMES[self.kind]
        return Acl(
            self.kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*",
            operation or self.operation, AclPermissionType.ALLOW,
        )  # fmt: skip

    def others(self) -> list[Acl]:
        """Every other operation on the resource that neither is it nor implies it."""
        enough = {self.operation, self.or_else, *IMPLIED_BY.get(self.operation, ())}
        enough |= {AclOperation.UNKNOWN, AclOperation.ANY, AclOperation.ALL}
        return [self.acl(operation) for operation in AclOperation if operation not in enough]

    @property
    def code(self) -> int:
        return CODES[self.kind] if self.error is None else int(self.error)


@dataclass(frozen=True)
class Row:
    """A request and what it needs; without a request: the first of `test_denied`."""

    key: ApiKey
    grants: tuple[Grant, ...]
    request: Any = None
    version: int | None = None
    number: int = 0


def row(key: ApiKey, *grants: Grant, **more: Any) -> Row:
    return Row(key, grants, **more)


def configs(module: Any, kind: int, name: str) -> Any:
    """A request to describe or alter the configs of one resource."""
    if module is k32:
        return k32.DescribeConfigsRequest(
            resources=[k32.DescribeConfigsResource(resource_type=kind, resource_name=name)]
        )
    resource = module.AlterConfigsResource(resource_type=kind, resource_name=name)
    if module is k33:
        return k33.AlterConfigsRequest(resources=[resource], validate_only=True)
    return k44.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


CONFIGS = {
    ApiKey.DESCRIBE_CONFIGS: (k32, DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: (k33, ALTER_CONFIGS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (k44, ALTER_CONFIGS),
}
CONFIG_ROWS = [
    row(key, Grant(operation, kind), request=configs(module, number, name))
    for key, (module, operation) in CONFIGS.items()
    for number, name, kind in ((2, "t", TOPIC), (32, "g", GROUP), (4, "1", CLUSTER),
                               (16, "m", CLUSTER))
]  # fmt: skip

ON_BOTH = [
    *CONFIG_ROWS,
    row(ApiKey.DESCRIBE_ACLS, Grant(DESCRIBE, CLUSTER)),
    row(ApiKey.CREATE_ACLS, Grant(ALTER, CLUSTER)),
    row(ApiKey.DELETE_ACLS, Grant(ALTER, CLUSTER)),
    row(ApiKey.CREATE_TOPICS, Grant(CREATE, TOPIC, "n"), version=4),
    row(
        ApiKey.CREATE_TOPICS,
        Grant(CREATE, CLUSTER, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        version=4,
    ),
    row(
        ApiKey.DELETE_TOPICS,
        Grant(DELETE, TOPIC, "d"),
        request=k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name="d")]),
    ),
    row(
        ApiKey.DELETE_TOPICS,
        Grant(DELETE, CLUSTER, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        number=1,
    ),
    row(ApiKey.CREATE_PARTITIONS, Grant(ALTER, TOPIC)),
    row(ApiKey.ELECT_LEADERS, Grant(ALTER, CLUSTER)),
    row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, Grant(ALTER, CLUSTER)),
    row(ApiKey.LIST_PARTITION_REASSIGNMENTS, Grant(DESCRIBE, CLUSTER)),
    row(ApiKey.ALTER_CLIENT_QUOTAS, Grant(ALTER_CONFIGS, CLUSTER)),
    row(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, Grant(ALTER, CLUSTER)),
    row(ApiKey.DESCRIBE_QUORUM, Grant(DESCRIBE, CLUSTER)),
    row(ApiKey.UPDATE_FEATURES, Grant(ALTER, CLUSTER)),
    row(ApiKey.UNREGISTER_BROKER, Grant(ALTER, CLUSTER)),
    row(ApiKey.ADD_RAFT_VOTER, Grant(ALTER, CLUSTER)),
    row(ApiKey.REMOVE_RAFT_VOTER, Grant(ALTER, CLUSTER)),
    row(ApiKey.DESCRIBE_ELECTIONS, Grant(DESCRIBE, CLUSTER)),
    row(ApiKey.DESCRIBE_HISTORY, Grant(DESCRIBE, CLUSTER)),
    row(ApiKey.DESCRIBE_IMAGE, Grant(DESCRIBE, CLUSTER)),
    row(ApiKey.DESCRIBE_METADATA_LOG, Grant(DESCRIBE, CLUSTER)),
]
"""APIs that both kinds of listener serve, with the same rules."""


def named(name: str) -> Any:
    return k03.MetadataRequest(
        topics=[k03.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
    )


OF_BROKER = [
    row(ApiKey.PRODUCE, Grant(WRITE, TOPIC)),
    row(ApiKey.PRODUCE, Grant(WRITE, TRANSACTIONAL_ID), Grant(WRITE, TOPIC), number=1),
    row(ApiKey.FETCH, Grant(READ, TOPIC)),
    row(
        ApiKey.FETCH,
        Grant(CLUSTER_ACTION, CLUSTER, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        number=1,
    ),
    row(ApiKey.LIST_OFFSETS, Grant(DESCRIBE, TOPIC), Grant(DESCRIBE, TOPIC, "absent")),
    row(ApiKey.METADATA, Grant(DESCRIBE, TOPIC), request=named("t")),
    row(
        ApiKey.METADATA,
        Grant(DESCRIBE, TOPIC, "m1"),
        Grant(CREATE, CLUSTER, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        request=named("m1"),
    ),
    row(
        ApiKey.METADATA,
        Grant(DESCRIBE, TOPIC, "m2"),
        Grant(CREATE, TOPIC, "m2"),
        request=named("m2"),
    ),
    row(
        ApiKey.OFFSET_COMMIT,
        Grant(READ, GROUP),
        Grant(READ, TOPIC),
        request=k08.OffsetCommitRequest(
            group_id="g",
            topics=[
                k08.OffsetCommitRequestTopic(
                    name="t", partitions=[k08.OffsetCommitRequestPartition(committed_offset=1)]
                )
            ],
        ),
    ),
    row(
        ApiKey.OFFSET_FETCH,
        Grant(DESCRIBE, GROUP),
        Grant(DESCRIBE, TOPIC),
        request=k09.OffsetFetchRequest(
            groups=[
                k09.OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[k09.OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
                )
            ]
        ),
        version=9,
    ),
    row(ApiKey.FIND_COORDINATOR, Grant(DESCRIBE, GROUP)),
    row(ApiKey.FIND_COORDINATOR, Grant(DESCRIBE, TRANSACTIONAL_ID), number=1),
    row(ApiKey.FIND_COORDINATOR, Grant(CLUSTER_ACTION, CLUSTER), number=2),
    row(ApiKey.JOIN_GROUP, Grant(READ, GROUP)),
    row(ApiKey.HEARTBEAT, Grant(READ, GROUP)),
    row(ApiKey.LEAVE_GROUP, Grant(READ, GROUP)),
    row(ApiKey.SYNC_GROUP, Grant(READ, GROUP)),
    row(ApiKey.DESCRIBE_GROUPS, Grant(DESCRIBE, GROUP)),
    row(ApiKey.DELETE_RECORDS, Grant(DELETE, TOPIC, "absent")),
    row(
        ApiKey.INIT_PRODUCER_ID,
        Grant(AclOperation.IDEMPOTENT_WRITE, CLUSTER),
        request=k22.InitProducerIdRequest(transactional_id=None),
    ),
    row(
        ApiKey.INIT_PRODUCER_ID,
        Grant(WRITE, TOPIC, "any", error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        request=k22.InitProducerIdRequest(transactional_id=None),
    ),
    row(ApiKey.INIT_PRODUCER_ID, Grant(WRITE, TRANSACTIONAL_ID), number=1),
    row(ApiKey.OFFSET_FOR_LEADER_EPOCH, Grant(DESCRIBE, TOPIC)),
    row(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        Grant(CLUSTER_ACTION, CLUSTER, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ),
    row(ApiKey.ADD_PARTITIONS_TO_TXN, Grant(CLUSTER_ACTION, CLUSTER)),
    row(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        Grant(WRITE, TRANSACTIONAL_ID),
        Grant(WRITE, TOPIC),
        request=k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        version=3,
    ),
    row(
        ApiKey.ADD_OFFSETS_TO_TXN,
        Grant(WRITE, TRANSACTIONAL_ID),
        Grant(READ, GROUP),
        request=k25.AddOffsetsToTxnRequest(transactional_id="x", group_id="g"),
    ),
    row(ApiKey.END_TXN, Grant(WRITE, TRANSACTIONAL_ID)),
    row(ApiKey.WRITE_TXN_MARKERS, Grant(CLUSTER_ACTION, CLUSTER, or_else=ALTER)),
    row(ApiKey.WRITE_TXN_MARKERS, Grant(ALTER, CLUSTER, or_else=CLUSTER_ACTION)),
    row(
        ApiKey.TXN_OFFSET_COMMIT,
        Grant(WRITE, TRANSACTIONAL_ID),
        Grant(READ, GROUP),
        Grant(READ, TOPIC),
        request=k28.TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            topics=[
                k28.TxnOffsetCommitRequestTopic(
                    name="t", partitions=[k28.TxnOffsetCommitRequestPartition()]
                )
            ],
        ),
    ),
    row(ApiKey.ALTER_REPLICA_LOG_DIRS, Grant(ALTER, CLUSTER)),
    row(ApiKey.DESCRIBE_LOG_DIRS, Grant(DESCRIBE, CLUSTER)),
    row(
        ApiKey.OFFSET_DELETE,
        Grant(DELETE, GROUP),
        Grant(READ, TOPIC),
        request=k47.OffsetDeleteRequest(
            group_id="g",
            topics=[
                k47.OffsetDeleteRequestTopic(
                    name="t", partitions=[k47.OffsetDeleteRequestPartition()]
                )
            ],
        ),
    ),
    row(ApiKey.DELETE_GROUPS, Grant(DELETE, GROUP)),
    row(ApiKey.DESCRIBE_CLIENT_QUOTAS, Grant(DESCRIBE_CONFIGS, CLUSTER)),
    row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Grant(DESCRIBE, CLUSTER)),
    row(ApiKey.DESCRIBE_PRODUCERS, Grant(READ, TOPIC)),
    row(ApiKey.DESCRIBE_TRANSACTIONS, Grant(DESCRIBE, TRANSACTIONAL_ID)),
    row(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        Grant(READ, GROUP),
        Grant(DESCRIBE, TOPIC),
        request=k68.ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", subscribed_topic_names=["t"]
        ),
    ),
    row(ApiKey.CONSUMER_GROUP_DESCRIBE, Grant(DESCRIBE, GROUP)),
    row(ApiKey.LIST_CONFIG_RESOURCES, Grant(DESCRIBE_CONFIGS, CLUSTER)),
    row(ApiKey.DESCRIBE_TOPIC_PARTITIONS, Grant(DESCRIBE, TOPIC), Grant(DESCRIBE, TOPIC, "absent")),
    row(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        Grant(ALTER_CONFIGS, CLUSTER),
        request=configs(k44, 8, "1"),
    ),
    row(ApiKey.DESCRIBE_GROUP_DECISIONS, Grant(DESCRIBE, GROUP)),
    row(
        ApiKey.DESCRIBE_ISR_CHANGES,
        Grant(DESCRIBE, CLUSTER),
        Grant(DESCRIBE, TOPIC),
        request=k10003.DescribeIsrChangesRequest(topic="t"),
    ),
]

OF_CONTROLLER = [
    row(ApiKey.FETCH, Grant(CLUSTER_ACTION, CLUSTER)),
    row(ApiKey.DESCRIBE_CLUSTER, Grant(ALTER, CLUSTER)),
    *(
        row(key, Grant(CLUSTER_ACTION, CLUSTER))
        for key in (
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.ALTER_PARTITION,
            ApiKey.ENVELOPE,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            ApiKey.CONTROLLER_REGISTRATION,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            ApiKey.UPDATE_RAFT_VOTER,
        )
    ),
    row(
        ApiKey.RESIGN_CONTROLLER,
        Grant(ALTER, CLUSTER),
        request=k10001.ResignControllerRequest(epoch=999),
    ),
]
TABLES = {"PLAINTEXT": ON_BOTH + OF_BROKER, "CONTROLLER": ON_BOTH + OF_CONTROLLER}


@pytest.mark.parametrize("listener", TABLES)
def test_every_key_has_a_row(listener):
    """Those of tokens need a client that has authenticated: test_delegation_tokens."""
    is_controller = listener == "CONTROLLER"
    keys = {row.key for row in TABLES[listener]}
    without = {
        api.key
        for api in served_apis(controller_listener=is_controller)
        if not isinstance(api.authorize, NoAuthorization) and api.key not in SILENT
    }
    without -= {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN}
    if not is_controller:
        without -= {ApiKey.DESCRIBE_CLUSTER}  # open to every client; its bits are not
    assert without - keys == set()


@pytest.mark.parametrize("listener", TABLES)
def test_each_request_is_allowed_by_its_grants_alone_and_denied_without_any_of_them(
    tmp_path, listener
):
    async def test():
        options = {"authorizer_class_name": CLASS_NAME}
        async with node_in(tmp_path, **options) as node:
            authorizer = node.authorizer
            assert isinstance(authorizer, StandardAuthorizer)
            authorizer.load(everything())
            client = await connect(node)
            for name in ("t", "d"):
                await create_topic(client, name)
            await until(lambda: committed(client, offset_commit()))
            wrong = []
            for row in TABLES[listener]:
                for missing in row.grants:
                    rest = [grant.acl() for grant in row.grants if grant is not missing]
                    authorizer.load([*rest, *missing.others()])
                    found = await auth_errors(node, listener, row)
                    if missing.code not in found:
                        wrong.append((row.key.name, missing, "not denied", found))
                authorizer.load([grant.acl() for grant in row.grants])
                found = await auth_errors(node, listener, row)
                if found:
                    wrong.append((row.key.name, row.grants, "denied", found))
            await client.close()
            assert wrong == [], "\n".join(map(str, wrong))

    run(test())


def everything() -> list[Acl]:
    return [
        Acl(
            kind, "*", PatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW
        )
        for kind in NAMES
    ]


def offset_commit() -> Any:
    return k08.OffsetCommitRequest(
        group_id="g",
        topics=[
            k08.OffsetCommitRequestTopic(
                name="t", partitions=[k08.OffsetCommitRequestPartition(committed_offset=1)]
            )
        ],
    )


async def auth_errors(node: Any, listener: str, row: Row) -> set[int]:
    """The authorization errors in the response to a row's request."""
    is_controller = listener == "CONTROLLER"
    apis = served_apis(controller_listener=is_controller)
    api = next(api for api in apis if api.key == row.key)
    request = row.request
    if request is None:
        request = expected(row.key, controller=is_controller)[row.number][0]
    version = version_of(api, request) if row.version is None else row.version
    client = await connect(node, listener)
    try:
        found = codes_in(await client.send(request, version=version))
    finally:
        await client.close()
    return found & set(CODES.values())


def codes_in(message: Any) -> set[int]:
    """Every error code in a response, whatever its field is called."""
    found: set[int] = set()
    for name in message.__slots__:
        value = getattr(message, name)
        if name in {"error_code", "partition_error_code"}:
            found.add(int(value))
        for inner in value if isinstance(value, list) else ():
            if hasattr(inner, "__slots__") and not isinstance(inner, bytes):
                found |= codes_in(inner)
    return found

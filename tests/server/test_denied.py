"""A client that is allowed nothing: what each API answers it, on both kinds of listener.

The table has every served key. A rule that is declared and not enforced yet stands in
`NOT_ENFORCED_YET`; nothing may be enforced and stand there.
"""

from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import encode
from sparkraft.protocol.messages import (
    k00_produce as k00,
)
from sparkraft.protocol.messages import (
    k01_fetch as k01,
)
from sparkraft.protocol.messages import (
    k02_list_offsets as k02,
)
from sparkraft.protocol.messages import (
    k03_metadata as k03,
)
from sparkraft.protocol.messages import (
    k08_offset_commit as k08,
)
from sparkraft.protocol.messages import (
    k09_offset_fetch as k09,
)
from sparkraft.protocol.messages import (
    k10_find_coordinator as k10,
)
from sparkraft.protocol.messages import (
    k11_join_group as k11,
)
from sparkraft.protocol.messages import (
    k15_describe_groups as k15,
)
from sparkraft.protocol.messages import (
    k16_list_groups as k16,
)
from sparkraft.protocol.messages import (
    k19_create_topics as k19,
)
from sparkraft.protocol.messages import (
    k20_delete_topics as k20,
)
from sparkraft.protocol.messages import (
    k21_delete_records as k21,
)
from sparkraft.protocol.messages import (
    k22_init_producer_id as k22,
)
from sparkraft.protocol.messages import (
    k23_offset_for_leader_epoch as k23,
)
from sparkraft.protocol.messages import (
    k24_add_partitions_to_txn as k24,
)
from sparkraft.protocol.messages import (
    k27_write_txn_markers as k27,
)
from sparkraft.protocol.messages import (
    k28_txn_offset_commit as k28,
)
from sparkraft.protocol.messages import (
    k30_create_acls as k30,
)
from sparkraft.protocol.messages import (
    k31_delete_acls as k31,
)
from sparkraft.protocol.messages import (
    k32_describe_configs as k32,
)
from sparkraft.protocol.messages import (
    k33_alter_configs as k33,
)
from sparkraft.protocol.messages import (
    k34_alter_replica_log_dirs as k34,
)
from sparkraft.protocol.messages import (
    k37_create_partitions as k37,
)
from sparkraft.protocol.messages import (
    k42_delete_groups as k42,
)
from sparkraft.protocol.messages import (
    k43_elect_leaders as k43,
)
from sparkraft.protocol.messages import (
    k44_incremental_alter_configs as k44,
)
from sparkraft.protocol.messages import (
    k45_alter_partition_reassignments as k45,
)
from sparkraft.protocol.messages import (
    k47_offset_delete as k47,
)
from sparkraft.protocol.messages import (
    k49_alter_client_quotas as k49,
)
from sparkraft.protocol.messages import (
    k51_alter_user_scram_credentials as k51,
)
from sparkraft.protocol.messages import (
    k60_describe_cluster as k60,
)
from sparkraft.protocol.messages import (
    k61_describe_producers as k61,
)
from sparkraft.protocol.messages import (
    k65_describe_transactions as k65,
)
from sparkraft.protocol.messages import (
    k68_consumer_group_heartbeat as k68,
)
from sparkraft.protocol.messages import (
    k69_consumer_group_describe as k69,
)
from sparkraft.protocol.messages import (
    k75_describe_topic_partitions as k75,
)
from sparkraft.protocol.messages import (
    k10002_describe_history as k10002,
)
from sparkraft.protocol.messages import (
    k10004_describe_group_decisions as k10004,
)
from sparkraft.server.api.authorization import NoAuthorization, denied, request_rules
from sparkraft.server.api.registry import served_apis
from sparkraft.storage.names import METADATA_TOPIC
from tests.server.harness import batch, connect, create_topic, node_in, run, until
from tests.support.sessions import Deciding

TOPIC = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
CLUSTER = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
TRANSACTIONAL_ID = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
TOKEN = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
"""For clients that did not authenticate, as here; see test_delegation_tokens for others."""

NOT_ENFORCED_YET: set[ApiKey] = set()
"""APIs some of whose rules are only declared. Empty this before an authorizer can be configured."""

SILENT = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
"""Lists that leave out what the client may not see, without an error."""


def configs(module: Any, resource: type) -> list[Any]:
    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER)
    names = {ResourceType.TOPIC: "t", ResourceType.GROUP: "g", ResourceType.BROKER: "1"}
    return [resource(resource_type=kind, resource_name=names[kind]) for kind in kinds]


REQUESTS: dict[ApiKey, list[tuple[Any, set[int]]]] = {
    ApiKey.PRODUCE: [
        (
            k00.ProduceRequest(
                acks=1,
                topic_data=[
                    k00.TopicProduceData(
                        name="t",
                        partition_data=[k00.PartitionProduceData(index=0, records=batch(b"v"))],
                    )
                ],
            ),
            {TOPIC},
        ),
        (
            k00.ProduceRequest(
                transactional_id="x",
                acks=1,
                topic_data=[
                    k00.TopicProduceData(
                        name="t",
                        partition_data=[k00.PartitionProduceData(index=0, records=batch(b"v"))],
                    )
                ],
            ),
            {TRANSACTIONAL_ID},
        ),
    ],
    ApiKey.FETCH: [
        (
            k01.FetchRequest(
                replica_id=replica_id,
                topics=[
                    k01.FetchTopic(
                        topic="t",
                        partitions=[k01.FetchPartition(partition=0, partition_max_bytes=100)],
                    )
                ],
            ),
            {TOPIC},
        )
        for replica_id in (-1, 1)
    ],
    ApiKey.LIST_OFFSETS: [
        (
            k02.ListOffsetsRequest(
                topics=[
                    k02.ListOffsetsTopic(
                        name=name, partitions=[k02.ListOffsetsPartition(timestamp=-1)]
                    )
                    for name in ("t", "absent")
                ]
            ),
            {TOPIC},
        )
    ],
    ApiKey.METADATA: [
        (
            k03.MetadataRequest(
                topics=[k03.MetadataRequestTopic(name=name) for name in ("t", "absent")]
            ),
            {TOPIC},
        ),
    ],
    ApiKey.OFFSET_COMMIT: [
        (
            k08.OffsetCommitRequest(
                group_id="g",
                topics=[
                    k08.OffsetCommitRequestTopic(
                        name="t", partitions=[k08.OffsetCommitRequestPartition()]
                    )
                ],
            ),
            {GROUP},
        )
    ],
    ApiKey.OFFSET_FETCH: [
        (
            k09.OffsetFetchRequest(groups=[k09.OffsetFetchRequestGroup(group_id="g", topics=None)]),
            {GROUP},
        )
    ],
    ApiKey.FIND_COORDINATOR: [
        (k10.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), {GROUP}),
        (k10.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), {TRANSACTIONAL_ID}),
        (
            k10.FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"]),
            {CLUSTER},
        ),
    ],
    ApiKey.DESCRIBE_GROUP_DECISIONS: [
        (k10004.DescribeGroupDecisionsRequest(group_id="g"), {GROUP})
    ],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [
        (k68.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m"), {GROUP})
    ],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [(k69.ConsumerGroupDescribeRequest(group_ids=["g"]), {GROUP})],
    ApiKey.DESCRIBE_GROUPS: [(k15.DescribeGroupsRequest(groups=["g"]), {GROUP})],
    ApiKey.CREATE_TOPICS: [
        (k19.CreateTopicsRequest(topics=[k19.CreatableTopic(name="n")]), {TOPIC})
    ],
    ApiKey.DELETE_TOPICS: [
        (k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name=name)]), {TOPIC})
        for name in ("t", "absent")
    ],
    ApiKey.DELETE_RECORDS: [
        (
            k21.DeleteRecordsRequest(
                topics=[
                    k21.DeleteRecordsTopic(name="absent", partitions=[k21.DeleteRecordsPartition()])
                ]
            ),
            {TOPIC},
        )
    ],
    ApiKey.INIT_PRODUCER_ID: [
        (k22.InitProducerIdRequest(transactional_id=None), {CLUSTER}),
        (k22.InitProducerIdRequest(transactional_id="x"), {TRANSACTIONAL_ID}),
    ],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [
        (
            k23.OffsetForLeaderEpochRequest(
                topics=[
                    k23.OffsetForLeaderTopic(topic="t", partitions=[k23.OffsetForLeaderPartition()])
                ]
            ),
            {TOPIC},
        )
    ],
    ApiKey.ADD_PARTITIONS_TO_TXN: [(k24.AddPartitionsToTxnRequest(), {CLUSTER})],
    ApiKey.TXN_OFFSET_COMMIT: [
        (
            k28.TxnOffsetCommitRequest(
                transactional_id="x",
                topics=[
                    k28.TxnOffsetCommitRequestTopic(
                        name="t", partitions=[k28.TxnOffsetCommitRequestPartition()]
                    )
                ],
            ),
            {TRANSACTIONAL_ID},
        )
    ],
    ApiKey.DESCRIBE_TRANSACTIONS: [
        (k65.DescribeTransactionsRequest(transactional_ids=["x"]), {TRANSACTIONAL_ID})
    ],
    ApiKey.WRITE_TXN_MARKERS: [
        (
            k27.WriteTxnMarkersRequest(
                markers=[
                    k27.WritableTxnMarker(
                        topics=[k27.WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
                    )
                ]
            ),
            {CLUSTER},
        )
    ],
    ApiKey.CREATE_ACLS: [(k30.CreateAclsRequest(creations=[k30.AclCreation()]), {CLUSTER})],
    ApiKey.DELETE_ACLS: [(k31.DeleteAclsRequest(filters=[k31.DeleteAclsFilter()]), {CLUSTER})],
    ApiKey.DESCRIBE_CONFIGS: [
        (
            k32.DescribeConfigsRequest(resources=configs(k32, k32.DescribeConfigsResource)),
            {TOPIC, GROUP, CLUSTER},
        )
    ],
    ApiKey.ALTER_CONFIGS: [
        (
            k33.AlterConfigsRequest(resources=configs(k33, k33.AlterConfigsResource)),
            {TOPIC, GROUP, CLUSTER},
        )
    ],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [
        (
            k34.AlterReplicaLogDirsRequest(
                dirs=[
                    k34.AlterReplicaLogDir(
                        topics=[k34.AlterReplicaLogDirTopic(name="t", partitions=[0])]
                    )
                ]
            ),
            {CLUSTER},
        )
    ],
    ApiKey.CREATE_PARTITIONS: [
        (k37.CreatePartitionsRequest(topics=[k37.CreatePartitionsTopic(name="t")]), {TOPIC})
    ],
    ApiKey.CREATE_DELEGATION_TOKEN: [
        (API_INFO[ApiKey.CREATE_DELEGATION_TOKEN].request_class()(), {TOKEN})
    ],
    ApiKey.DESCRIBE_DELEGATION_TOKEN: [
        (API_INFO[ApiKey.DESCRIBE_DELEGATION_TOKEN].request_class()(), {TOKEN})
    ],
    ApiKey.DELETE_GROUPS: [(k42.DeleteGroupsRequest(groups_names=["g"]), {GROUP})],
    ApiKey.ELECT_LEADERS: [
        (
            k43.ElectLeadersRequest(
                topic_partitions=[k43.TopicPartitions(topic="t", partitions=[0])]
            ),
            {CLUSTER},
        )
    ],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [
        (
            k44.IncrementalAlterConfigsRequest(resources=configs(k44, k44.AlterConfigsResource)),
            {TOPIC, GROUP, CLUSTER},
        )
    ],
    ApiKey.ALTER_CLIENT_QUOTAS: [
        (
            k49.AlterClientQuotasRequest(
                entries=[
                    k49.AlterClientQuotasRequestEntryData(
                        entity=[k49.EntityData(entity_type="user", entity_name="u")]
                    )
                ]
            ),
            {CLUSTER},
        )
    ],
    ApiKey.OFFSET_DELETE: [(k47.OffsetDeleteRequest(group_id="g"), {GROUP})],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [
        (
            k51.AlterUserScramCredentialsRequest(
                upsertions=[k51.ScramCredentialUpsertion(name="u", mechanism=1, iterations=4096)]
            ),
            {CLUSTER},
        )
    ],
    ApiKey.DESCRIBE_CLUSTER: [(k60.DescribeClusterRequest(endpoint_type=1), set())],
    ApiKey.DESCRIBE_PRODUCERS: [
        (
            k61.DescribeProducersRequest(
                topics=[k61.TopicRequest(name="t", partition_indexes=[0])]
            ),
            {TOPIC},
        )
    ],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [
        (
            k75.DescribeTopicPartitionsRequest(
                topics=[k75.TopicRequest(name=name) for name in ("t", "absent")]
            ),
            {TOPIC},
        )
    ],
    ApiKey.DESCRIBE_HISTORY: [
        (k10002.DescribeHistoryRequest(), {CLUSTER}),
    ],
    **{
        key: [(API_INFO[key].request_class()(transactional_id="x"), {TRANSACTIONAL_ID})]
        for key in (ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN)
    },
    **{
        key: [(API_INFO[key].request_class()(group_id="g"), {GROUP})]
        for key in (ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP)
    },
}
"""Requests and the errors in their responses. Keys that are missing: an empty request is refused as
a whole with CLUSTER_AUTHORIZATION_FAILED."""

ON_CONTROLLER: dict[ApiKey, list[tuple[Any, set[int]]]] = {
    ApiKey.FETCH: [(k01.FetchRequest(), {CLUSTER})],
    ApiKey.DESCRIBE_CLUSTER: [(k60.DescribeClusterRequest(endpoint_type=2), {CLUSTER})],
}
"""The same where the controller listener differs."""


def errors_in(message: Any) -> set[int]:
    """Every error code in a response but 0."""
    found: set[int] = set()
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "error_code":
            found.add(int(value))
        for inner in value if isinstance(value, list) else ():
            if hasattr(inner, "__slots__") and not isinstance(inner, bytes):
                found |= errors_in(inner)
    return found - {0}


def expected(key: ApiKey, *, controller: bool) -> list[tuple[Any, set[int]]]:
    table = REQUESTS | ON_CONTROLLER if controller else REQUESTS
    return table.get(key, [(API_INFO[key].request_class()(), {CLUSTER})])


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_a_denied_client_gets_kafkas_error_from_every_api(tmp_path, listener):
    async def test():
        async with node_in(tmp_path) as node:
            allowed = await connect(node)
            await create_topic(allowed, "t")
            for each in node.listeners:
                each.authorizer = Deciding()
            is_controller = listener == "CONTROLLER"
            wrong = {}
            for api in served_apis(controller_listener=is_controller):
                if isinstance(api.authorize, NoAuthorization) or api.key in SILENT:
                    continue
                for request, errors in expected(api.key, controller=is_controller):
                    client = await connect(node, listener)
                    version = version_of(api, request)
                    found = errors_in(await client.send(request, version=version))
                    if found != errors:
                        wrong[api.key] = (found, errors)
                    await client.close()
            await allowed.close()
            print("not enforced yet:", sorted(key.name for key in NOT_ENFORCED_YET))  # noqa: T201
            assert wrong.keys() == {key for key in NOT_ENFORCED_YET if not is_controller}, wrong

    run(test())


def version_of(api: Any, request: Any) -> int:
    """The newest version that has names for topics."""
    newest = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12, ApiKey.OFFSET_COMMIT: 9}
    return newest.get(api.key, api.version_range()[1])


@pytest.mark.parametrize("controller", [False, True])
def test_every_version_has_a_response_for_a_request_that_is_denied(controller):
    for api in served_apis(controller_listener=controller):
        info = API_INFO[api.key]
        lowest, highest = api.version_range()
        for rule in request_rules(api.authorize):
            for version in range(lowest, highest + 1):
                request = info.request_class()()
                error = denied(rule.resource_type)
                encode(api.refuse_now(info.response_class(), request, version, error), version)


def test_topics_are_authorized_apart_from_the_group(tmp_path):
    """A client that may use the group gets the topic's error for topics it may not."""
    requests = [
        REQUESTS[ApiKey.OFFSET_COMMIT][0][0],
        k09.OffsetFetchRequest(
            groups=[
                k09.OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[k09.OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
                )
            ]
        ),
        k47.OffsetDeleteRequest(
            group_id="g",
            topics=[
                k47.OffsetDeleteRequestTopic(
                    name="t", partitions=[k47.OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        ),
    ]

    async def test():
        async with node_in(tmp_path) as node:
            allowed = await connect(node)
            await create_topic(allowed, "t")
            await create_topic(allowed, "own")
            commit = k08.OffsetCommitRequest(
                group_id="g",
                topics=[
                    k08.OffsetCommitRequestTopic(
                        name=name,
                        partitions=[k08.OffsetCommitRequestPartition(committed_offset=1)],
                    )
                    for name in ("t", "own")
                ],
            )
            await until(lambda: committed(allowed, commit))
            for each in node.listeners:
                each.authorizer = Deciding(lambda _operation, _type, name: name in {"g", "own"})
            client = await connect(node)
            for request in requests:
                version = 9 if request.__class__ is not k47.OffsetDeleteRequest else 0
                assert errors_in(await client.send(request, version=version)) == {TOPIC}
            every = k09.OffsetFetchRequest(
                groups=[k09.OffsetFetchRequestGroup(group_id="g", topics=None)]
            )
            (group,) = (await client.send(every)).groups
            assert [topic.topic_id for topic in group.topics] == [
                node.broker.image.topics_by_name["own"]
            ]
            listed = await client.send(k16.ListGroupsRequest())
            assert [group.group_id for group in listed.groups] == ["g"]
            await allowed.close()
            await client.close()

    run(test())


async def committed(connection: Any, request: Any) -> bool:
    await connection.send(k10.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    return not errors_in(await connection.send(request, version=9))


def test_denials_have_the_fields_of_kafkas(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            for each in node.listeners:
                each.authorizer = Deciding()
            client = await connect(node)
            join = k11.JoinGroupRequest(group_id="g", member_id="m", session_timeout_ms=10_000)
            assert (await client.send(join)).member_id == ""
            share = k10.FindCoordinatorRequest(key_type=2, coordinator_keys=["g", "h"])
            found = (await client.send(share)).coordinators
            assert [(one.error_code, one.error_message) for one in found] == [
                (CLUSTER, "Cluster authorization failed.")
            ] * 2
            create = k19.CreateTopicsRequest(topics=[k19.CreatableTopic(name=METADATA_TOPIC)])
            (topic,) = (await client.send(create)).topics
            assert topic.error_code == ErrorCode.INVALID_REQUEST
            partitions = [k45.ReassignablePartition(partition_index=index) for index in (0, 1)]
            move = k45.AlterPartitionReassignmentsRequest(
                topics=[k45.ReassignableTopic(name="t", partitions=partitions)]
            )
            moved = await client.send(move)
            codes = [one.error_code for one in moved.responses[0].partitions]
            assert [moved.error_code, *codes] == [CLUSTER] * 3
            await client.close()

    run(test())


def test_a_fetch_of_another_cluster_is_refused_whatever_it_names(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node, "CONTROLLER")
            for cluster_id, error in (
                ("wrong", ErrorCode.INCONSISTENT_CLUSTER_ID),
                (node.identity.cluster_id, ErrorCode.INVALID_REQUEST),
                (None, ErrorCode.INVALID_REQUEST),
            ):
                answer = await client.send(k01.FetchRequest(cluster_id=cluster_id, max_wait_ms=0))
                assert answer.error_code == error
            await client.close()

    run(test())


def test_an_expression_finds_no_topic_that_its_member_may_not_describe(tmp_path):
    """The part of K15 about principals; the topics of others are found for others only."""

    async def test():
        async with node_in(tmp_path) as node:
            client = await connect(node)
            ids = {name: await create_topic(client, name) for name in ("seen", "secret")}

            async def join(peer: Any, group: str, count: int) -> set[Any]:
                """The topics assigned to a new member, once there are so many."""
                epoch, found = 0, set()

                async def has_topics() -> bool:
                    nonlocal epoch
                    await peer.send(k10.FindCoordinatorRequest(coordinator_keys=[group]))
                    answer = await peer.send(
                        k68.ConsumerGroupHeartbeatRequest(
                            group_id=group,
                            member_id=f"member-of-{group}",
                            member_epoch=epoch,
                            rebalance_timeout_ms=60_000 if epoch == 0 else -1,
                            subscribed_topic_regex="se.*" if epoch == 0 else None,
                            topic_partitions=[] if epoch == 0 else None,
                        )
                    )
                    if answer.error_code == 0:
                        epoch = answer.member_epoch
                        if answer.assignment is not None:
                            found.update(t.topic_id for t in answer.assignment.topic_partitions)
                    return len(found) >= count

                await until(has_topics)
                return found

            assert await join(client, "open", 2) == set(ids.values())
            for each in node.listeners:
                each.authorizer = Deciding(lambda _operation, _type, name: name != "secret")
            peer = await connect(node)
            assert await join(peer, "limited", 1) == {ids["seen"]}
            await peer.close()
            await client.close()

    run(test())

"""Each administrative change leaves one line: who, from where, what; never a value."""

import asyncio
import logging
from types import SimpleNamespace

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import Uuid
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k21_delete_records as k21
from sparkraft.protocol.messages import k30_create_acls as k30
from sparkraft.protocol.messages import k31_delete_acls as k31
from sparkraft.protocol.messages import k34_alter_replica_log_dirs as k34
from sparkraft.protocol.messages import k37_create_partitions as k37
from sparkraft.protocol.messages import k42_delete_groups as k42
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k47_offset_delete as k47
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from sparkraft.protocol.messages import k57_update_features as k57
from sparkraft.protocol.messages import k80_add_raft_voter as k80
from sparkraft.protocol.messages import k81_remove_raft_voter as k81
from sparkraft.protocol.messages import k10001_resign_controller as k10001
from sparkraft.raft.events import Refusal
from sparkraft.server.api import (
    k80_add_raft_voter,
    k81_remove_raft_voter,
    k10001_resign_controller,
)
from sparkraft.server.controller import audit
from tests.server.harness import connect, node_in, run, until


def created(*names: str, **options) -> k19.CreateTopicsRequest:
    topics = [k19.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
    return k19.CreateTopicsRequest(topics=topics, **options)


def altered(name: str, **values: str) -> k44.IncrementalAlterConfigsRequest:
    configs = [
        k44.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in values.items()
    ]
    resource = k44.AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)
    return k44.IncrementalAlterConfigsRequest(resources=[resource])


def reassigned(name: str, replicas: list[int] | None) -> k45.AlterPartitionReassignmentsRequest:
    partition = k45.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = k45.ReassignableTopic(name=name, partitions=[partition])
    return k45.AlterPartitionReassignmentsRequest(topics=[topic])


def features(level: int, *, only: bool = False) -> k57.UpdateFeaturesRequest:
    update = k57.FeatureUpdateKey(feature="metadata.version", max_version_level=level)
    return k57.UpdateFeaturesRequest(feature_updates=[update], validate_only=only)


CHANGES = [
    (created("a", "b"), "created topics a, b"),
    (created("a"), None),  # it exists
    (created("c", validate_only=True), None),
    (altered("a", retention_ms="77777", segment_ms="88888"), "changed configs of topic a ("),
    (
        k37.CreatePartitionsRequest(
            topics=[k37.CreatePartitionsTopic(name="a", count=3, assignments=None)]
        ),
        "set the number of partitions of a (3)",
    ),
    (
        k43.ElectLeadersRequest(
            topic_partitions=[k43.TopicPartitions(topic="a", partitions=[0])], election_type=0
        ),
        None,  # the preferred leader leads already
    ),
    (reassigned("a", [1]), "reassigned a-0 (to [1])"),
    (reassigned("none", [1]), None),
    (features(99), None),
    (k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name="b")]), "deleted topics b"),
]


def test_changes_are_logged_with_their_author(tmp_path, caplog):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            for request, expected in CHANGES:
                caplog.clear()
                response = await connection.send(request)
                lines = [r.getMessage() for r in caplog.records if r.name == audit.log.name]
                if expected is None:
                    assert lines == [], request
                    continue
                assert len(lines) == 1, response
                (line,) = lines
                assert line.startswith("User:ANONYMOUS (127.0.0.1, client test) ")
                assert expected in line
                assert "77777" not in line
            await connection.close()

    caplog.set_level(logging.INFO, audit.log.name)
    run(test())


def test_changes_that_a_broker_makes_itself_are_logged_with_their_author(tmp_path, caplog):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)

            async def lines_of(request):
                caplog.clear()
                response = await connection.send(request)
                return [
                    r.getMessage() for r in caplog.records if r.name == audit.log.name
                ], response

            await connection.send(created("a"))
            await until(lambda: node.broker.image.topic("a") is not None)
            await commit_offset(connection, "g\n", "a")
            directory = node.config.log_dirs[0]
            for request, expected in [
                (deleted_records("a"), "deleted records of a-0 (below 0)"),
                (deleted_records("none"), None),
                (moved_to(directory, "a"), f"node 1: a-0 (to {directory})"),
                (moved_to("/none", "a"), None),
                (levels(kafka_raft="DEBUG"), "levels of loggers of node 1: kafka.raft (DEBUG)"),
                (levels(kafka_raft="NONE"), None),
                (deleted_offsets("g\n", "none"), None),
                (deleted_offsets("g\n", "a"), "deleted offsets of group g\\n of a-0"),
                (k42.DeleteGroupsRequest(groups_names=["other"]), None),
            ]:
                lines, response = await lines_of(request)
                if expected is None:
                    assert lines == [], (request, response)
                    continue
                (line,) = lines
                assert line.startswith("User:ANONYMOUS (127.0.0.1, client test) ")
                assert line.endswith(expected)
            await commit_offset(connection, "g\n", "a")
            lines, _ = await lines_of(k42.DeleteGroupsRequest(groups_names=["other", "g\n"]))
            assert [line.partition(" test) ")[2] for line in lines] == ["deleted groups g\\n"]
            await connection.close()

    before = logging.getLogger("sparkraft.raft").level
    caplog.set_level(logging.INFO, audit.log.name)
    run(test())
    for name in ("sparkraft.raft", "sparkraft.server.raft"):
        logging.getLogger(name).setLevel(before)


def deleted_records(topic: str) -> k21.DeleteRecordsRequest:
    partition = k21.DeleteRecordsPartition(partition_index=0, offset=-1)
    topics = [k21.DeleteRecordsTopic(name=topic, partitions=[partition])]
    return k21.DeleteRecordsRequest(topics=topics, timeout_ms=10_000)


def moved_to(path: str, topic: str) -> k34.AlterReplicaLogDirsRequest:
    topics = [k34.AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    return k34.AlterReplicaLogDirsRequest(dirs=[k34.AlterReplicaLogDir(path=path, topics=topics)])


def levels(**values: str) -> k44.IncrementalAlterConfigsRequest:
    request = altered("1", **values)
    request.resources[0].resource_type = 8
    return request


def deleted_offsets(group: str, topic: str) -> k47.OffsetDeleteRequest:
    partitions = [k47.OffsetDeleteRequestPartition(partition_index=0)]
    topics = [k47.OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    return k47.OffsetDeleteRequest(group_id=group, topics=topics)


async def commit_offset(connection, group: str, topic: str) -> None:
    """Commit an offset once the group's coordinator is there."""
    await connection.send(k10.FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
    partition = k08.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topics = [k08.OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    request = k08.OffsetCommitRequest(group_id=group, topics=topics)

    for _ in range(1_000):
        response = await connection.send(request, version=9)
        if response.topics[0].partitions[0].error_code == 0:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(response)


@pytest.mark.parametrize(
    ("api", "request_", "error", "expected"),
    [
        (k80_add_raft_voter, k80.AddRaftVoterRequest(cluster_id=None, voter_id=4,
         voter_directory_id=Uuid(bytes(15) + b"1")), ErrorCode.NONE,
         "added voter 4 (directory AAAAAAAAAAAAAAAAAAAAMQ) to the quorum"),
        (k80_add_raft_voter, k80.AddRaftVoterRequest(cluster_id=None, voter_id=4,
         listeners=[]), ErrorCode.DUPLICATE_VOTER, None),
        (k81_remove_raft_voter, k81.RemoveRaftVoterRequest(cluster_id=None, voter_id=4,
         voter_directory_id=Uuid(bytes(15) + b"1")), ErrorCode.NONE,
         "removed voter 4 (directory AAAAAAAAAAAAAAAAAAAAMQ) from the quorum"),
        (k10001_resign_controller, k10001.ResignControllerRequest(epoch=7), ErrorCode.NONE,
         "made the controller of epoch 7 resign"),
    ],
)  # fmt: skip
def test_changes_of_the_quorum_are_logged_with_their_author(
    api, request_, error, expected, caplog
) -> None:
    class Raft:
        is_leader = True
        leader_and_epoch = SimpleNamespace(epoch=7)
        voters = SimpleNamespace(ids=(1, 2))

        async def handle_request(self, _: object) -> Refusal:
            return Refusal(error=error)

        def resign(self, epoch: int) -> None:
            assert epoch == 7

    session = SimpleNamespace(principal="User:ann", client_host="10.0.0.1")
    context = SimpleNamespace(api_key=int(api.API.key), client_id="tool", session=session)

    async def test() -> None:
        found = api.handle(SimpleNamespace(raft=Raft()), context, request_)
        await found if hasattr(found, "__await__") else found

    caplog.set_level(logging.INFO, audit.log.name)
    asyncio.run(test())
    lines = [r.getMessage() for r in caplog.records if r.name == audit.log.name]
    who = "User:ann (10.0.0.1, client tool) "
    assert lines == ([] if expected is None else [f"{who}{expected}"])


def test_a_topic_that_was_created_without_a_leader_in_time_is_logged() -> None:
    topics = [
        k19.CreatableTopicResult(name="a"),
        k19.CreatableTopicResult(name="b", error_code=ErrorCode.REQUEST_TIMED_OUT),
        k19.CreatableTopicResult(name="c", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
    ]
    said = audit._created_topics(None, k19.CreateTopicsResponse(topics=topics))
    assert said == "created topics a, b (not confirmed in time)"


def test_changes_of_access_control_entries_name_them_on_one_line() -> None:
    creation = k30.AclCreation(
        resource_type=2, resource_name="t", resource_pattern_type=4, principal="User:a",
        host="*", operation=3, permission_type=3,
    )  # fmt: skip
    response = k30.CreateAclsResponse(results=[k30.AclCreationResult()])
    said = audit._created_acls(k30.CreateAclsRequest(creations=[creation]), response)
    assert said == ("created access control entries (ALLOW User:a READ from * on TOPIC PREFIXED t)")
    match = k31.DeleteAclsMatchingAcl(
        resource_type=3, resource_name="g", principal="User:a\nUser:b", host="*", operation=2,
        permission_type=2,
    )  # fmt: skip
    result = k31.DeleteAclsFilterResult(matching_acls=[match])
    said = audit._deleted_acls(None, k31.DeleteAclsResponse(filter_results=[result]))
    assert said.startswith("deleted access control entries ")
    assert said.isprintable()
    assert audit._created_acls(k30.CreateAclsRequest(), k30.CreateAclsResponse()) == ""


def test_altered_quotas_name_their_entities() -> None:
    entity = [k49.EntityData(entity_type="client-id", entity_name=None),
              k49.EntityData(entity_type="user", entity_name="a\tb")]  # fmt: skip
    response = k49.AlterClientQuotasResponse(
        entries=[k49.AlterClientQuotasResponseEntryData(entity=entity)]
    )
    said = audit._altered_quotas(None, response)
    assert said == "altered quotas of client-id (default) and user a\\tb"


@pytest.mark.parametrize(
    ("count", "end"), [(1, "t0"), (20, "t18, t19"), (21, "t19 and 1 more"), (5000, "4980 more")]
)
def test_long_lists_are_cut(count: int, end: str) -> None:
    assert audit._listed(f"t{n}" for n in range(count)).endswith(end)

"""Each administrative change leaves one line: who, from where, what; never a value."""

import logging

import pytest

from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k20_delete_topics as k20
from sparkraft.protocol.messages import k30_create_acls as k30
from sparkraft.protocol.messages import k31_delete_acls as k31
from sparkraft.protocol.messages import k37_create_partitions as k37
from sparkraft.protocol.messages import k43_elect_leaders as k43
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages import k45_alter_partition_reassignments as k45
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from sparkraft.protocol.messages import k57_update_features as k57
from sparkraft.server.controller import audit
from tests.server.harness import connect, node_in, run


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

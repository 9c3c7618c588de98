"""Access control entries created and deleted: Kafka's AclControlManager and AclApis."""

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller import acls
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k30_create_acls as k30
from sparkraft.protocol.messages import k31_delete_acls as k31
from sparkraft.security.acls import CLUSTER_NAME, Acl
from tests.controller.cluster_of import Cluster

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, USER = 2, 3, 4, 7
READ, WRITE, ALTER = 3, 4, 7
DENY, ALLOW = 2, 3

ALICE = Acl(TOPIC, "t", LITERAL, "User:alice", "*", READ, ALLOW)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def creation(acl: Acl) -> k30.AclCreation:
    return k30.AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def create(cluster: Cluster, *wanted: Acl) -> list[tuple[int, str | None]]:
    request = k30.CreateAclsRequest(creations=[creation(acl) for acl in wanted])
    response = cluster.ask(ApiKey.CREATE_ACLS, request)
    return [(result.error_code, result.error_message) for result in response.results]


def acl_filter(name: str | None = None, kind: int = ANY, of: int = ANY, **more: object):
    return k31.DeleteAclsFilter(
        resource_type_filter=of,
        resource_name_filter=name,
        pattern_type_filter=kind,
        principal_filter=None,
        host_filter=None,
        **{"operation": ANY, "permission_type": ANY, **more},
    )


def delete(cluster: Cluster, *filters: k31.DeleteAclsFilter):
    return cluster.ask(ApiKey.DELETE_ACLS, k31.DeleteAclsRequest(filters=list(filters)))


def stored(cluster: Cluster) -> list[Acl]:
    return sorted(cluster.core.latest.acls.values())


def test_created_entries_are_in_the_image_and_a_repetition_writes_nothing(cluster):
    other = ALICE._replace(pattern_type=PREFIXED)
    assert create(cluster, ALICE, other, ALICE) == [(0, None)] * 3
    assert stored(cluster) == [ALICE, other]
    before = len(cluster.log)
    assert create(cluster, other) == [(0, None)]
    assert len(cluster.log) == before


@pytest.mark.parametrize(
    ("acl", "said"),
    [
        (ALICE._replace(resource_type=0), "Invalid resourceType UNKNOWN"),
        (ALICE._replace(resource_type=99), "Invalid resourceType UNKNOWN"),
        (ALICE._replace(resource_type=ANY), "Invalid resourceType ANY"),
        (ALICE._replace(pattern_type=ANY), "Invalid patternType ANY"),
        (ALICE._replace(pattern_type=MATCH), "Invalid patternType MATCH"),
        (ALICE._replace(operation=0), "Invalid operation UNKNOWN"),
        (ALICE._replace(operation=ANY), "Invalid operation ANY"),
        (ALICE._replace(permission_type=ANY), "Invalid permissionType ANY"),
        (ALICE._replace(resource_name=""), "Invalid empty resource name"),
        (
            ALICE._replace(resource_type=CLUSTER, resource_name="c"),
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (ALICE._replace(principal="alice"), "Could not parse principal from `alice`"),
    ],
)
def test_an_invalid_entry_fails_alone(cluster, acl, said):
    (code, message), valid = create(cluster, acl, ALICE)
    assert code == ErrorCode.INVALID_REQUEST
    assert message.startswith(said)
    assert valid == (0, None)
    assert stored(cluster) == [ALICE]


def test_operations_that_do_not_fit_the_type_are_accepted_as_in_kafka(cluster):
    odd = Acl(USER, "User:a", LITERAL, "User:b", "host.example", READ, DENY)
    assert create(cluster, odd, odd._replace(resource_type=CLUSTER, resource_name=CLUSTER_NAME))
    assert len(stored(cluster)) == 2


def test_filters_delete_what_they_match_and_both_report_a_common_entry(cluster):
    entries = [
        ALICE,
        ALICE._replace(resource_name="*", operation=WRITE),
        ALICE._replace(resource_type=GROUP, resource_name="g"),
    ]
    create(cluster, *entries)
    response = delete(cluster, acl_filter("t", MATCH, TOPIC), acl_filter("t", LITERAL))
    first, second = response.filter_results
    assert sorted(m.resource_name for m in first.matching_acls) == ["*", "t"]
    assert [m.resource_name for m in second.matching_acls] == ["t"]
    assert all(m.error_code == 0 for m in first.matching_acls)
    assert stored(cluster) == [entries[2]]
    again = delete(cluster, acl_filter("t", MATCH, TOPIC))
    assert again.filter_results[0].matching_acls == []


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (acl_filter(of=0), "Unknown patternFilter."),
        (acl_filter(kind=9), "Unknown patternFilter."),
        (acl_filter(operation=0), "Unknown entryFilter."),
        (acl_filter(permission_type=9), "Unknown entryFilter."),
    ],
)
def test_an_unknown_filter_fails_alone(cluster, wanted, said):
    create(cluster, ALICE)
    wrong, right = delete(cluster, wanted, acl_filter()).filter_results
    assert (wrong.error_code, wrong.error_message) == (ErrorCode.INVALID_REQUEST, said)
    assert wrong.matching_acls == []
    assert len(right.matching_acls) == 1
    assert stored(cluster) == []


def test_a_request_with_too_many_entries_changes_nothing(cluster, monkeypatch):
    monkeypatch.setattr(acls, "RECORDS_MAX", 2)
    create(cluster, *(ALICE._replace(resource_name=name) for name in "abc"))
    with pytest.raises(KafkaError) as caught:
        delete(cluster, acl_filter())
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert len(stored(cluster)) == 3

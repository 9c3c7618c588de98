"""Client quotas set and removed: Kafka's ClientQuotaControlManager."""

import math

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from tests.controller.cluster_of import Cluster

ALICE = {"user": "alice"}
BYTES = "producer_byte_rate"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def entry(entity: dict[str, str | None], **values: float | None):
    return k49.AlterClientQuotasRequestEntryData(
        entity=[
            k49.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[
            k49.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )


def alter(cluster: Cluster, *entries, **options) -> list[tuple[int, str | None]]:
    request = k49.AlterClientQuotasRequest(entries=list(entries), **options)
    response = cluster.ask(ApiKey.ALTER_CLIENT_QUOTAS, request)
    return [(one.error_code, one.error_message) for one in response.entries]


def quotas(cluster: Cluster) -> dict:
    found = cluster.core.latest.quotas
    return {entity: dict(found[entity]) for entity in sorted(found, key=repr)}


def test_quotas_of_each_kind_of_entity_are_set_changed_and_removed(cluster):
    entities = [
        {"user": "alice"}, {"user": None}, {"client-id": "c"}, {"client-id": None},
        {"user": "alice", "client-id": "c"}, {"client-id": None, "user": None},
    ]  # fmt: skip
    assert alter(cluster, *(entry(each, **{BYTES: 5}) for each in entities)) == [(0, None)] * 6
    assert len(quotas(cluster)) == 6
    assert (("client-id", None), ("user", None)) in quotas(cluster)
    alter(cluster, entry(ALICE, **{BYTES: 7, "request_percentage": 12.5}))
    assert quotas(cluster)[("user", "alice"),] == {BYTES: 7, "request_percentage": 12.5}
    alter(cluster, entry(ALICE, **{BYTES: None, "consumer_byte_rate": None}))
    assert quotas(cluster)[("user", "alice"),] == {"request_percentage": 12.5}
    alter(cluster, entry(ALICE, request_percentage=None))
    assert (("user", "alice"),) not in quotas(cluster)


def test_addresses_have_a_quota_of_their_own(cluster):
    limit = {"connection_creation_rate": 3}
    found = alter(
        cluster, entry({"ip": "10.0.0.1"}, **limit), entry({"ip": None}, **limit),
        entry({"ip": "::1"}, **limit),
    )  # fmt: skip
    assert found == [(0, None)] * 3


def test_a_value_that_is_set_is_not_written_again(cluster):
    alter(cluster, entry(ALICE, **{BYTES: 5}))
    before = len(cluster.log)
    alter(cluster, entry(ALICE, **{BYTES: 5}), entry({"user": "bob"}, **{BYTES: None}))
    assert len(cluster.log) == before


def test_validate_only_changes_nothing(cluster):
    assert alter(cluster, entry(ALICE, **{BYTES: 5}), validate_only=True) == [(0, None)]
    assert quotas(cluster) == {}


@pytest.mark.parametrize(
    ("entity", "values", "said"),
    [
        ({}, {BYTES: 1}, "Invalid empty client quota entity"),
        ({"group": "g"}, {BYTES: 1}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {BYTES: 1}, "Empty user not supported"),
        ({"ip": "10.0.0.1", "user": "a"}, {"connection_creation_rate": 1}, "Invalid quota entity"),
        ({"ip": "localhost"}, {"connection_creation_rate": 1}, "localhost is not a valid IP"),
        ({"ip": "10.0.0.1"}, {BYTES: 1}, f"Invalid configuration key {BYTES}"),
        (ALICE, {"connection_creation_rate": 1}, "Invalid configuration key"),
        (ALICE, {"no_such_rate": 1}, "Invalid configuration key no_such_rate"),
        (ALICE, {BYTES: -1}, f"Quota {BYTES} must be greater than 0"),
        (ALICE, {BYTES: math.nan}, f"Quota {BYTES} must be greater than 0"),
        (ALICE, {BYTES: math.inf}, f"Proposed value for {BYTES} is too large for a LONG."),
        (ALICE, {BYTES: 1.5}, f"{BYTES} cannot be a fractional value."),
        (ALICE, {"request_percentage": math.inf}, "Quota request_percentage must be finite"),
        ({"ip": None}, {"connection_creation_rate": 1 << 32}, "Proposed value for connection"),
    ],
)
def test_an_invalid_alteration_fails_alone(cluster, entity, values, said):
    (code, message), valid = alter(
        cluster, entry(entity, **values), entry({"user": "bob"}, **{BYTES: 1})
    )
    assert code == ErrorCode.INVALID_REQUEST
    assert message.startswith(said)
    assert valid == (0, None)
    assert list(quotas(cluster)) == [(("user", "bob"),)]


def test_one_bad_value_refuses_its_whole_entity(cluster):
    alter(cluster, entry(ALICE, **{BYTES: 5, "consumer_byte_rate": -1}))
    assert quotas(cluster) == {}


def test_an_entity_or_key_that_is_given_twice_is_refused(cluster):
    twice = alter(cluster, entry(ALICE, **{BYTES: 5}), entry(ALICE, **{BYTES: 6}))
    assert [code for code, _ in twice] == [ErrorCode.INVALID_REQUEST]
    assert twice[0][1] == "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    assert quotas(cluster)[("user", "alice"),] == {BYTES: 5}, "as in Kafka"
    doubled = entry({"user": "bob"}, **{BYTES: 5})
    doubled.ops.append(k49.OpData(key=BYTES, value=6))
    ((code, _),) = alter(cluster, doubled)
    assert code == ErrorCode.INVALID_REQUEST

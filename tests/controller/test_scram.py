"""SCRAM credentials set and deleted: Kafka's ScramControlManager and its test's cases."""

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.controller.decision import Decision
from sparkraft.metadata.image import ScramCredential
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k51_alter_user_scram_credentials as k51
from sparkraft.protocol.messages.metadata_records import FeatureLevelRecord
from sparkraft.security.scram import SHA_256, SHA_512, keys_of
from tests.controller.cluster_of import Cluster

TWICE = "A user credential cannot be altered twice in the same request"
SALTED = bytes(range(32))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def upsertion(name="alice", mechanism=1, iterations=4096) -> k51.ScramCredentialUpsertion:
    return k51.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=SALTED
    )


def deletion(name="alice", mechanism=1) -> k51.ScramCredentialDeletion:
    return k51.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(cluster: Cluster, *changes) -> dict[str, tuple[int, str | None]]:
    request = k51.AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, k51.ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, k51.ScramCredentialUpsertion)],
    )
    response = cluster.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    return {result.user: (result.error_code, result.error_message) for result in response.results}


def stored(cluster: Cluster) -> dict[tuple[int, str], ScramCredential]:
    return dict(cluster.core.latest.scram)


def test_keys_are_stored_and_the_salted_password_is_not(cluster: Cluster) -> None:
    assert alter(cluster, upsertion()) == {"alice": (0, None)}
    keys = keys_of(SHA_256, SALTED)
    expected = ScramCredential(b"salt", keys.stored_key, keys.server_key, 4096)
    assert stored(cluster) == {(1, "alice"): expected}
    assert SALTED not in (expected.stored_key, expected.server_key)
    assert len(keys_of(SHA_512, SALTED).stored_key) == 64


def test_credentials_are_changed_and_deleted(cluster: Cluster) -> None:
    alter(cluster, upsertion(), upsertion("bob", mechanism=2))
    assert set(stored(cluster)) == {(1, "alice"), (2, "bob")}
    alter(cluster, upsertion(iterations=8192))
    assert stored(cluster)[1, "alice"].iterations == 8192
    assert alter(cluster, deletion(), deletion("bob", 2)) == {"alice": (0, None), "bob": (0, None)}
    assert stored(cluster) == {}


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (deletion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (deletion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsertion("*"), ErrorCode.UNACCEPTABLE_CREDENTIAL, "User:* stands for all users"),
        (
            deletion(),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_a_change_that_cannot_be_made_has_kafkas_error(cluster, change, code, text):
    assert alter(cluster, change, upsertion("bob")) == {
        change.name: (code, text),
        "bob": (0, None),
    }
    assert set(stored(cluster)) == {(1, "bob")}


def test_both_bounds_of_iterations_are_allowed(cluster: Cluster) -> None:
    changes = [upsertion("a", iterations=4096), upsertion("b", iterations=16384)]
    assert alter(cluster, *changes) == {"a": (0, None), "b": (0, None)}


@pytest.mark.parametrize(
    "changes",
    [
        (upsertion(), upsertion(mechanism=2)),
        (deletion(), upsertion()),
        (deletion(), deletion(mechanism=2)),
        (upsertion(), upsertion(), upsertion()),
    ],
)
def test_a_user_named_twice_is_not_changed(cluster: Cluster, changes) -> None:
    alter(cluster, upsertion())
    alter(cluster, upsertion(mechanism=2))
    before = stored(cluster)
    found = alter(cluster, *changes, upsertion("bob"))
    assert found == {"alice": (ErrorCode.DUPLICATE_RESOURCE, TWICE), "bob": (0, None)}
    assert stored(cluster) == before | {(1, "bob"): stored(cluster)[1, "bob"]}


def test_a_metadata_version_before_3_5_has_no_scram(cluster: Cluster) -> None:
    alter(cluster, upsertion())
    level = FeatureLevelRecord(name="metadata.version", feature_level=10)
    cluster.carry_out(Decision(records=((level, 0),)))
    text = "The current metadata.version does not support SCRAM"
    error = (ErrorCode.UNSUPPORTED_VERSION, text)
    assert alter(cluster, upsertion(), deletion("bob")) == {"alice": error, "bob": error}

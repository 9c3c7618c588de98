"""Delegation tokens, as Kafka's DelegationTokenControlManager decides about them."""

import hashlib
import hmac
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode
from sparkraft.controller import controller, delegation_tokens
from sparkraft.controller.decision import Decision
from sparkraft.metadata.image import DelegationToken
from sparkraft.metadata.snapshot import records_of
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import k38_create_delegation_token as k38
from sparkraft.protocol.messages import k39_renew_delegation_token as k39
from sparkraft.protocol.messages import k40_expire_delegation_token as k40
from sparkraft.protocol.messages.metadata_records import FeatureLevelRecord
from sparkraft.security.delegation_token import TokenKey, token_key
from sparkraft.security.principal import KafkaPrincipal
from tests.controller.cluster_of import Cluster

SECRET = "planted-secret-key-3391"
ALICE, BOB, EVE = (KafkaPrincipal("User", name) for name in ("alice", "bob", "eve"))
NOW = 1_700_000_000_000
DAY = 86_400_000


def made(**config: Any) -> Cluster:
    return Cluster(token_key=token_key(SECRET), **config)


@pytest.fixture
def cluster() -> Cluster:
    return made()


def create(cluster: Cluster, *, by: KafkaPrincipal = ALICE, at: int = NOW, **fields: Any) -> Any:
    request = k38.CreateDelegationTokenRequest(max_lifetime_ms=-1, **fields)
    return cluster.ask(ApiKey.CREATE_DELEGATION_TOKEN, request, principal=by, wall_ms=at)


def renew(cluster: Cluster, token: bytes, period_ms: int = -1, *, by=ALICE, at=NOW) -> Any:
    request = k39.RenewDelegationTokenRequest(hmac=token, renew_period_ms=period_ms)
    return cluster.ask(ApiKey.RENEW_DELEGATION_TOKEN, request, principal=by, wall_ms=at)


def expire(cluster: Cluster, token: bytes, period_ms: int = -1, *, by=ALICE, at=NOW) -> Any:
    request = k40.ExpireDelegationTokenRequest(hmac=token, expiry_time_period_ms=period_ms)
    return cluster.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, request, principal=by, wall_ms=at)


def renewer(name: str, kind: str = "User") -> k38.CreatableRenewers:
    return k38.CreatableRenewers(principal_type=kind, principal_name=name)


def stored(cluster: Cluster) -> dict[str, DelegationToken]:
    return dict(cluster.core.latest.delegation_tokens)


def test_a_token_is_stored_without_its_hmac(cluster: Cluster) -> None:
    response = create(cluster, renewers=[renewer("bob")])
    assert response.error_code == 0
    assert response.hmac == hmac.digest(SECRET.encode(), response.token_id.encode(), hashlib.sha512)
    expected = DelegationToken(
        "User:alice", "User:alice", ("User:bob",), NOW, NOW + 7 * DAY, NOW + DAY, response.token_id
    )
    assert stored(cluster) == {response.token_id: expected}
    assert (response.principal_type, response.principal_name) == ("User", "alice")
    assert (response.issue_timestamp_ms, response.expiry_timestamp_ms) == (NOW, NOW + DAY)
    assert response.max_timestamp_ms == NOW + 7 * DAY
    written = repr([*cluster.log, *records_of(cluster.core.latest)])
    assert repr(bytes(response.hmac)) not in written
    assert SECRET not in written
    assert SECRET not in repr(cluster.core.config)


@pytest.mark.parametrize(
    ("wanted_ms", "max_ms", "expiry_ms"),
    [
        (-1, 7 * DAY, DAY),
        (0, 7 * DAY, DAY),
        (5, 5, 5),
        (2 * DAY, 2 * DAY, DAY),
        (8 * DAY, 7 * DAY, DAY),
    ],
)
def test_the_lifetime_is_the_smaller_one(cluster, wanted_ms, max_ms, expiry_ms) -> None:
    request = k38.CreateDelegationTokenRequest(max_lifetime_ms=wanted_ms)
    response = cluster.ask(ApiKey.CREATE_DELEGATION_TOKEN, request, principal=ALICE, wall_ms=NOW)
    assert response.max_timestamp_ms == NOW + max_ms
    assert response.expiry_timestamp_ms == NOW + expiry_ms


def test_times_do_not_overflow() -> None:
    cluster = made(token_lifetime_ms_max=(1 << 63) - 1, token_expiry_ms=(1 << 63) - 1)
    response = create(cluster)
    assert response.max_timestamp_ms == response.expiry_timestamp_ms == (1 << 63) - 1


def test_a_token_for_another_owner_is_renewed_by_the_owner_and_not_by_the_requester(cluster):
    response = create(cluster, owner_principal_type="User", owner_principal_name="bob")
    assert (response.principal_name, response.token_requester_principal_name) == ("bob", "alice")
    assert renew(cluster, response.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(cluster, response.hmac, by=BOB).error_code == 0
    token = stored(cluster)[response.token_id]
    assert token.is_of("User:alice")
    assert not token.is_of("User:eve")


def test_a_renewer_that_is_not_a_user_is_refused(cluster: Cluster) -> None:
    response = create(cluster, renewers=[renewer("bob"), renewer("g", "Group")])
    assert response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (response.principal_name, response.issue_timestamp_ms, response.hmac) == (
        "alice",
        0,
        b"",
    )
    assert stored(cluster) == {}


def test_renewals_end_at_the_maximum(cluster: Cluster) -> None:
    token = create(cluster, renewers=[renewer("bob")]).hmac
    assert renew(cluster, token, 1000, by=BOB).expiry_timestamp_ms == NOW + 1000
    assert renew(cluster, token, 2 * DAY).expiry_timestamp_ms == NOW + DAY
    for day in range(1, 7):
        at = NOW + day * DAY
        assert renew(cluster, token, at=at).expiry_timestamp_ms == min(at + DAY, NOW + 7 * DAY)
    late = renew(cluster, token, at=NOW + 7 * DAY + 1)
    assert (late.error_code, late.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)


def test_a_token_is_valid_up_to_its_last_millisecond(cluster: Cluster) -> None:
    token = create(cluster).hmac
    assert renew(cluster, token, at=NOW + DAY).error_code == 0
    other = create(cluster).hmac
    assert renew(cluster, other, at=NOW + DAY + 1).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_expiring_later_and_at_once(cluster: Cluster) -> None:
    response = create(cluster)
    assert expire(cluster, response.hmac, 50).expiry_timestamp_ms == NOW + 50
    assert expire(cluster, response.hmac, 30 * DAY).expiry_timestamp_ms == NOW + 7 * DAY
    assert expire(cluster, response.hmac, 0).expiry_timestamp_ms == NOW
    gone = expire(cluster, response.hmac, -1, at=NOW + 5)
    assert (gone.error_code, gone.expiry_timestamp_ms) == (0, NOW + 5)
    assert stored(cluster) == {}
    missing = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert expire(cluster, response.hmac).error_code == missing
    assert renew(cluster, response.hmac).error_code == missing


def test_an_expired_token_can_be_removed_and_not_prolonged(cluster: Cluster) -> None:
    """The owner is checked first: Kafka's order."""
    token, late = create(cluster).hmac, NOW + 2 * DAY
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(cluster, token, 5, by=EVE, at=late).error_code == mismatch
    assert expire(cluster, token, -1, by=EVE, at=late).error_code == mismatch
    expired = ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(cluster, token, 5, at=late).error_code == expired
    assert renew(cluster, token, by=EVE, at=late).error_code == expired, "of renewals: time first"
    assert expire(cluster, token, -1, at=late).error_code == 0


def test_without_a_key_tokens_are_off() -> None:
    cluster = Cluster()
    for response in (create(cluster), renew(cluster, b"x"), expire(cluster, b"x")):
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert token_key("") is None


def test_a_metadata_version_before_3_6_has_no_tokens(cluster: Cluster) -> None:
    level = FeatureLevelRecord(name="metadata.version", feature_level=13)
    cluster.carry_out(Decision(records=((level, 0),)))
    for response in (create(cluster), renew(cluster, b"x"), expire(cluster, b"x")):
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


def remove_expired(cluster: Cluster, at: int) -> bool:
    more: bool = cluster.carry_out(cluster.core.remove_expired_tokens(at))
    return more


def test_expired_tokens_are_removed_a_thousand_at_a_time(cluster, monkeypatch) -> None:
    monkeypatch.setattr(delegation_tokens, "REMOVALS_MAX", 2)
    for _ in range(3):
        create(cluster)
    kept = create(cluster, at=NOW + DAY)
    assert remove_expired(cluster, NOW + DAY) is False
    assert len(stored(cluster)) == 4
    assert remove_expired(cluster, NOW + DAY + 1) is True
    assert remove_expired(cluster, NOW + DAY + 1) is False
    assert set(stored(cluster)) == {kept.token_id}


def test_tokens_are_removed_also_where_they_are_off_now() -> None:
    cluster = made()
    create(cluster)
    off = Cluster()
    off.core.load(cluster.core.latest)
    assert remove_expired(off, NOW + 2 * DAY) is False
    assert stored(off) == {}


def test_a_controller_finds_tokens_of_snapshots_and_of_other_controllers(cluster: Cluster) -> None:
    token = create(cluster).hmac
    by_snapshot, by_log = made(), made()
    by_snapshot.core.load(cluster.core.latest)
    for records, base in cluster.log:
        by_log.core.replay_committed(
            records, base_offset=base, last_offset=base + len(records) - 1, epoch=1
        )
    for other in (by_snapshot, by_log):
        assert renew(other, token).error_code == 0


def test_a_token_whose_creation_was_lost_is_not_found(cluster: Cluster) -> None:
    request = k38.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    lost = cluster.ask(
        ApiKey.CREATE_DELEGATION_TOKEN, request, principal=ALICE, wall_ms=NOW, commit=False
    )
    cluster.core.deactivate()
    assert renew(cluster, lost.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_whose_removal_was_lost_is_found(cluster: Cluster) -> None:
    token = create(cluster).hmac
    request = k40.ExpireDelegationTokenRequest(hmac=token, expiry_time_period_ms=-1)
    cluster.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, request, principal=ALICE, wall_ms=NOW, commit=False)
    cluster.core.deactivate()
    assert renew(cluster, token).error_code == 0


def test_hmacs_of_a_snapshots_tokens_are_computed_in_pieces(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "TOKENS_PER_ITERATION", 2)
    token, *_ = [create(cluster) for _ in range(5)]
    standby = made()
    assert len(list(standby.core.prepare(cluster.core.latest))) == 2
    monkeypatch.setattr(TokenKey, "hmac_of", None)  # it would compute all of them in one go
    standby.core.load(cluster.core.latest)
    assert renew(standby, token.hmac).error_code == ErrorCode.NONE

"""Runs of principals find nothing, and each planted bug in the cores of security."""

from typing import Any

import pytest

from sparkraft.security import acl_index, client_quotas, plain, standard_authorizer
from sparkraft.security.acls import Acl, AclPermissionType, PatternType
from sparkraft.security.authenticator import Authenticator
from sparkraft.security.client_quotas import ClientQuotas
from sparkraft.security.leaky_bucket import LeakyBucket
from sparkraft.security.plain import PlainServer
from sparkraft.security.principal import KafkaPrincipal
from sparkraft.security.scram import ScramServer
from sparkraft.security.standard_authorizer import StandardAuthorizer
from sparkraft.server.access_control import AclPublisher
from tests.mutants.mutant import Mutant, Patches, planted, registrar
from tests.security.principal_run import PrincipalRun, ViolationError

SEEDS = range(1, 41)
"""Enough for each planted bug; a bug that needs more has lost its cause."""

MUTANTS: dict[str, Mutant] = {}
_plant = registrar(MUTANTS, ("cores",), workload="principals")

INDEX, AUTHORIZER = acl_index.AclIndex, StandardAuthorizer


# ---- decisions


@_plant("entries that deny are left out", "A1", "A2")
def _denies_are_lost() -> Patches:
    original = INDEX.fitting

    def fitting(self: Any, *arguments: Any) -> Any:
        for acl in original(self, *arguments):
            if acl.permission_type == AclPermissionType.ALLOW:
                yield acl

    return [(INDEX, "fitting", fitting)]


@_plant("the first entry that allows wins over one that denies", "A1", "A2")
def _an_allow_comes_first() -> Patches:
    original = INDEX.fitting

    def fitting(self: Any, *arguments: Any) -> Any:
        found = sorted(original(self, *arguments), key=lambda acl: -acl.permission_type)
        return found[:1]

    return [(INDEX, "fitting", fitting)]


@_plant("entries for every resource of a type are not looked up", "A1", "A2")
def _wildcards_are_lost() -> Patches:
    original = INDEX.fitting

    def fitting(self: Any, kind: int, name: str) -> Any:
        return [acl for acl in original(self, kind, name) if acl.resource_name != "*"]

    return [(INDEX, "fitting", fitting)]


@_plant("a prefix fits only its own name", "A1", "A2")
def _prefixes_are_names() -> Patches:
    original = INDEX.fitting

    def fitting(self: Any, kind: int, name: str) -> Any:
        for acl in original(self, kind, name):
            if acl.pattern_type == PatternType.LITERAL or acl.resource_name == name:
                yield acl

    return [(INDEX, "fitting", fitting)]


@_plant("an entry of one address holds for all", "A1", "A2")
def _hosts_are_not_compared() -> Patches:
    original = INDEX.fitting

    def fitting(self: Any, *arguments: Any) -> Any:
        return [acl._replace(host="*") for acl in original(self, *arguments)]

    return [(INDEX, "fitting", fitting)]


@_plant("entries for all principals apply to nobody", "A1", "A2")
def _everybody_is_nobody() -> Patches:
    return [(standard_authorizer, "WILDCARD_PRINCIPAL", "User:nobody-at-all")]


@_plant("the type of a principal is not compared", "A1", "A2")
def _groups_are_users() -> Patches:
    def principals(principal: KafkaPrincipal) -> tuple[str, ...]:
        return f"User:{principal.name}", "User:*"

    return [(standard_authorizer, "_principals", principals)]


@_plant("an allowed operation implies none", "A1", "A2")
def _nothing_is_implied() -> Patches:
    return [(standard_authorizer, "IMPLIED_BY", {})]


@_plant("a denied operation denies those it implies", "A1", "A2")
def _denials_imply_others() -> Patches:
    original = AUTHORIZER._decide

    def decide(self: Any, requester: Any, operation: Any, kind: Any, name: str) -> Any:
        for implying in standard_authorizer.IMPLIED_BY.get(operation, ()):
            verdict = original(self, requester, implying, kind, name)
            if not verdict.allowed and isinstance(verdict.rule, Acl):
                return verdict
        return original(self, requester, operation, kind, name)

    return [(AUTHORIZER, "_decide", decide)]


@_plant("the default holds for resources with entries of others", "A1", "A2")
def _the_default_is_for_all() -> Patches:
    original = AUTHORIZER._decide

    def decide(self: Any, *arguments: Any) -> Any:
        verdict = original(self, *arguments)
        return self._if_no_acl if verdict.rule == "DefaultDeny" else verdict

    return [(AUTHORIZER, "_decide", decide)]


@_plant("super users are known by name, whatever their type", "A1", "A2")
def _super_users_of_any_type() -> Patches:
    original = AUTHORIZER._decide

    def decide(self: Any, requester: Any, *arguments: Any) -> Any:
        if f"User:{requester.principal.name}" in self.super_users:
            return standard_authorizer._SUPER_USER
        return original(self, requester, *arguments)

    return [(AUTHORIZER, "_decide", decide)]


@_plant("decisions are remembered without the address", "A1", "A2")
def _remembered_for_all_hosts() -> Patches:
    def key(requester: Any, operation: Any, kind: Any, name: Any) -> Any:
        return requester.principal, operation, kind, name

    return [(standard_authorizer, "_key", key)]


# ---- entries that change


@_plant("decisions are remembered when entries change", "A2", "A1")
def _decisions_outlive_entries() -> Patches:
    def change(self: Any, *, removed: Any, added: Any) -> None:
        for acl in removed:
            self._index.remove(acl)
        for acl in added:
            self._index.add(acl)

    return [(AUTHORIZER, "change", change)]


@_plant("removed entries stay in force", "A2", "A1")
def _removals_are_lost() -> Patches:
    return [(INDEX, "remove", lambda self, acl: None)]


@_plant("one removal removes all equal entries", "A2", "A1")
def _equal_entries_are_one() -> Patches:
    original = INDEX.remove

    def remove(self: Any, acl: Acl) -> None:
        entries = self._entries.get(acl_index._key(acl))
        if entries:
            entries[acl] = min(entries[acl], 1)
            if entries[acl]:
                original(self, acl)

    return [(INDEX, "remove", remove)]


@_plant("a snapshot adds its entries to those before", "A2", "A1")
def _a_snapshot_replaces_nothing() -> Patches:
    def load(self: Any, acls: Any) -> None:
        for acl in acls:
            self._index.add(acl)
        self._verdicts.clear()

    return [(AUTHORIZER, "load", load)]


@_plant("the entries of a snapshot are not loaded", "A2", "A1")
def _snapshots_are_skipped() -> Patches:
    def on_snapshot(self: Any, reader: Any) -> None:
        self._acls, self._changed = self._image().acls, set()

    original = INDEX.remove

    def remove(self: Any, acl: Acl) -> None:
        if acl in self._entries.get(acl_index._key(acl), {}):
            original(self, acl)

    return [(AclPublisher, "on_snapshot", on_snapshot), (INDEX, "remove", remove)]


# ---- logins


@_plant("PLAIN compares no password", "A1")
def _any_password_will_do() -> Patches:
    return [(plain.Secret, "matches", lambda self, given: True)]


@_plant("PLAIN lets a user act for another", "A1")
def _plain_acts_for_others() -> Patches:
    original = PlainServer.respond

    def respond(self: Any, token: bytes) -> bytes:
        acts_for, _, rest = token.partition(b"\0")
        answer = original(self, b"\0" + rest)
        if acts_for:
            self.user = acts_for.decode()
        return answer

    return [(PlainServer, "respond", respond)]


@_plant("the server's nonce of SCRAM is the same in each exchange", "A1")
def _a_login_can_be_replayed() -> Patches:
    original = ScramServer.__init__

    def init(self: Any, *arguments: Any, **more: Any) -> None:
        original(self, *arguments, **more | {"nonce": "same"})

    return [(ScramServer, "__init__", init)]


@_plant("SCRAM accepts any proof", "A1")
def _any_proof_will_do() -> Patches:
    return [(ScramServer, "_proves", lambda self, proof, message: self._credential is not None)]


@_plant("a connection re-authenticates as somebody else", "A1")
def _another_user_takes_over() -> Patches:
    return [(Authenticator, "_check_unchanged", lambda self, user: None)]


# ---- quotas


@_plant("a client over its quota need not wait", "A3")
def _no_throttle() -> Patches:
    return [(LeakyBucket, "add", lambda self, amount, per_second, burst, now: 0)]


@_plant("each client id of a user has the user's quota for itself", "A3")
def _a_bucket_for_each_client_id() -> Patches:
    original = ClientQuotas._look_up

    def look_up(self: Any, key: str, user: str, client_id: str) -> Any:
        found = original(self, key, user, client_id)
        return None if found is None else (found[0], (key, user, client_id))

    return [(ClientQuotas, "_look_up", look_up)]


@_plant("bytes that exceed a quota are not recorded", "A3")
def _what_exceeds_is_forgotten() -> Patches:
    original = LeakyBucket.add

    def add(self: Any, amount: float, per_second: float, burst: float, now: int) -> int:
        wait = original(self, amount, per_second, burst, now)
        if wait:
            original(self, -amount, per_second, burst, now)
        return wait

    return [(LeakyBucket, "add", add)]


@_plant("the time of requests is recorded in seconds, not in percent", "A3")
def _a_share_is_a_hundred_times_too_large() -> Patches:
    original = ClientQuotas.record_time

    def record_time(self: Any, user: str, client_id: Any, seconds: float, now: int) -> int:
        return original(self, user, client_id, seconds / 100, now)

    return [(ClientQuotas, "record_time", record_time)]


@_plant("a throttle of time may last longer than one window", "A3")
def _a_long_throttle() -> Patches:
    def record_time(self: Any, user: str, client_id: Any, seconds: float, now: int) -> int:
        key = client_quotas.REQUEST_PERCENTAGE
        return int(self.record(key, user, client_id, seconds * 100, now))

    return [(ClientQuotas, "record_time", record_time)]


def violation(seed: int) -> str:
    """What a run reports; empty: nothing."""
    try:
        PrincipalRun(seed).check()
    except ViolationError as found:
        return str(found)
    return ""


def test_runs_report_nothing() -> None:
    assert [violation(seed) for seed in SEEDS] == [""] * len(SEEDS)


@pytest.mark.parametrize("name", MUTANTS)
def test_each_planted_bug_is_reported(name: str) -> None:
    mutant = MUTANTS[name]
    with planted(mutant):
        found = next(filter(None, map(violation, SEEDS)), "")
    assert found[:2] in mutant.seen_by, f"{mutant.about}: {found or 'not reported'}"


def test_there_are_planted_bugs_of_each_invariant() -> None:
    for invariant in ("A1", "A2", "A3"):
        assert sum(invariant in mutant.seen_by for mutant in MUTANTS.values()) >= 5
    assert len(MUTANTS) >= 15

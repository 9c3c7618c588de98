"""Planted bugs in access control, logins and quotas of whole nodes.

Those of the cores alone are in `tests/security/test_principal_runs.py`.
"""

from typing import Any

from sparkraft.controller import acls
from sparkraft.controller.decision import Decision
from sparkraft.coordinator.group.consumer_update import MemberUpdates
from sparkraft.security.acls import AclOperation
from sparkraft.security.client_quotas import ClientQuotas
from sparkraft.security.scram import ScramMechanism, ScramServer
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import StandardAuthorizer
from sparkraft.server.access_control import AclPublisher
from sparkraft.server.api import k00_produce, k58_envelope
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.broker import envelope
from sparkraft.server.network.connection import Connection
from sparkraft.server.scram_logins import ScramLogins
from sparkraft.simulation.world.principals import LIMITED_USER
from tests.mutants.mutant import NODES, Mutant, Patches, registrar

PRINCIPAL_MUTANTS: dict[str, Mutant] = {}

_plant = registrar(PRINCIPAL_MUTANTS, tiers=NODES, workload="principals", isolated=True)


# ---- requests


@_plant("a forwarded request is the broker's, not its client's", "A1", "A2")
def _forwarded_requests_are_the_brokers() -> Patches:
    original = k58_envelope._client_session

    def session(of_broker: Any, request: Any) -> Any:
        made = original(of_broker, request)
        made.principal = of_broker.principal
        return made

    return [(k58_envelope, "_client_session", session)]


@_plant("a forwarded request comes from the broker's address", "A1", "A2")
def _forwarded_requests_have_no_address() -> Patches:
    return [(envelope, "address_bytes", lambda _host: bytes([127, 0, 0, 1]))]


@_plant("a repeated Produce request is not authorized again", "A1", "A2")
def _fast_writes_are_not_authorized() -> Patches:
    return [(k00_produce, "_may_write", lambda _session, _topic: True)]


@_plant("configs of topics are described to everyone", "A1", "A2")
def _configs_are_shown_to_all() -> Patches:
    original = RequestContext.is_allowed

    def is_allowed(self: Any, operation: Any, *arguments: Any, **more: Any) -> bool:
        if operation == AclOperation.DESCRIBE_CONFIGS:
            return True
        return original(self, operation, *arguments, **more)

    return [(RequestContext, "is_allowed", is_allowed)]


@_plant("a regular expression finds topics that the member may not describe", "K15")
def _expressions_find_everything() -> Patches:
    original = MemberUpdates.resolve_regexes

    def resolve(self: Any, update: Any, _may_describe: Any, now: Any) -> Any:
        return original(self, update, lambda _topic: True, now)

    return [(MemberUpdates, "resolve_regexes", resolve)]


# ---- entries that change


@_plant("changes of entries have effect when a node starts", "A2", "A1")
def _changes_wait_for_a_restart() -> Patches:
    return [(AclPublisher, "on_commit", lambda _self, _batch: None)]


@_plant("a node keeps its decisions when entries change", "A2", "A1")
def _decisions_are_kept() -> Patches:
    def change(self: Any, *, removed: Any, added: Any) -> None:
        for acl in removed:
            self._index.remove(acl)
        for acl in added:
            self._index.add(acl)

    return [(StandardAuthorizer, "change", change)]


@_plant("a node that starts does not load the entries of its snapshot", "A1", "A2")
def _entries_of_snapshots_are_lost() -> Patches:
    def on_snapshot(self: Any, _reader: Any) -> None:
        self._acls, self._changed = self._image().acls, set()

    return [(AclPublisher, "on_snapshot", on_snapshot)]


@_plant("changes of entries are acknowledged without a record", "A2")
def _changes_are_not_written() -> Patches:
    def decision(*, records: Any, response: Any) -> Decision:
        del records
        return Decision(response=response)

    return [(acls, "Decision", decision)]


# ---- logins


@_plant("PLAIN accepts every password of a known user", "A1")
def _passwords_are_not_compared() -> Patches:
    return [(Secret, "matches", lambda _self, _given: True)]


@_plant("SCRAM accepts the proof of another password", "A1")
def _proofs_are_not_compared() -> Patches:
    def proves(self: Any, _proof: Any, _message: Any) -> bool:
        return self._credential is not None

    return [(ScramServer, "_proves", proves)]


@_plant("a node remembers the first password of a user", "A1")
def _passwords_are_remembered() -> Patches:
    original = ScramLogins.begin
    known: dict[tuple[ScramLogins, str], Any] = {}

    def begin(self: ScramLogins, mechanism: ScramMechanism) -> ScramServer:
        made = original(self, mechanism)
        look_up = made._lookup

        def remembered(user: str) -> Any:
            found = look_up(user)
            return None if found is None else known.setdefault((self, user), found)

        made._lookup = remembered
        return made

    return [(ScramLogins, "begin", begin)]


# ---- quotas


@_plant("a client over its quota is not held up", "A3")
def _throttled_clients_continue() -> Patches:
    return [(Connection, "mute", lambda _self, _throttle_ms: None)]


@_plant("each client id has the quota of its user", "A3")
def _client_ids_have_the_quota_of_the_user() -> Patches:
    original = ClientQuotas._look_up

    def look_up(self: Any, key: str, user: str, client_id: str) -> Any:
        found = original(self, key, user, client_id)
        return None if found is None else (found[0], (key, user, client_id))

    return [(ClientQuotas, "_look_up", look_up)]


@_plant("one user's quota is that of all", "A3")
def _the_quota_is_of_all() -> Patches:
    original = ClientQuotas._look_up

    def look_up(self: Any, key: str, _user: str, client_id: str) -> Any:
        return original(self, key, LIMITED_USER, client_id)

    return [(ClientQuotas, "_look_up", look_up)]


@_plant("quotas have effect when a node starts", "A3")
def _quotas_wait_for_a_restart() -> Patches:
    original = ClientQuotas.update

    def update(self: Any, quotas: Any) -> None:
        if isinstance(self._quotas, dict):  # as it is constructed
            original(self, quotas)

    return [(ClientQuotas, "update", update)]

"""Invariants of users on whole nodes: their logins, rights and quotas.

At each response that a client receives:
    A1  a request is allowed exactly if a state of the entries allows it that the deciding node had
        between request and response; a login succeeds exactly with the password of its user
    A2  an acknowledged change of entries is committed; no decision is that of an earlier state
    A3  a user writes no more than its quota, however many connections and client ids it has; a user
        without a quota is not throttled
When a group finds topics by a regular expression:
    K15 its members may describe each of them; `group_checks` calls `may_find`

The states are those of the committed metadata log. A broker decides by the offset that it has
replayed; a request that brokers forward is decided by a controller.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.security.acls import Acl, AclOperation, AclResourceType
from sparkraft.security.quotas import PRODUCER_BYTE_RATE, USER, quota_entity
from sparkraft.security.scram import SHA_256, keys_of, salted_password
from sparkraft.security.secret import Secret
from sparkraft.simulation.checks.acl_rules import is_allowed
from sparkraft.simulation.checks.probe import Probe, Require
from sparkraft.simulation.world.principals import (
    PASSWORDS,
    PRODUCE_BYTES_MAX,
    QUOTA_WINDOWS,
    Action,
    Attempt,
    Moment,
)

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine

_NOTHING = -1
"""The offset before the first one."""


class PrincipalChecks:
    """See the module docstring; implements `PrincipalObserver`."""

    def __init__(self, probe: Probe, require: Require, image: Callable[[], ClusterImage]) -> None:
        """Check nothing yet; `image` is the committed metadata."""
        self.probe = probe
        self.require = require
        self._image = image
        self._states: list[tuple[int, ClusterImage]] = []
        """The images after each change of entries, credentials or quotas, with their offsets."""
        self._entries: dict[Acl, bool] = {}
        """Entry → whether it exists, by what was acknowledged."""
        self._uncertain: set[Acl] = set()
        """Entries with a change that was not acknowledged: it may be applied later."""
        self._groups: dict[str, tuple[str, str]] = {}
        """Group → the principal and the address of its members."""
        self._written: Counter[tuple[str, str, int]] = Counter()
        """User, machine and process → bytes."""
        self._since: dict[tuple[str, str, int], int] = {}
        self._connections: Counter[tuple[str, str, int]] = Counter()

    def _report(self, holds: object, invariant: str, text: str) -> None:
        """Require it, in a call of a client: it must not catch the violation itself."""
        self.probe.check(lambda: self.require(holds, invariant, text))

    def on_committed(self, before: ClusterImage, after: ClusterImage) -> None:
        """Called for each committed batch of the metadata log."""
        same = before.acls is after.acls and before.scram is after.scram
        if not same or before.quotas is not after.quotas:
            self._states.append((after.offset, after))

    # ---- decisions

    def begin(self, host: str, *, forwarded: bool) -> Moment:
        """The lowest offset of the nodes that may decide on a request to `host` from now on."""
        machine = self.probe.machine(host)
        assert machine is not None
        deciding = self.probe.controllers if forwarded else [machine]
        running = [one for one in deciding if one.node is not None]
        lowest = min(map(_offset_of, running), default=_NOTHING)
        return Moment(lowest, machine.life)

    def on_decision(
        self, actions: Sequence[Action], host: str, since: Moment, *, allowed: bool, forwarded: bool
    ) -> None:
        """Check a decision, which allows a request if any of `actions` is allowed."""
        self.probe.counts[f"requests {'allowed' if allowed else 'denied'}"] += 1
        until = None if forwarded else self._latest(host, since)

        def is_right(image: ClusterImage) -> bool:
            return any(self._may(image, action) for action in actions) == allowed

        fits = any(is_right(image) for image in self._between(since.offset, until))
        if fits:
            self._report(True, "A1", "")  # noqa: FBT003 (counts the check)
            return
        stale = any(is_right(image) for image in self._between(_NOTHING, since.offset))
        verb = "may" if allowed else "may not"
        action = actions[0]
        self._report(
            False,  # noqa: FBT003 (it is a violation)
            "A2" if stale else "A1",
            f"at {host}, offset {since.offset} or later: {action.principal} of {action.host} "
            f"{verb} {action.operation.name} {action.resource_type.name} {action.name}",
        )

    def _may(self, image: ClusterImage, action: Action) -> bool:
        entries = image.acls.values()
        return is_allowed(entries, action, default=self.probe.layout.open_by_default)

    def _latest(self, host: str, since: Moment) -> int | None:
        """The last offset that a broker may have decided on; None: the committed one."""
        machine = self.probe.machine(host)
        if machine is None or machine.node is None or machine.life != since.life:
            return None
        return _offset_of(machine)

    def _between(self, first: int, last: int | None) -> Iterator[ClusterImage]:
        """The states that were in force at some offset from `first` to `last`."""
        before = EMPTY_IMAGE
        for offset, image in self._states:
            if offset <= first:
                before = image
        yield before
        for offset, image in self._states:
            if offset > first and (last is None or offset <= last):
                yield image

    # ---- logins

    def on_login(self, attempt: Attempt, host: str, since: Moment, *, accepted: bool) -> None:
        """Check the result of a login."""
        self.probe.counts[f"logins {'accepted' if accepted else 'refused'}"] += 1
        if attempt.mechanism == "PLAIN":
            right = {PASSWORDS.get(attempt.user) == attempt.password}
        else:
            right = {
                _is_password(image.scram.get((SHA_256.type, attempt.user)), attempt.password)
                for image in self._between(since.offset, self._latest(host, since))
            }
        verb = "can" if accepted else "cannot"
        self._report(
            accepted in right,
            "A1",
            f"{attempt.user} {verb} log in at {host} by {attempt.mechanism} with the password "
            f"{attempt.password}",
        )

    # ---- changes

    def on_change(self, entry: Acl, *, adds: bool, acknowledged: bool) -> None:
        """An administrator has added or removed an entry, or may have."""
        if not acknowledged:
            self._uncertain.add(entry)
            return
        self.probe.counts["entries changed"] += 1
        self._entries[entry] = adds
        self._check_entry(entry)

    def _check_entry(self, entry: Acl) -> None:
        if entry in self._uncertain:
            return
        exists, found = self._entries[entry], entry in set(self._image().acls.values())
        self._report(
            exists == found,
            "A2",
            f"{entry} was {'added' if exists else 'removed'}, and "
            f"{'exists' if found else 'does not exist'}",
        )

    def at_end(self) -> None:
        """Check that every acknowledged change is still committed."""
        for entry in self._entries:
            self._check_entry(entry)

    # ---- quotas

    def _bucket(self, user: str, host: str) -> tuple[str, str, int]:
        machine = self.probe.machine(host)
        return user, host, 0 if machine is None else machine.life

    def on_connected(self, user: str, host: str) -> None:
        """A new connection may send one request, however much was written before."""
        self._connections[self._bucket(user, host)] += 1

    def on_produced(self, user: str, host: str, since: Moment, *, size: int) -> None:
        """A broker has accepted records of a user."""
        limits = [
            self._limit(image, user)
            for image in self._between(since.offset, self._latest(host, since))
        ]
        if None in limits:
            return
        bucket = self._bucket(user, host)
        begun = self._since.setdefault(bucket, self.probe.now)
        self._written[bucket] += size
        seconds = (self.probe.now - begun) / 1000
        rate = max(limit for limit in limits if limit is not None)
        most = rate * (seconds + 2 * QUOTA_WINDOWS)
        most += PRODUCE_BYTES_MAX * (self._connections[bucket] + 1)
        self._report(
            self._written[bucket] <= most,
            "A3",
            f"{user} wrote {self._written[bucket]} bytes at {host} in {seconds:.1f} s; its quota "
            f"is {rate:.0f} per second",
        )

    def on_throttle(self, user: str, throttle_ms: int) -> None:
        """Check the throttle in a response."""
        limited = any(self._limit(image, user) is not None for _, image in self._states)
        self.probe.counts["requests throttled"] += throttle_ms > 0
        self._report(
            limited or not throttle_ms, "A3", f"{user} has no quota, and waits {throttle_ms} ms"
        )

    def _limit(self, image: ClusterImage, user: str) -> float | None:
        quotas = image.quotas.get(quota_entity([(USER, user)]))
        return None if quotas is None else quotas.get(PRODUCER_BYTE_RATE)

    # ---- groups

    def on_group(self, group_id: str, principal: str, host: str) -> None:
        """All members of a group are of one principal and address."""
        self._groups[group_id] = (principal, host)

    def may_find(self, group_id: str, topic: str, version: int) -> bool:
        """Whether members of a group may describe a topic, at offset `version` or later."""
        self.probe.counts["topics found"] += 1
        known = self._groups.get(group_id)
        if known is None:
            return True
        action = Action(*known, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)
        return any(self._may(image, action) for image in self._between(version, None))


def _offset_of(machine: "Machine") -> int:
    """The offset that a node has replayed, also while it is paused."""
    node = machine.node
    publisher = None if node is None else node._publisher  # noqa: SLF001 (a checker)
    return _NOTHING if publisher is None else publisher.image.offset


def _is_password(credential: Any, password: str) -> bool:
    if credential is None:
        return False
    salted = salted_password(SHA_256, Secret(password), credential.salt, credential.iterations)
    return bool(keys_of(SHA_256, salted).stored_key == credential.stored_key)

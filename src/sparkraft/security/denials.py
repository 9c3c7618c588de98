"""Denied requests on the logger `sparkraft.authorizer`, in the form of Kafka's authorizer log.

    Principal = User:bob is Denied operation = READ from host = 10.0.0.1 on resource =
    Topic:LITERAL:t for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny

A client that retries a denied request is logged once a second for each resource, and all clients
together write at most `LINES_PER_S_MAX` lines; the rest is counted. Kafka logs every one.
Characters that would break the line are escaped, since clients choose the names.

A log of JSON lines has the parts as fields, too (`denial_fields`).
"""

import logging
from collections import OrderedDict

from sparkraft.security.acls import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparkraft.security.authorizer import Requester

log = logging.getLogger("sparkraft.authorizer")

LINES_PER_S_MAX = 100
"""A hundred lines of 250 bytes a second: an attack fills a disk of 20 GB in a week."""

REPEATED_MS = 1_000
"""How long equal denials are counted after one was logged."""

KEYS_MAX = 1_000
"""Denials remembered, the latest first."""


class DenialLog:
    """See the module docstring. Times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._logged: OrderedDict[tuple[object, ...], int] = OrderedDict()
        """When each denial was logged last."""
        self._second_began_ms = 0
        self._lines = 0
        self._suppressed = 0

    def add(
        self,
        requester: Requester,
        action: tuple[AclOperation, AclResourceType, str],
        request_name: str,
        rule: "Acl | str",
        now_ms: int,
    ) -> None:
        """Log one denial of `action`, an operation on a resource, unless there are too many."""
        if now_ms - self._second_began_ms >= REPEATED_MS:
            self._report_suppressed()
            self._second_began_ms, self._lines = now_ms, 0
        key = (str(requester.principal), requester.client_host, request_name, *action)
        last_ms = self._logged.get(key)
        is_repeated = last_ms is not None and now_ms - last_ms < REPEATED_MS
        if is_repeated or self._lines >= LINES_PER_S_MAX:
            self._suppressed += 1
            return
        self._logged[key] = now_ms
        self._logged.move_to_end(key)
        if len(self._logged) > KEYS_MAX:
            self._logged.popitem(last=False)
        self._lines += 1
        fields = denial_fields(requester, action, request_name)
        log.info("%s", denial_text(requester, action, request_name, rule), extra={"fields": fields})

    def _report_suppressed(self) -> None:
        if self._suppressed:
            log.info("%d more denials were not logged one by one", self._suppressed)
            self._suppressed = 0


def denial_text(
    requester: Requester,
    action: tuple[AclOperation, AclResourceType, str],
    request_name: str,
    rule: Acl | str,
) -> str:
    """The line of Kafka's StandardAuthorizerData.buildAuditMessage."""
    operation, resource_type, name = action
    kind = "".join(word.capitalize() for word in resource_type.name.split("_"))
    return printable(
        f"Principal = {requester.principal} is Denied operation = {operation.name} "
        f"from host = {requester.client_host} on resource = {kind}:LITERAL:{name} "
        f"for request = {request_name} with resourceRefCount = 1 based on rule {_rule_text(rule)}"
    )


def denial_fields(
    requester: Requester, action: tuple[AclOperation, AclResourceType, str], request_name: str
) -> dict[str, str | bool]:
    """The parts of the line, with the names as clients sent them."""
    operation, resource_type, name = action
    return {
        "principal": str(requester.principal),
        "host": requester.client_host,
        "operation": operation.name,
        "resource_type": resource_type.name,
        "resource_name": name,
        "pattern_type": PatternType.LITERAL.name,
        "request": request_name,
        "allowed": False,
    }


def _rule_text(rule: Acl | str) -> str:
    if isinstance(rule, str):
        return rule
    return (
        f"MatchingAcl(acl=StandardAcl[resourceType={AclResourceType(rule.resource_type).name}, "
        f"resourceName={rule.resource_name}, patternType={PatternType(rule.pattern_type).name}, "
        f"principal={rule.principal}, host={rule.host}, "
        f"operation={AclOperation(rule.operation).name}, "
        f"permissionType={AclPermissionType(rule.permission_type).name}])"
    )


def printable(text: str) -> str:
    """`text` with line feeds and other control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

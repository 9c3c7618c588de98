"""One log line for each administrative change: its author and address, and the resources changed.

    User:ANONYMOUS (127.0.0.1, client admin-1) created topics orders, returns

The active controller logs a change after it was committed, and a broker those that it makes itself:
deleted records, groups and offsets, moves between log directories, levels of loggers. Requests that
were refused or only validated, and those of brokers about themselves, are not logged. Values of
configs are not logged, since they may be secret.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from sparkraft.security.denials import printable

if TYPE_CHECKING:
    from sparkraft.server.api.registry import RequestContext

log = logging.getLogger(__name__)

_KINDS = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.CLIENT_METRICS: "client metrics",
    ResourceType.GROUP: "group",
}

NAMES_MAX = 20
"""Names on one line; the rest are counted."""


class Names:
    """The names of what a request has changed: a line shows the first, and counts the others."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._count = 0

    def add(self, name: str) -> None:
        self._count += 1
        if self._count <= NAMES_MAX:
            self._shown.append(name)

    def __bool__(self) -> bool:
        return self._count > 0

    def __str__(self) -> str:
        more = self._count - len(self._shown)
        text = ", ".join(self._shown)
        return f"{text} and {more} more" if more else text


def log_change(context: "RequestContext", request: Any, response: Any) -> None:
    """Log what a committed request has changed, if anything."""
    describe = _DESCRIPTIONS.get(ApiKey(context.api_key))
    if describe is None or getattr(request, "validate_only", False):
        return
    change = describe(request, response)
    if change:
        _log(context, change)


def log_names(context: "RequestContext", what: str, names: Names) -> None:
    """Log a change that the handler describes itself, with the names after `what`, if any."""
    if names:
        _log(context, printable(f"{what} {names}"))


def _log(context: "RequestContext", change: str) -> None:
    session = context.session
    client = printable(context.client_id or "unknown")
    log.info("%s (%s, client %s) %s", session.principal, session.client_host, client, change)


def _outcome(name: str, error_code: int) -> str | None:
    """The name of what was changed, or may be: ZooKeeper mode waits for a change that was written.

    None if the change was refused.
    """
    if error_code == ErrorCode.REQUEST_TIMED_OUT:
        return f"{name} (not confirmed in time)"
    return None if error_code else name


def _created_topics(request: Any, response: Any) -> str:
    found = (_outcome(topic.name, topic.error_code) for topic in response.topics)
    names = [each for each in found if each is not None]
    return f"created topics {_listed(names)}" if names else ""


def _deleted_topics(request: Any, response: Any) -> str:
    found = (
        _outcome(topic.name or str(topic.topic_id), topic.error_code)
        for topic in response.responses
    )
    names = [each for each in found if each is not None]
    return f"deleted topics {_listed(names)}" if names else ""


def _added_partitions(request: Any, response: Any) -> str:
    counts = {topic.name: topic.count for topic in request.topics}
    found = (
        _outcome(f"{topic.name} ({counts[topic.name]})", topic.error_code)
        for topic in response.results
    )
    done = [each for each in found if each is not None]
    return f"set the number of partitions of {_listed(done)}" if done else ""


def _changed_configs(request: Any, response: Any) -> str:
    keys = {
        (resource.resource_type, resource.resource_name): [each.name for each in resource.configs]
        for resource in request.resources
    }
    done = [
        f"{_resource(*key)} ({_listed(keys.get(key, []))})"
        for result in response.responses
        if not result.error_code
        for key in [(result.resource_type, result.resource_name)]
    ]
    return f"changed configs of {_listed(done)}" if done else ""


def _resource(kind: int, name: str) -> str:
    return f"{_KINDS.get(kind, kind)} {name or '(default)'}"


def _elected_leaders(request: Any, response: Any) -> str:
    kind = "unclean" if request.election_type else "preferred"
    done = [
        f"{topic.topic}-{partition.partition_id}"
        for topic in response.replica_election_results
        for partition in topic.partition_result
        if not partition.error_code
    ]
    return f"elected {kind} leaders of {_listed(done)}" if done else ""


def _reassigned(request: Any, response: Any) -> str:
    if response.error_code:
        return ""
    targets = {
        (topic.name, partition.partition_index): partition.replicas
        for topic in request.topics
        for partition in topic.partitions
    }
    done = [
        f"{topic.name}-{partition.partition_index} ({'cancelled' if to is None else f'to {to}'})"
        for topic in response.responses
        for partition in topic.partitions
        if not partition.error_code
        for to in [targets.get((topic.name, partition.partition_index))]
    ]
    return f"reassigned {_listed(done)}" if done else ""


def _updated_features(request: Any, response: Any) -> str:
    if response.error_code or any(result.error_code for result in response.results):
        return ""
    done = [f"{each.feature} ({each.max_version_level})" for each in request.feature_updates]
    return f"set the levels of features {_listed(done)}" if done else ""


def _altered_scram_credentials(request: Any, response: Any) -> str:
    done = [each.user for each in response.results if not each.error_code]
    return f"changed SCRAM credentials of users {_listed(done)}" if done else ""


def _unregistered_broker(request: Any, response: Any) -> str:
    return "" if response.error_code else f"unregistered broker {request.broker_id}"


def _added_voter(request: Any, response: Any) -> str:
    return "" if response.error_code else f"added voter {_voter(request)} to the quorum"


def _removed_voter(request: Any, response: Any) -> str:
    return "" if response.error_code else f"removed voter {_voter(request)} from the quorum"


def _voter(request: Any) -> str:
    return f"{request.voter_id} (directory {request.voter_directory_id})"


def _resigned(request: Any, response: Any) -> str:
    return "" if response.error_code else f"made the controller of epoch {response.epoch} resign"


def _created_acls(request: Any, response: Any) -> str:
    done = [
        _entry(acl, acl.resource_pattern_type)
        for acl, result in zip(request.creations, response.results, strict=True)
        if not result.error_code
    ]
    return f"created access control entries {_listed(done)}" if done else ""


def _deleted_acls(request: Any, response: Any) -> str:
    done = [
        _entry(acl, acl.pattern_type)
        for result in response.filter_results
        for acl in result.matching_acls
    ]
    return f"deleted access control entries {_listed(done)}" if done else ""


def _entry(acl: Any, pattern_type: int) -> str:
    """An entry on one line: names of principals and resources may contain line feeds."""
    permission, operation = AclPermissionType(acl.permission_type), AclOperation(acl.operation)
    kind, pattern = AclResourceType(acl.resource_type), PatternType(pattern_type)
    text = (
        f"({permission.name} {acl.principal} {operation.name} from {acl.host} "
        f"on {kind.name} {pattern.name} {acl.resource_name})"
    )
    return printable(text)


def _altered_quotas(request: Any, response: Any) -> str:
    done = [
        " and ".join(
            f"{part.entity_type} {'(default)' if part.entity_name is None else part.entity_name}"
            for part in result.entity
        )
        for result in response.entries
        if not result.error_code
    ]
    return printable(f"altered quotas of {_listed(done)}") if done else ""


def _created_token(request: Any, response: Any) -> str:
    if response.error_code:
        return ""
    owner = f"{response.principal_type}:{response.principal_name}"
    return printable(f"created delegation token {response.token_id} of {owner}")


def _renewed_token(request: Any, response: Any) -> str:
    return "" if response.error_code else "renewed a delegation token"


def _expired_token(request: Any, response: Any) -> str:
    return "" if response.error_code else "expired a delegation token"


def _listed(names: Iterable[str]) -> str:
    found = Names()
    for name in names:
        found.add(name)
    return str(found)


_DESCRIPTIONS: dict[ApiKey, Callable[[Any, Any], str]] = {
    ApiKey.CREATE_TOPICS: _created_topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.CREATE_PARTITIONS: _added_partitions,
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.CREATE_DELEGATION_TOKEN: _created_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _renewed_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _expired_token,
    ApiKey.ALTER_CONFIGS: _changed_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _changed_configs,
    ApiKey.ALTER_CLIENT_QUOTAS: _altered_quotas,
    ApiKey.ELECT_LEADERS: _elected_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassigned,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _altered_scram_credentials,
    ApiKey.UPDATE_FEATURES: _updated_features,
    ApiKey.UNREGISTER_BROKER: _unregistered_broker,
    ApiKey.ADD_RAFT_VOTER: _added_voter,
    ApiKey.REMOVE_RAFT_VOTER: _removed_voter,
    ApiKey.RESIGN_CONTROLLER: _resigned,
}

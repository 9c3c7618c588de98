"""Configs of topics, brokers, groups and client-metrics subscriptions (KIP-133, KIP-339).

Incremental changes set, delete, append to or subtract from single keys; the older AlterConfigs
replaces a resource's whole map. Both are checked against the resource's final map.

With ELR enabled, no broker may have its own min.insync.replicas, the cluster-level one cannot be
removed, and a change clears the ELRs that it may have invalidated (KIP-966).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.call import Call
from sparkraft.controller.decision import Decision, VersionedRecord, check_room
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.metadata.client_subscriptions import check_subscription
from sparkraft.metadata.configs import (
    BROKER_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigType,
    UpdateMode,
    format_value,
    parse_value,
    validate_topic_configs,
)
from sparkraft.metadata.configs.broker import dynamic_definition_of, update_mode
from sparkraft.metadata.image import ResourceType
from sparkraft.metadata.topic_names import check_topic_name
from sparkraft.protocol.messages import k33_alter_configs as k33
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.protocol.messages.metadata_records import ClearElrRecord, ConfigRecord

MIN_ISR = "min.insync.replicas"

VALUE_LENGTH_MAX = (1 << 15) - 1
"""Maximum characters of a value, as in Kafka."""


class Operation(IntEnum):
    """Operations on a key; the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One operation on one key."""

    key: str
    operation: int
    value: str | None


_DEFINITIONS: Mapping[int, Mapping[str, ConfigDef]] = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.BROKER: BROKER_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}

Decide = Callable[[Any], list[VersionedRecord]]


def incremental_alter_configs(
    context: DecisionContext, call: Call[k44.IncrementalAlterConfigsRequest]
) -> Decision:
    """Decide an IncrementalAlterConfigs request."""
    request = call.request

    def decide(resource: k44.AlterConfigsResource) -> list[VersionedRecord]:
        changes = [Change(c.name, c.config_operation, c.value) for c in resource.configs]
        _check_changes(changes)
        return alter_resource(context, resource.resource_type, resource.resource_name, changes)

    return _alter(context, request, decide, k44)


def alter_configs(context: DecisionContext, call: Call[k33.AlterConfigsRequest]) -> Decision:
    """Decide an AlterConfigs request: replace all configs of each resource."""
    request = call.request

    def decide(resource: k33.AlterConfigsResource) -> list[VersionedRecord]:
        kind, name = resource.resource_type, resource.resource_name
        given = {config.name: config.value for config in resource.configs}
        nulls = [key for key, value in given.items() if value is None]
        if nulls:
            wrong = f"Null value not supported for : {', '.join(nulls)}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
        dropped = [key for key in sorted(context.image.config(kind, name)) if key not in given]
        changes = [Change(key, Operation.SET, value) for key, value in given.items()]
        changes += [Change(key, Operation.DELETE, None) for key in dropped]
        return alter_resource(context, kind, name, changes)

    return _alter(context, request, decide, k33)


def _alter(context: DecisionContext, request: Any, decide: Decide, messages: Any) -> Decision:
    seen: dict[tuple[int, str], int] = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        seen[key] = seen.get(key, 0) + 1
    records: list[VersionedRecord] = []
    responses = []
    for resource in request.resources:
        result = messages.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            _check_once(seen, resource)
            made = decide(resource)
            check_room(records, made)
            records += made
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.detail or None
        responses.append(result)
    records += _clear_elr_records(context, records)
    response_class = getattr(messages, type(request).__name__.replace("Request", "Response"))
    return Decision(
        records=() if request.validate_only else tuple(records),
        response=response_class(responses=responses),
    )


def _check_once(seen: Mapping[tuple[int, str], int], resource: Any) -> None:
    if seen[resource.resource_type, resource.resource_name] > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _check_changes(changes: Sequence[Change]) -> None:
    keys = [change.key for change in changes]
    if len(set(keys)) != len(keys):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate config key in the request.")
    for change in changes:
        if change.operation not in set(Operation):
            wrong = f"Unknown operation type {change.operation}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
        if change.value is None and change.operation != Operation.DELETE:
            wrong = f"Null value not supported for : {change.key}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)


def alter_resource(
    context: DecisionContext,
    kind: int,
    name: str,
    changes: Iterable[Change],
    *,
    newly_created: bool = False,
) -> list[VersionedRecord]:
    """Make the ConfigRecords for changes of one resource; all changes are valid, or none is made.

    Raises:
        KafkaError: INVALID_CONFIG, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION,
            UNKNOWN_TOPIC_OR_PARTITION or BROKER_ID_NOT_REGISTERED.
    """
    current = context.image.config(kind, name)
    final = dict(current)
    records: list[VersionedRecord] = []
    for change in changes:
        value = changed_value(kind, change, current.get(change.key))
        _check_min_isr(context, kind, name, change.key, value)
        if value is None:
            final.pop(change.key, None)
        elif len(value) > VALUE_LENGTH_MAX:
            wrong = f"The value of {change.key} is longer than {VALUE_LENGTH_MAX} characters."
            raise KafkaError(ErrorCode.INVALID_CONFIG, wrong)
        else:
            final[change.key] = value
        # A broker rereads files named by its configs even if the config stays the same.
        if value != current.get(change.key) or kind == ResourceType.BROKER:
            record = ConfigRecord(
                resource_type=kind, resource_name=name, name=change.key, value=value
            )
            records.append((record, 0))
    _validate(context, kind, name, final)
    if not newly_created:
        _check_existence(context, kind, name)
    return records


def changed_value(kind: int, change: Change, current: str | None) -> str | None:
    """The value of a key after `change`; None if it is unset.

    Raises:
        KafkaError: INVALID_CONFIG for APPEND or SUBTRACT on a key that is not a list.
    """
    if change.operation == Operation.SET:
        return change.value
    if change.operation == Operation.DELETE:
        return None
    definition = _DEFINITIONS.get(kind, {}).get(change.key)
    if definition is None or definition.kind is not ConfigType.LIST:
        verb = Operation(change.operation).name
        wrong = f"Can't {verb} to key {change.key} because its type is not LIST."
        raise KafkaError(ErrorCode.INVALID_CONFIG, wrong)
    if current is None:
        current = format_value(definition.default) or ""
    items = [item for item in current.split(",") if item]
    for item in (change.value or "").split(","):
        if change.operation == Operation.APPEND and item not in items:
            items.append(item)
        elif change.operation == Operation.SUBTRACT and item in items:
            items.remove(item)
    return ",".join(items)


def _check_min_isr(
    context: DecisionContext, kind: int, name: str, key: str, value: str | None
) -> None:
    if key != MIN_ISR or kind != ResourceType.BROKER or not context.elr_enabled:
        return
    if name:
        wrong = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, wrong)
    if value is None:
        wrong = f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, wrong)


def _validate(context: DecisionContext, kind: int, name: str, final: Mapping[str, str]) -> None:
    if kind == ResourceType.TOPIC:
        if not name:
            wrong = "Default topic resources are not allowed."
            raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
        check_topic_name(name)
        node = str(context.config.node_id)
        validate_topic_configs(
            final,
            {
                **context.config.static_configs,
                **context.image.config(ResourceType.BROKER, ""),
                **context.image.config(ResourceType.BROKER, node),
            },
        )
    elif kind == ResourceType.BROKER:
        _check_broker_name(name)
        _check_broker_configs(name, final, zookeeper=context.config.is_zookeeper)
        if context.is_migrating:
            _check_no_passwords(final)
    elif kind == ResourceType.GROUP:
        if not name:
            wrong = "Default group resources are not allowed."
            raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
        _parse_all(GROUP_CONFIGS, final, "group")
    elif kind == ResourceType.CLIENT_METRICS:
        if not name:
            wrong = "Subscription name can't be empty"
            raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
        _parse_all(CLIENT_METRICS_CONFIGS, final, "client metrics")
        check_subscription(final)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def _check_broker_name(name: str) -> None:
    if not name:
        return
    digits = name.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdecimal()):
        wrong = "Unable to parse broker name as a base 10 number."
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if name.startswith("-"):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")


def _check_broker_configs(name: str, final: Mapping[str, str], *, zookeeper: bool) -> None:
    """Check that known keys are dynamic, allowed at that level, and valid.

    Unknown keys may belong to plug-ins. The error is INVALID_REQUEST, as in Kafka.
    """
    for key in sorted(final):
        definition = dynamic_definition_of(key)
        if definition is None:
            continue
        wrong = ""
        mode = update_mode(definition, zookeeper=zookeeper)
        if mode is UpdateMode.READ_ONLY:
            wrong = f"Cannot update these configs dynamically: [{key}]"
        elif mode is UpdateMode.PER_BROKER and not name:
            wrong = f"Cannot update these configs at default cluster level: [{key}]"
        if wrong:
            raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
        try:
            parse_value(definition, final[key])
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.detail) from error


def _check_no_passwords(final: Mapping[str, str]) -> None:
    """Brokers in ZooKeeper mode expect encrypted passwords in ZooKeeper (KIP-866).

    Kafka encrypts them by `password.encoder.secret`, which is not available here.
    """
    for key in sorted(final):
        definition = dynamic_definition_of(key)
        if definition is not None and definition.kind is ConfigType.PASSWORD:
            wrong = f"{key} cannot be set while the cluster is migrated from ZooKeeper."
            raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)


def _parse_all(definitions: Mapping[str, ConfigDef], final: Mapping[str, str], what: str) -> None:
    for key in sorted(final):
        if key not in definitions:
            wrong = f"Unknown {what} config name: {key}"
            code = ErrorCode.INVALID_REQUEST if what != "group" else ErrorCode.INVALID_CONFIG
            raise KafkaError(code, wrong)
        parse_value(definitions[key], final[key])


def _check_existence(context: DecisionContext, kind: int, name: str) -> None:
    if kind == ResourceType.TOPIC and name not in context.image.topics_by_name:
        wrong = f"The topic '{name}' does not exist."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wrong)
    if kind == ResourceType.BROKER and name:
        broker_id = int(name)
        known = broker_id in context.image.brokers or broker_id in context.config.voter_ids
        if not known and broker_id not in context.image.controllers:
            wrong = f"No node with id {name} found."
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, wrong)


def _clear_elr_records(
    context: DecisionContext, records: Iterable[VersionedRecord]
) -> list[VersionedRecord]:
    if not context.elr_enabled:
        return []
    cleared: list[VersionedRecord] = []
    for record, _ in records:
        if record.name == MIN_ISR:
            topic = record.resource_name if record.resource_type == ResourceType.TOPIC else ""
            cleared.append((ClearElrRecord(topic_name=topic), 0))
    return cleared

"""Levels of this process's loggers, read and changed while it runs (KIP-412).

Loggers have our modules' names; the names that Kafka's operators know are aliases:

    root                          every logger without a level of its own
    kafka.controller              sparkraft.server.controller
    kafka.raft                    sparkraft.raft and sparkraft.server.raft
    kafka.server.ReplicaManager   sparkraft.server.broker
    ...

A level holds until the process ends; nothing is stored. The rules and texts are those of Kafka's
RuntimeLoggerManager and LoggingController.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Protocol

from sparkraft.base.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

ROOT = "root"

TRACE = 5
"""Below DEBUG, as in Log4j."""

_LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Levels that may be set (KIP-817), with Python's."""

_ALIASES: dict[str, tuple[str, ...]] = {
    "kafka.authorizer.logger": ("sparkraft.authorizer",),
    "kafka.controller": ("sparkraft.server.controller",),
    "kafka.coordinator.group": ("sparkraft.server.coordinator",),
    "kafka.log": (
        "sparkraft.server.broker.compaction",
        "sparkraft.server.broker.log_dir_moves",
        "sparkraft.server.broker.stray_logs",
        "sparkraft.server.loading",
        "sparkraft.server.log_dirs",
    ),
    "kafka.network": ("sparkraft.server.network",),
    "kafka.raft": ("sparkraft.raft", "sparkraft.server.raft"),
    "kafka.request.logger": ("sparkraft.request",),
    "kafka.server": ("sparkraft.server",),
    "kafka.server.ReplicaManager": ("sparkraft.server.broker",),
    "state.change.logger": (
        "sparkraft.server.broker.isr_journal",
        "sparkraft.server.zookeeper.hosting",
    ),
}
"""Kafka's name to ours; a logger and all below it. The first one's level is shown."""

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""

_NAMES = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


class LevelChange(Protocol):
    """One config of an IncrementalAlterConfigs request."""

    name: str
    config_operation: int
    value: str | None


def loggers() -> dict[str, str]:
    """All loggers of this package and their aliases, with the level in force."""
    return {name: _name_of(_loggers(name)[0].getEffectiveLevel()) for name in _known()}


def apply_changes(
    node_id: int, resource_name: str, changes: Iterable[LevelChange], *, validate_only: bool
) -> None:
    """Change levels, all or none.

    Raises:
        KafkaError: INVALID_REQUEST if it is another node's name or an operation that levels do not
            have, INVALID_CONFIG if the logger or level is unknown.
    """
    changes = list(changes)
    _check_node(node_id, resource_name)
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for change in changes:
        _check(change)
    if not validate_only:
        for change in changes:
            _apply(change)


def _check_node(node_id: int, name: str) -> None:
    if not (name.isascii() and name.removeprefix("-").isdigit()):
        wrong = f"Node id must be an integer, but it is: {name[:100]}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if name != str(node_id):
        wrong = f"Unexpected node id. Expected {node_id}, but received {name[:100]}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)


def _check(change: LevelChange) -> None:
    operation = change.config_operation
    if operation != DELETE and change.value is None:
        wrong = f"Null value not supported for : {change.name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if operation not in {SET, DELETE}:
        known = _NAMES.get(operation)
        what = f"{known} operation" if known else f"Unknown operation type {operation}"
        wrong = f"{what} is not allowed for the BROKER_LOGGER resource"
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if change.name not in set(_known()):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if operation == DELETE and change.name == ROOT:
        wrong = "Removing the log level of the root logger is not allowed"
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if operation == SET and change.value not in _LEVELS:
        wrong = (
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported "
            f"log level. Valid log levels are {', '.join(sorted(_LEVELS))}"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, wrong)


def _apply(change: LevelChange) -> None:
    level = logging.NOTSET
    if change.config_operation == SET:
        assert change.value is not None
        level = _LEVELS[change.value]
    for logger in _loggers(change.name):
        logger.setLevel(level)
    if change.config_operation == DELETE:
        log.warning("Unset the log level of %s", change.name)
    else:
        log.warning("Updated the log level of %s to %s", change.name, change.value)


def _known() -> Iterator[str]:
    yield ROOT
    yield from _ALIASES
    manager = logging.getLogger().manager
    for name in sorted(manager.loggerDict):
        if name == "sparkraft" or name.startswith("sparkraft."):
            yield name


def _loggers(name: str) -> list[logging.Logger]:
    if name == ROOT:
        return [logging.getLogger()]
    return [logging.getLogger(each) for each in _ALIASES.get(name, (name,))]


def _name_of(level: int) -> str:
    """The name of the highest level at or below `level`."""
    below = [name for name, number in _LEVELS.items() if number <= level]
    return below[-1] if below else "TRACE"

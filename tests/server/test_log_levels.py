"""Levels of loggers, read and changed over the wire (KIP-412)."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import sparkraft
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.metadata.configs.describe import ConfigSource
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages import k32_describe_configs as k32
from sparkraft.protocol.messages import k44_incremental_alter_configs as k44
from sparkraft.server import log_levels
from tests.server.harness import connect, node_in, run

NAMES = (
    "sparkraft.raft",
    "sparkraft.server.raft",
    "sparkraft.server.broker",
    "sparkraft.server.broker.isr_journal",
    "sparkraft.server.broker.partition",
    "sparkraft.server.zookeeper.hosting",
)


@pytest.fixture(autouse=True)
def levels_again() -> Iterator[None]:
    loggers = [logging.getLogger(), *map(logging.getLogger, NAMES)]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def change(name: str, value: str | None, operation: int = log_levels.SET) -> SimpleNamespace:
    return SimpleNamespace(name=name, config_operation=operation, value=value)


def apply(*changes: SimpleNamespace, node: str = "1", validate_only: bool = False) -> None:
    log_levels.apply_changes(1, node, changes, validate_only=validate_only)


def test_a_level_holds_for_a_logger_and_all_below_it():
    apply(change("kafka.server.ReplicaManager", "TRACE"))
    levels = log_levels.loggers()
    assert levels["kafka.server.ReplicaManager"] == "TRACE"
    assert levels["sparkraft.server.broker.partition"] == "TRACE"
    assert logging.getLogger("sparkraft.server.broker.partition").isEnabledFor(log_levels.TRACE)
    apply(change("kafka.server.ReplicaManager", None, log_levels.DELETE))
    assert log_levels.loggers()["sparkraft.server.broker.partition"] != "TRACE"


def test_a_logger_without_a_level_has_that_of_the_root():
    apply(change("root", "FATAL"))
    assert log_levels.loggers()["kafka.raft"] == "FATAL"
    apply(change("root", "WARN"))
    assert set(log_levels.loggers().values()) == {"WARN"}


def test_every_alias_names_loggers_that_modules_log_under():
    folder = Path(sparkraft.__file__).parent
    used = set()
    for path in folder.rglob("*.py"):
        module = ".".join(("sparkraft", *path.relative_to(folder).with_suffix("").parts))
        for name in re.findall(r"getLogger\((__name__|\"[^\"]+\")\)", path.read_text()):
            used.add(module if name == "__name__" else name.strip('"'))
    targets = [target for names in log_levels._ALIASES.values() for target in names]
    unused = [
        target
        for target in targets
        if not any(name == target or name.startswith(f"{target}.") for name in used)
    ]
    assert unused == []


def test_an_alias_of_several_loggers_sets_the_level_of_each():
    apply(change("state.change.logger", "TRACE"))
    for name in ("sparkraft.server.broker.isr_journal", "sparkraft.server.zookeeper.hosting"):
        assert log_levels.loggers()[name] == "TRACE"
    apply(change("state.change.logger", None, log_levels.DELETE))
    assert log_levels.loggers()["sparkraft.server.zookeeper.hosting"] != "TRACE"


def test_a_change_that_is_only_validated_changes_nothing():
    before = log_levels.loggers()
    apply(change("root", "ERROR"), validate_only=True)
    assert log_levels.loggers() == before


def test_one_bad_change_leaves_all_levels():
    before = log_levels.loggers()
    with pytest.raises(KafkaError, match="does not exist"):
        apply(change("root", "ERROR"), change("no.such", "INFO"))
    assert log_levels.loggers() == before


def test_levels_are_shown_and_changed_over_the_wire(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            name = str(node.config.node_id)
            level = k44.AlterableConfig(name="kafka.raft", config_operation=0, value="DEBUG")
            resource = k44.AlterConfigsResource(
                resource_type=ResourceType.BROKER_LOGGER, resource_name=name, configs=[level]
            )
            topic = k44.AlterConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name="none", configs=[level]
            )
            request = k44.IncrementalAlterConfigsRequest(resources=[topic, resource])
            refused, done = (await connection.send(request)).responses
            assert refused.error_code == ErrorCode.INVALID_CONFIG  # of a topic
            assert (done.error_code, done.error_message) == (0, None)
            described = k32.DescribeConfigsRequest(
                resources=[
                    k32.DescribeConfigsResource(
                        resource_type=ResourceType.BROKER_LOGGER,
                        resource_name=name,
                        configuration_keys=["kafka.raft"],
                    )
                ]
            )
            (found,) = (await connection.send(described)).results[0].configs
            assert (found.name, found.value) == ("kafka.raft", "DEBUG")
            assert found.config_source == ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
            assert not found.read_only
            await connection.close()

    run(test())

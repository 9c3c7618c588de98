"""What is logged of topics that could not be created automatically."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.server.broker.auto_topic_creation import IN_FLIGHT_MAX, AutoTopicCreation
from sparkraft.server.config import NodeConfig

CONFIG = NodeConfig(
    {
        "process.roles": "broker",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "h:1",
        "listeners": "PLAINTEXT://:0",
        "log.dirs": "d",
    }
)


def logged(caplog, send: Any, count: int) -> list[str]:
    async def work() -> None:
        tasks: list[Any] = []
        creation = AutoTopicCreation(
            CONFIG,
            SimpleNamespace(send=send),
            internal_topics={},
            spawn=lambda work, _: tasks.append(work),
        )
        creation.request([f"inv-{number}" for number in range(count)])
        for task in tasks:
            await task

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    return [record.getMessage() for record in caplog.records]


async def refuse(request: Any, *_: Any, **__: Any) -> Any:
    code, message = ErrorCode.POLICY_VIOLATION, "too many partitions"
    topics = [
        SimpleNamespace(name=topic.name, error_code=int(code), error_message=message)
        for topic in request.topics
    ]
    return SimpleNamespace(topics=topics)


def test_a_flood_of_names_is_one_line(caplog) -> None:
    assert logged(caplog, refuse, 100 * IN_FLIGHT_MAX) == [
        "Failed to create topics inv-0, inv-1, inv-2, inv-3, inv-4 and 995 more: "
        "POLICY_VIOLATION too many partitions"
    ]


def test_one_name_is_named(caplog) -> None:
    assert logged(caplog, refuse, 1) == [
        "Failed to create topic inv-0: POLICY_VIOLATION too many partitions"
    ]


def test_a_request_that_fails_is_one_short_line(caplog) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller")

    (line,) = logged(caplog, fail, IN_FLIGHT_MAX)
    assert line.startswith("Failed to create topics inv-0, ")
    assert line.endswith("no controller")
    assert len(line) < 200

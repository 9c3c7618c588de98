"""What is logged of topics that could not be created automatically."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.broker.auto_topic_creation import IN_FLIGHT_MAX, AutoTopicCreation
from sparkraft.server.config import NodeConfig
from tests.support.sessions import client_session

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


def client_context() -> RequestContext:
    session = client_session()
    return RequestContext(
        ApiKey.METADATA, 12, 5, "app", session=session, connection=None, received_ms=0
    )


def logged(caplog, send: Any, count: int) -> list[str]:
    async def work() -> None:
        tasks: list[Any] = []
        creation = AutoTopicCreation(
            CONFIG,
            SimpleNamespace(send=send, newest_version=lambda _: 7),
            internal_topics={},
            spawn=lambda work, _: tasks.append(work),
        )
        names = [f"inv-{number}" for number in range(count)]
        creation.request(names, client_context())
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


def test_a_client_over_its_quota_is_not_logged(caplog) -> None:
    """It requests the same topic again every 100 ms."""

    async def exceed(request: Any, *_: Any, **__: Any) -> Any:
        code = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        topics = [
            SimpleNamespace(name=t.name, error_code=code, error_message="") for t in request.topics
        ]
        return SimpleNamespace(topics=topics)

    assert logged(caplog, exceed, 3) == []


def test_the_controller_learns_for_which_client_a_topic_is(caplog) -> None:
    sent: list[RequestContext | None] = []

    async def send(*given: Any, context: RequestContext | None, **_: Any) -> Any:
        sent.append(context)
        return SimpleNamespace(topics=[])

    assert logged(caplog, send, 1) == []
    (context,) = sent
    assert context is not None
    assert (context.api_key, context.api_version) == (ApiKey.CREATE_TOPICS, 7)
    assert (context.correlation_id, context.client_id) == (5, "app")
    assert context.principal == client_context().principal

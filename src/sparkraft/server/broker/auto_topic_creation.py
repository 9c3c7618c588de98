"""Automatic creation of topics that clients request metadata of, and of internal topics (KIP-361).

Each topic has one CreateTopics in flight; meanwhile clients get UNKNOWN_TOPIC_OR_PARTITION and
retry, as with Kafka's brokers. The controller sees the client's principal, address and client id
(Kafka's `AutoTopicCreationManager`): it checks CREATE again, counts the partitions against the
client's `controller_mutation_rate`, and logs who made the topic. The broker itself creates what a
group or a transaction needs.
"""

import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.broker.cluster_view import topic_name_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from sparkraft.server.api.registry import RequestContext
    from sparkraft.server.broker.controller_channel import ControllerChannel
    from sparkraft.server.config import NodeConfig

log = logging.getLogger(__name__)

IN_FLIGHT_MAX = 1_000
"""Topics being created at once; clients that request more have to retry."""


NAMES_LOGGED_MAX = 5
"""Names in one log line."""

_EXPECTED = frozenset(
    {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.THROTTLING_QUOTA_EXCEEDED}
)
"""Not logged: another client was faster, or this one is over its quota and requests it again."""


class AutoTopicCreation:
    """Sends CreateTopics to the controller."""

    def __init__(
        self,
        config: "NodeConfig",
        channel: "ControllerChannel",
        *,
        internal_topics: "Mapping[str, Callable[[], Any]]",
        spawn: "Callable[[Coroutine[Any, Any, Any], str], Any]",
    ) -> None:
        """Create nothing yet.

        Args:
            config: static configs of this node.
            channel: to the controller.
            internal_topics: name → returns the `CreatableTopic` with that topic's own settings.
            spawn: runs a coroutine under the node's task group, with a name.
        """
        self._config = config
        self._channel = channel
        self._internal_topics = internal_topics
        self._spawn = spawn
        self._in_flight: set[str] = set()

    def request(self, names: list[str], client: "RequestContext") -> dict[str, ErrorCode]:
        """Create `names` if auto.create.topics.enable; returns the errors of invalid names.

        Args:
            names: of topics that do not exist.
            client: the context of the request for metadata.
        """
        if not self._config.flag("auto.create.topics.enable"):
            return {}
        errors: dict[str, ErrorCode] = {}
        wanted: list[str] = []
        for name in names:
            if topic_name_problem(name) is not None:
                errors[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif name not in self._in_flight and len(self._in_flight) + len(wanted) < IN_FLIGHT_MAX:
                wanted.append(name)
        self._start(wanted, client)
        return errors

    def create(self, names: list[str]) -> None:
        """Create topics whether or not clients may; internal ones get their own settings."""
        self._start(names, None)

    def _start(self, names: list[str], client: "RequestContext | None") -> None:
        wanted = [name for name in names if name not in self._in_flight]
        if wanted:
            self._in_flight.update(wanted)
            self._spawn(self._create(wanted, client), f"creation of {', '.join(wanted)}"[:200])

    async def _create(self, names: list[str], client: "RequestContext | None") -> None:
        from sparkraft.protocol.messages.k19_create_topics import CreateTopicsRequest

        timeout_ms = self._config.number("request.timeout.ms")
        request = CreateTopicsRequest(
            topics=[self._creatable(name) for name in names], timeout_ms=timeout_ms
        )
        try:
            context = None
            if client is not None:
                version = self._channel.newest_version(ApiKey.CREATE_TOPICS)
                context = client.creating_topics(version)
            response = await self._channel.send(
                request,
                ApiKey.CREATE_TOPICS,
                timeout_ms=timeout_ms,
                version=None if context is None else context.api_version,
                context=context,
            )
            _log_refused(response.topics)
        except KafkaError as error:
            log.warning("Failed to create %s: %s", _named(names), error)
        finally:
            self._in_flight.difference_update(names)

    def _creatable(self, name: str) -> Any:
        from sparkraft.protocol.messages.k19_create_topics import CreatableTopic

        internal = self._internal_topics.get(name)
        if internal is not None:
            return internal()
        return CreatableTopic(
            name=name,
            num_partitions=self._config.number("num.partitions"),
            replication_factor=self._config.number("default.replication.factor"),
        )


def _log_refused(topics: "Iterable[Any]") -> None:
    """Log topics that were not created: one line per error, however many names it concerns."""
    refused: dict[int, list[Any]] = {}
    for topic in topics:
        if topic.error_code not in _EXPECTED:
            refused.setdefault(topic.error_code, []).append(topic)
    for code, each in refused.items():
        log.warning(
            "Failed to create %s: %s %s",
            _named([topic.name for topic in each]),
            ErrorCode(code).name,
            each[0].error_message,
        )


def _named(names: list[str]) -> str:
    shown = ", ".join(names[:NAMES_LOGGED_MAX])
    more = len(names) - NAMES_LOGGED_MAX
    what = "topic" if len(names) == 1 else "topics"
    return f"{what} {shown} and {more} more" if more > 0 else f"{what} {shown}"

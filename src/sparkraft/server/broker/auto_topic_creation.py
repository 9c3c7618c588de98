"""Topics made because somebody asked for their metadata, and the internal ones (KIP-361).

A topic is asked for once at a time; the asker is told UNKNOWN_TOPIC_OR_PARTITION meanwhile and asks
again, as Kafka's brokers do it.
"""

import logging
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.broker.cluster_view import topic_name_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparkraft.server.broker.services import BrokerServices

log = logging.getLogger(__name__)

IN_FLIGHT_MAX = 1_000
"""Topics being made at once; a client that asks for more hears of them when it asks again."""


class AutoTopicCreation:
    """Asks the controller for topics."""

    def __init__(
        self, broker: "BrokerServices", spawn: "Callable[[Coroutine[Any, Any, Any], str], Any]"
    ) -> None:
        """Have nothing in flight."""
        self._broker = broker
        self._spawn = spawn
        self._in_flight: set[str] = set()

    def request(self, names: list[str]) -> dict[str, ErrorCode]:
        """Ask for `names`, if auto.create.topics.enable; errors of those that can't be."""
        if not self._broker.config.flag("auto.create.topics.enable"):
            return {}
        errors: dict[str, ErrorCode] = {}
        wanted = []
        for name in names:
            if topic_name_problem(name) is not None:
                errors[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif name not in self._in_flight and len(self._in_flight) < IN_FLIGHT_MAX:
                wanted.append(name)
        self.create(wanted)
        return errors

    def create(self, names: list[str]) -> None:
        """Ask for topics whether or not clients may; internal ones get their own settings."""
        wanted = [name for name in names if name not in self._in_flight]
        if wanted:
            self._in_flight.update(wanted)
            self._spawn(self._create(wanted), f"creation of {', '.join(wanted)}"[:200])

    async def _create(self, names: list[str]) -> None:
        from sparkraft.protocol.messages.k19_create_topics import CreateTopicsRequest

        timeout_ms = self._broker.config.number("request.timeout.ms")
        request = CreateTopicsRequest(
            topics=[self._creatable(name) for name in names], timeout_ms=timeout_ms
        )
        try:
            answer = await self._broker.channel.send(
                request, ApiKey.CREATE_TOPICS, timeout_ms=timeout_ms
            )
            for topic in answer.topics:
                if topic.error_code not in {0, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    code = ErrorCode(topic.error_code).name
                    log.warning("Can't create %s: %s %s", topic.name, code, topic.error_message)
        except KafkaError as error:
            log.warning("Can't create %s: %s", ", ".join(names), error)
        finally:
            self._in_flight.difference_update(names)

    def _creatable(self, name: str) -> Any:
        from sparkraft.protocol.messages.k19_create_topics import CreatableTopic

        if name == "__consumer_offsets":
            return self._broker.groups.topic_to_create()
        config = self._broker.config
        return CreatableTopic(
            name=name,
            num_partitions=config.number("num.partitions"),
            replication_factor=config.number("default.replication.factor"),
        )

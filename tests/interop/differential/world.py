"""One of the two nodes under comparison, and how a request travels to it and back as JSON."""

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.declare import Message
from sparkraft.protocol.headers import (
    RequestHeader,
    request_header_version,
    response_header_version,
)
from sparkraft.protocol.json_form import to_json
from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from tests.support.nodes import NodeProcess
from tests.support.ports import wait_until

SECONDS = 60.0
"""For an answer, where none is just a matter of a slow machine."""

SILENCE_SECONDS = 10.0
"""For an answer that one of the nodes never gives."""

WARM_UP_SECONDS_MAX = 120.0


@dataclass
class World:
    """A node as the cases see it: what it calls things that both nodes have under other names."""

    name: str
    node: NodeProcess
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    connection: socket.socket | None = None

    def topic_id(self, topic: str) -> Uuid:
        """The id of `topic`; one that no topic has where it is not known."""
        return self.topic_ids.get(topic, Uuid(b"\x7f" * 16))

    def neutral(self, text: str) -> str:
        """`text` without this node's own ports and folder."""
        for own, word in (
            (str(self.node.controller_port), "CONTROLLER_PORT"),
            (str(self.node.port), "PORT"),
            (str(self.node.directory), "DIRECTORY"),
        ):
            text = text.replace(own, word)
        return text

    def warm_up(self) -> None:
        """Wait until every partition of the group coordinator has been created and loaded."""
        import confluent_kafka

        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.node.bootstrap, "group.id": "warm-up"}
        )
        place = confluent_kafka.TopicPartition("nowhere", 0)

        def served() -> bool:
            try:
                consumer.committed([place], timeout=5)
            except confluent_kafka.KafkaException:
                return False
            return True

        wait_until(served, f"{self.name} serves groups", WARM_UP_SECONDS_MAX)
        consumer.close()
        # The first producer ids come from the controller; Kafka refuses until it has them.
        init = Case(
            "warm-up",
            ApiKey.INIT_PRODUCER_ID,
            4,
            lambda _: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        )
        wait_until(
            lambda: exchange(self, init)["errorCode"] == 0,
            f"{self.name} hands out producer ids",
            WARM_UP_SECONDS_MAX,
        )

    def member(self, label: str) -> str:
        """The member id the node gave to the member the cases call `label`."""
        return self.members.get(label, "")

    def socket(self) -> socket.socket:
        """The connection, opened where there is none."""
        if self.connection is None:
            self.connection = socket.create_connection(("127.0.0.1", self.node.port), SECONDS)
        return self.connection

    def close(self) -> None:
        """Close the connection, so that the next exchange opens another."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


@dataclass(frozen=True)
class Case:
    """One request, built for each world, and what to keep of its answer.

    Args:
        label: names the case in reports and in the allowed differences.
        build: the request's message; fields that `version` lacks go back to their defaults.
        after: sees the decoded answer, to remember ids.
        raw: changes the frame's bytes (after the length) before they are sent.
        answered_in: the version the answer is expected in, where it is not the request's.
        until: asks again, within a bound, until this holds of the answer: a broker hears of what
            the controller has done a moment later, in Kafka as here.
        seconds: how long the answer may take.
        before: done once, before the first request, such as a restart of the node.
        is_compared: whether the answers must be equal.
    """

    label: str
    key: ApiKey
    version: int
    build: Callable[[World], Message]
    after: Callable[[World, Any], None] | None = None
    raw: Callable[[bytes], bytes] | None = None
    answered_in: int | None = None
    until: Callable[[Any], bool] | None = None
    seconds: float = SECONDS
    before: Callable[[World], None] | None = None
    is_compared: bool = True

    def __str__(self) -> str:
        """`Fetch v12: from the start`."""
        return f"{API_INFO[self.key].name} v{self.version}: {self.label}"


def fit(message: Message, version: int) -> Message:
    """`message` with every field that `version` lacks at its default."""
    for declared in message.SCHEMA.fields:
        value = getattr(message, declared.name)
        if version not in declared.versions:
            setattr(message, declared.name, declared.new_default())
        elif isinstance(value, Message):
            fit(value, version)
        elif isinstance(value, list):
            for entry in value:
                if isinstance(entry, Message):
                    fit(entry, version)
        elif value is None and version not in declared.nullable:
            setattr(message, declared.name, "" if declared.kind == "string" else [])
    return message


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise ConnectionError("closed")
        data += chunk
    return data


def exchange(world: World, case: Case) -> Any:
    """Send the case's request; the answer as JSON, or a word for what happened instead."""
    if case.before is not None:
        case.before(world)
    if case.until is None:
        return _exchange_once(world, case)
    answers: list[Any] = []

    def settled() -> bool:
        answers.append(_exchange_once(world, case))
        assert case.until is not None
        return case.until(answers[-1])

    wait_until(settled, f"{world.name} has settled for {case}")
    return answers[-1]


def _exchange_once(world: World, case: Case) -> Any:
    message = fit(case.build(world), case.version)
    header = RequestHeader(
        request_api_key=int(case.key),
        request_api_version=case.version,
        correlation_id=77,
        client_id="differential",
    )
    frame = encode(header, request_header_version(case.key, case.version))
    frame += encode(message, case.version)
    if case.raw is not None:
        frame = case.raw(frame)
    try:
        connection = world.socket()
        connection.settimeout(case.seconds)
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = _receive(connection, struct.unpack(">i", _receive(connection, 4))[0])
    except (ConnectionError, TimeoutError) as error:
        world.close()
        return "no answer in time" if isinstance(error, TimeoutError) else "connection closed"
    return _read(world, case, answer)


def _read(world: World, case: Case, answer: bytes) -> Any:
    correlation_id = struct.unpack_from(">i", answer)[0]
    assert correlation_id == 77, f"{world.name} answers {correlation_id} to {case}"
    version = case.version if case.answered_in is None else case.answered_in
    start = 4 + response_header_version(case.key, version)
    info = API_INFO[case.key]
    response = decode(info.response_class(), version, answer[start:])
    if case.after is not None:
        case.after(world, response)
    return to_json(response, version)

"""A small blocking client for planners, tasks and writers: Spark runs those without event loops.

Connections go to the brokers that lead the requested partitions; metadata is fetched again if a
broker is not the leader or does not respond. Every wait and every retry is bounded by the options
(`request_timeout_ms`, `retries_max`).

Invariants:
    * Responses of a connection arrive in the order of its requests; anything else closes it.
    * The bytes of a Fetch response lie in the connection's buffer and are valid until the next
      response.
    * A session that is about to expire is renewed before the next request (KIP-368).

Not here: encoding and matching (`sparkraft.client.wire_exchange`); transactions
(`transactions`); membership in groups, anything asynchronous (`sparkraft.client`).
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.base.ids import by_topic
from sparkraft.client.renewal import renewal_ms
from sparkraft.client.wire_exchange import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    InFlightRequest,
    WireExchange,
    checked_length,
    decode_response,
    info_of,
)
from sparkraft.tls.contexts import client_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from sparkraft.base.ids import TopicPartition, Uuid
    from sparkraft.pipeline.options import ClientOptions
    from sparkraft.security.login import Credentials
    from sparkraft.security.tls_settings import TlsSettings

T = TypeVar("T")

_TOPIC_NAMES_VERSION: Final = 12
"""Produce and Fetch name topics up to this version, and use topic ids from the next."""

_SOCKET_BUFFER_BYTES: Final = 1 << 20

_RECEIVE_BYTES: Final = 1 << 18
"""The buffer a connection starts with."""

GROUP_COORDINATOR: Final = 0
TRANSACTION_COORDINATOR: Final = 1
"""Kinds of keys in FindCoordinator."""

LOGIN_REFUSED: Final = frozenset(
    {ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_SASL_MECHANISM}
)
"""Other brokers, and later attempts, would refuse the login too."""

PEER_GONE: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


class Connection:
    """One socket to one broker; requests may be sent ahead of reading their answers.

    Raises `KafkaError`: NETWORK_EXCEPTION if the broker closes the connection, REQUEST_TIMED_OUT
    if it does not respond, SASL_AUTHENTICATION_FAILED or UNSUPPORTED_SASL_MECHANISM if it refuses
    the login; the connection is closed then.
    """

    def __init__(self, host: str, port: int, options: ClientOptions) -> None:
        """Connect, negotiate versions, and authenticate."""
        self.host = host
        self.port = port
        self._timeout_ms = options.request_timeout_ms
        self._exchange = WireExchange(f"{host}:{port}", client_id=options.client_id)
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._early: deque[tuple[InFlightRequest, memoryview]] = deque()
        """Responses that arrived before those of a renewal."""
        self._login = options.login
        self._renew_at: float | None = None
        """When to authenticate again, in monotonic seconds; None: never."""
        self.is_closed = False
        self._socket = self._connect(options.tls)
        self._take_steps(self._exchange.negotiation())
        if self._login is not None:
            self._authenticate(self._login)

    def __repr__(self) -> str:
        return f"<Connection {self.host}:{self.port}{' closed' if self.is_closed else ''}>"

    def ask(self, request: Any, *, version_max: int | None = None) -> Any:
        """Send `request` and return its response."""
        self.send(request, version_max=version_max)
        return self.receive()

    def send(self, request: Any, *, version_max: int | None = None) -> None:
        """Send `request`; `receive` returns its response after those of earlier requests."""
        if self._renew_at is not None and time.monotonic() >= self._renew_at:
            assert self._login is not None
            self._buffer = bytearray(_RECEIVE_BYTES)  # the last response may still be in use
            self._authenticate(self._login)
        self._send(request, self._exchange.version_for(info_of(request).key, at_most=version_max))

    def serves(self, request: Any, *, at_least: int) -> bool:
        """Whether the broker serves this version of a request or a higher one."""
        return self._exchange.version_for(info_of(request).key) >= at_least

    def receive(self) -> Any:
        """Return the response to the oldest request in flight."""
        try:
            if self._early:
                return decode_response(*self._early.popleft())
            frame = self._frame()
            return decode_response(self._exchange.match(frame), frame)
        except DecodeError as error:
            raise self._broken(f"sent an invalid response: {error}") from error

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight."""
        return not (self._exchange.in_flight or self._early)

    def close(self) -> None:
        self.is_closed = True
        self._socket.close()

    def _connect(self, tls: TlsSettings | None) -> socket.socket:
        try:
            made = socket.create_connection((self.host, self.port), self._timeout_ms / 1000)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
            if tls is None:
                return made
            return _tls_context(tls).wrap_socket(made, server_hostname=self.host)
        except OSError as error:
            self.is_closed = True
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION,
                f"cannot connect to {self.host}:{self.port}: {error.strerror or error}",
            ) from error

    def _authenticate(self, login: Credentials) -> None:
        """Log in, for the first time or again."""
        try:
            lifetime_ms = self._take_steps(
                self._exchange.authentication(login, secrets.token_urlsafe(24), self.host)
            )
        except BaseException:
            self.close()
            raise
        self._renew_at = time.monotonic() + renewal_ms(lifetime_ms) / 1000 if lifetime_ms else None

    def _take_steps(self, steps: Generator[tuple[Any, int], Any, T]) -> T:
        request, version = next(steps)
        while True:
            self._send(request, version)
            self._set_early_aside()
            frame = self._frame()
            try:
                response = decode_response(self._exchange.match(frame), frame)
                request, version = steps.send(response)
            except DecodeError as error:
                raise self._broken(f"sent an invalid response: {error}") from error
            except StopIteration as end:
                result: T = end.value
                return result

    def _set_early_aside(self) -> None:
        """Read the responses to all requests but the last: `receive` returns them later."""
        while len(self._exchange.in_flight) > 1:
            frame = self._frame()
            try:
                in_flight = self._exchange.match(frame)
            except DecodeError as error:
                raise self._broken(f"sent an invalid response: {error}") from error
            self._early.append((in_flight, memoryview(bytes(frame))))

    def _send(self, request: Any, version: int) -> None:
        buffers, in_flight = self._exchange.encode(request, version)
        try:
            self._socket.sendall(b"".join(buffers))
        except OSError as error:
            raise self._broken(str(error)) from error
        self._exchange.in_flight.append(in_flight)

    def _frame(self) -> memoryview:
        head = bytearray(LENGTH_BYTES)
        self._fill(memoryview(head))
        length = checked_length(head, FRAME_BYTES_MAX)
        if length > len(self._buffer):
            # A new buffer: views of the old one may still be in use. The system provides its pages
            # as bytes arrive, so a false length costs nothing.
            self._buffer = bytearray(max(length, 2 * len(self._buffer)))
        frame = memoryview(self._buffer)[:length]
        self._fill(frame)
        return frame

    def _fill(self, room: memoryview) -> None:
        got = 0
        try:
            while got < len(room):
                count = self._socket.recv_into(room[got:])
                if count == 0:
                    raise self._broken("closed the connection")
                got += count
        except TimeoutError as error:
            self.close()
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.host}:{self.port} did not respond within {self._timeout_ms} ms",
            ) from error
        except OSError as error:
            raise self._broken(str(error)) from error

    def _broken(self, what: str) -> KafkaError:
        self.close()
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self.host}:{self.port} {what}")


@lru_cache(maxsize=8)
def _tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of all connections with these settings: the stores are read once."""
    return client_context(settings)


@dataclass(slots=True, kw_only=True)
class TopicInfo:
    """A topic's metadata."""

    leaders: dict[int, int]
    """Partition → broker id of its leader, -1 without one."""
    replicas: dict[int, list[int]]
    """Partition → broker ids."""
    is_internal: bool
    topic_id: Uuid
    """ZERO from brokers before 2.8 (KIP-516)."""


class Cluster:
    """The whole cluster: routing, metadata refresh, retries."""

    def __init__(self, options: ClientOptions) -> None:
        """Store the bootstrap servers; nothing is connected yet."""
        self.options = options
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}

    # asking

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Repeat `attempt` while it fails with an error that Kafka calls retriable."""
        for _ in range(self.options.retries_max):
            try:
                return attempt()
            except KafkaError as error:
                if not error.code.is_retriable:
                    raise
                self.forget()
                time.sleep(self.options.retry_pause_ms / 1000)
        return attempt()

    def forget(self) -> None:
        """Drop cached metadata and coordinators, and connections with unread responses."""
        self._topics.clear()
        self._coordinators.clear()
        self.drop_half_used()

    def drop_half_used(self) -> None:
        """Close connections with unread responses."""
        for connection in self._connections.values():
            if not connection.is_idle:
                connection.close()

    def any_broker(self) -> Connection:
        """A connection to some broker: one that is open, else the first that can be reached."""
        for connection in list(self._connections.values()):
            if not connection.is_closed:
                return connection
        failures = []
        places = dict.fromkeys((*self._brokers.values(), *self.options.bootstrap_servers))
        for host, port in places:
            try:
                return self._connection(host, port)
            except KafkaError as error:
                if error.code in LOGIN_REFUSED:
                    raise
                failures.append(str(error.detail))
        raise KafkaError(
            ErrorCode.NETWORK_EXCEPTION, "no broker can be reached: " + "; ".join(failures)
        )

    def node_ids(self) -> list[int]:
        """The brokers of the metadata that was fetched last, in order."""
        return sorted(self._brokers)

    def broker(self, node_id: int) -> Connection:
        """A connection to one broker."""
        place = self._brokers.get(node_id)
        if place is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {node_id} is not known")
        return self._connection(*place)

    def _connection(self, host: str, port: int) -> Connection:
        known = self._connections.get((host, port))
        if known is None or known.is_closed:
            known = self._connections[host, port] = Connection(host, port, self.options)
        return known

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # metadata

    def topics(self, names: Sequence[str] | None) -> dict[str, TopicInfo]:
        """Return the metadata of these topics, or of all; missing topics are left out."""
        return self.retrying(lambda: self._ask_topics(names))

    def _ask_topics(self, names: Sequence[str] | None) -> dict[str, TopicInfo]:
        from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic

        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(
            topics=asked, allow_auto_topic_creation=self.options.auto_create_topics
        )
        answer = self.any_broker().ask(request)
        self._brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        found = {}
        for topic in answer.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            check(topic.error_code, f"topic {topic.name}")
            leaders = {each.partition_index: each.leader_id for each in topic.partitions}
            replicas = {each.partition_index: each.replica_nodes for each in topic.partitions}
            found[topic.name] = TopicInfo(
                leaders=leaders,
                replicas=replicas,
                is_internal=topic.is_internal,
                topic_id=topic.topic_id,
            )
        self._topics.update(found)
        return found

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Group partitions by leader; raise a retriable error if one has no leader."""
        wanted = list(partitions)
        unknown = sorted({topic for topic, _ in wanted} - self._topics.keys())
        if unknown:
            self._ask_topics(unknown)
        led = defaultdict(list)
        for topic, partition in wanted:
            leaders = self._topics[topic].leaders if topic in self._topics else {}
            if leaders.get(partition, -1) < 0:
                self._topics.pop(topic, None)
                raise _no_leader(topic, partition, leaders)
            leader = leaders[partition]
            led[leader].append((topic, partition))
        return dict(led)

    # offsets

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, int]:
        """Offsets by time: `EARLIEST`, `LATEST`, or the first record at that time or later.

        Args:
            wanted: partition → milliseconds since 1970, or one of the two constants.
            committed_only: take the last stable offset for the latest.

        Returns:
            the offsets; -1 if no record is that late.
        """
        if not wanted:
            return {}
        return self.retrying(lambda: self._ask_offsets(wanted, committed_only=committed_only))

    def _ask_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool
    ) -> dict[TopicPartition, int]:
        sent = []
        for leader, partitions in self.by_leader(wanted).items():
            connection = self.broker(leader)
            connection.send(_offsets_request(wanted, partitions, committed_only=committed_only))
            sent.append(connection)
        answers = [connection.receive() for connection in sent]
        found = {}
        for name, partition in _partitions_of(answers):
            check(partition.error_code, f"offsets of {name}-{partition.partition_index}")
            found[name, partition.partition_index] = partition.offset
        return found

    # group offsets

    def commit_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Publish offsets in a group's name, so that lag tools see them; it has no members."""
        from sparkraft.protocol.messages import k08_offset_commit as message

        def attempt() -> None:
            request = message.OffsetCommitRequest(
                group_id=group,
                topics=[
                    message.OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            message.OffsetCommitRequestPartition(
                                partition_index=number,
                                committed_offset=offsets[topic, number],
                                committed_metadata="",
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(offsets).items()
                ],
            )
            answer = self.coordinator(group).ask(request, version_max=9)
            for name, partition in _partitions_of([answer]):
                check(partition.error_code, f"commit of {name}-{partition.partition_index}")

        self.retrying(attempt)

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group."""
        from sparkraft.protocol.messages import k09_offset_fetch as message

        def attempt() -> dict[TopicPartition, int]:
            request = message.OffsetFetchRequest(group_id=group, topics=None)
            answer = self.coordinator(group).ask(request, version_max=7)
            check(answer.error_code, f"offsets of group {group}")
            return {
                (name, each.partition_index): each.committed_offset
                for name, each in _partitions_of([answer])
            }

        return self.retrying(attempt)

    def coordinator(self, name: str, *, kind: int = GROUP_COORDINATOR) -> Connection:
        """A connection to the coordinator of a group or transactional id, cached until `forget`."""
        from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest

        place = self._coordinators.get((kind, name))
        if place is None:
            request = FindCoordinatorRequest(key=name, key_type=kind)
            answer = self.any_broker().ask(request, version_max=3)
            check(answer.error_code, answer.error_message or f"coordinator of {name}")
            place = self._coordinators[kind, name] = answer.host, answer.port
        return self._connection(*place)

    # topics and producers

    def create_topic(
        self, name: str, *, partitions: int, configs: Mapping[str, str] | None = None
    ) -> bool:
        """Create a topic with the cluster's replication factor; False if it is there already."""
        from sparkraft.protocol.messages import k19_create_topics as message

        settings = [
            message.CreatableTopicConfig(name=key, value=value)
            for key, value in (configs or {}).items()
        ]
        topic = message.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=-1, configs=settings
        )

        def attempt() -> bool:
            request = message.CreateTopicsRequest(
                topics=[topic], timeout_ms=self.options.request_timeout_ms
            )
            result = self.any_broker().ask(request).topics[0]
            if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            check(result.error_code, result.error_message or f"creation of topic {name}")
            return True

        return self.retrying(attempt)

    def new_producer_id(self) -> tuple[int, int]:
        """A producer id and epoch for an idempotent producer."""
        from sparkraft.protocol.messages.k22_init_producer_id import InitProducerIdRequest

        def attempt() -> tuple[int, int]:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = self.any_broker().ask(request, version_max=4)
            check(answer.error_code, "a producer id")
            return answer.producer_id, answer.producer_epoch

        return self.retrying(attempt)


def _no_leader(topic: str, partition: int, leaders: Mapping[int, int]) -> KafkaError:
    if partition in leaders:
        code = ErrorCode.LEADER_NOT_AVAILABLE
        return KafkaError(code, f"{topic}-{partition} has no leader at the moment")
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if leaders:
        return KafkaError(code, f"topic {topic} has {len(leaders)} partitions, none is {partition}")
    return KafkaError(code, f"topic {topic} does not exist")


def check(number: int, what: str) -> None:
    """Raise `KafkaError` unless `number` is NONE."""
    if number:
        try:
            code = ErrorCode(number)
        except ValueError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code, what)


def _partitions_of(answers: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for answer in answers:
        for topic in answer.topics:
            for partition in topic.partitions:
                yield cast("str", topic.name), partition


def _offsets_request(
    wanted: Mapping[TopicPartition, int],
    partitions: Iterable[TopicPartition],
    *,
    committed_only: bool,
) -> Any:
    from sparkraft.protocol.messages import k02_list_offsets as message

    topics = [
        message.ListOffsetsTopic(
            name=topic,
            partitions=[
                message.ListOffsetsPartition(
                    partition_index=number, timestamp=wanted[topic, number]
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(partitions).items()
    ]
    return message.ListOffsetsRequest(
        replica_id=-1, isolation_level=int(committed_only), topics=topics
    )


_SHARED: Final[dict[tuple[int, ClientOptions], Cluster]] = {}
_SHARED_MAX: Final = 8
"""Clusters kept by a worker process: jobs that read from more reconnect for some batches."""


def shared_cluster(options: ClientOptions) -> Cluster:
    """This process's cluster for these options: Spark reuses workers, so sockets live on too."""
    key = (os.getpid(), options)
    if key not in _SHARED:
        if len(_SHARED) >= _SHARED_MAX:
            for cluster in _SHARED.values():
                cluster.close()
            _SHARED.clear()
        _SHARED[key] = Cluster(options)
    return _SHARED[key]

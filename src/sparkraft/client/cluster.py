"""The whole cluster as a client sees it: nodes, leaders, routing and retries.

A `Cluster` keeps one connection per node, one more for fetches, and a copy of the metadata. A
request goes to its destination: any node, the controller, a partition's leader, a group's
coordinator. `Cluster.retrying` repeats an attempt while its error is one that Kafka calls
retriable, with exponential back-off, until its time is up.

Invariants:
    * Metadata only moves forward: a partition's leader of an older epoch never replaces a newer.
    * An error that is not retriable reaches the caller at the first attempt.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.connection import CONNECT_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Connection
from sparkraft.client.errors import TransactionError
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from sparkraft.security.login import Credentials
    from sparkraft.tls.dialing import Connect

T = TypeVar("T")

API_TIMEOUT_MS = 60_000
"""Kafka's `default.api.timeout.ms`: all attempts of one call together."""

RETRY_BACKOFF_MS = 100
RETRY_BACKOFF_MS_MAX = 1_000

METADATA_AGE_MS_MAX = 300_000
"""Kafka's `metadata.max.age.ms`."""

GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1

_BROKERS = 1
_CONTROLLERS = 2
_DEFAULT_PORT = 9092


def code_of(number: int) -> ErrorCode:
    """The error code of `number`; a number of a newer Kafka counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def check(number: int, detail: str | None = None) -> None:
    """Raise `KafkaError` unless `number` is NONE."""
    if number:
        raise KafkaError(code_of(number), detail or _SENTENCES.get(code_of(number), ""))


_SENTENCES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this node knows no such topic or partition",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group still reads the topic",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is not within the partition's log",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group's coordinator is not up",
    ErrorCode.NOT_CONTROLLER: "the node is not the active controller",
    ErrorCode.UNSUPPORTED_VERSION: "the node does not serve this version of the request",
}


def parse_bootstrap(text: str | Sequence[str]) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs; IPv6 addresses in brackets; `ValueError` if it is not."""
    entries = text.split(",") if isinstance(text, str) else list(text)
    found = [_parse_address(entry.strip()) for entry in entries if entry.strip()]
    if not found:
        raise ValueError("the bootstrap list names no server; it looks like host:port,host:port")
    return found


def _parse_address(entry: str) -> tuple[str, int]:
    bare = entry.rsplit("://", 1)[-1]
    host, colon, port = bare.rpartition(":")
    if not colon or bare.endswith("]"):
        host, port = bare, str(_DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) <= 0xFFFF:  # noqa: PLR2004
        raise ValueError(f"{entry!r} is not a server's address; it looks like host:port")
    return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A broker or controller and where it listens."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """A partition as described by Metadata."""

    index: int
    leader: int
    """-1 while there is none."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    elr: tuple[int, ...] | None = None
    """Eligible leader replicas (KIP-966); None if the response does not include them."""
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic as described by Metadata."""

    name: str
    id: Uuid
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]


@dataclass(slots=True, kw_only=True)
class View:
    """A client's view of the cluster; `topics` holds those it requested."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: dict[int, Node] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    errors: dict[str, KafkaError] = field(default_factory=dict)
    """Topics that Metadata answered with an error."""

    def version_by_ids(self, topics: Iterable[str]) -> int | None:
        """The highest version of Produce or Fetch for these topics; None: no limit.

        Some have no id in a cluster in ZooKeeper mode that began before Kafka 2.8 (KIP-516); they
        can be named only.
        """
        known = self.topics
        nameless = any(name in known and known[name].id == Uuid.ZERO for name in topics)
        return _NAMES_VERSION_MAX if nameless else None


_NAMES_VERSION_MAX = 12
"""Produce and Fetch name topics up to this version, and use topic ids from the next."""


class Cluster:
    """Connections to a cluster, its metadata, routing and retries. Close it when done."""

    def __init__(  # noqa: PLR0913 (all but the first have defaults)
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "sparkraft",
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        api_timeout_ms: int = API_TIMEOUT_MS,
        to_controllers: bool = False,
        login: Credentials | None = None,
        connect: Connect | None = None,
    ) -> None:
        """Prepare; nothing connects before the first request.

        Args:
            bootstrap: `host:port,host:port`; one running node is enough.
            client_id: the name of this client in the nodes' logs and metrics.
            request_timeout_ms: for one request; never longer than `api_timeout_ms`.
            api_timeout_ms: for a call with all its attempts.
            to_controllers: the addresses are controllers' (`--bootstrap-controller`).
            login: authenticates each connection; None: they are not authenticated.
            connect: opens connections, as returned by `client.security.secured_connect`; plain ones
                by default.
        """
        self.bootstrap = parse_bootstrap(bootstrap)
        self.client_id = client_id
        self.request_timeout_ms = min(request_timeout_ms, api_timeout_ms)
        self.api_timeout_ms = api_timeout_ms
        self.to_controllers = to_controllers
        self.login = login
        self._connect = connect
        self.view = View()
        self._fetched_at: dict[str, float] = {}
        self._connections: dict[tuple[str, int], asyncio.Task[Connection]] = {}
        self._parked: dict[tuple[str, int], asyncio.Task[Connection]] = {}
        """Connections whose requests nodes may hold for a while."""
        self._coordinators: dict[tuple[int, str], int] = {}
        self._told_by: tuple[str, int] | None = None
        """The controller that named the current leader."""
        self._distrusted: set[tuple[str, int]] = set()
        """Controllers that named a wrong leader; cleared once it holds all of them."""
        self._asks_named_broker = False
        """Whether brokers refuse requests for the controller: those in ZooKeeper mode do."""
        self._is_closed = False

    async def __aenter__(self) -> Cluster:
        """Use it as a context manager to close it for sure."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        self._is_closed = True
        tasks = [*self._connections.values(), *self._parked.values()]
        self._connections.clear()
        self._parked.clear()
        for task in tasks:
            if not task.done():
                task.cancel()
            elif not task.cancelled() and task.exception() is None:
                await task.result().close()

    # connections

    async def connect(self, host: str, port: int, *, parked: bool = False) -> Connection:
        """The connection to an address: the one there is, or a new one.

        Args:
            host: of the node.
            port: of the node.
            parked: the node may hold the requests for a while, as Fetch. Responses keep the order
                of requests, so these have a connection of their own.
        """
        key, connections = (host, port), self._parked if parked else self._connections
        task = connections.get(key)
        if task is not None and task.done() and _is_dead(task):
            task = None
        if task is None:
            if self._is_closed:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "this client is closed")
            opening = Connection.open(
                host,
                port,
                client_id=self.client_id,
                timeout_ms=min(CONNECT_TIMEOUT_MS, self.api_timeout_ms),
                login=self.login,
                connect=self._connect,
            )
            task = asyncio.get_running_loop().create_task(opening)
            connections[key] = task
        # Shielded: several callers may wait for one connection, and one may give up.
        return await asyncio.shield(task)

    async def any_connection(self) -> Connection:
        """A connection to some node: one that is open, else the first that can be opened."""
        for task in self._connections.values():
            if task.done() and not _is_dead(task):
                return task.result()
        failure: KafkaError | None = None
        for host, port in self._addresses():
            try:
                return await self.connect(host, port)
            except KafkaError as error:
                failure = error
        assert failure is not None, "the bootstrap list is never empty"
        raise failure

    def _addresses(self) -> Iterable[tuple[str, int]]:
        known = [(node.host, node.port) for node in self.view.nodes.values()]
        return dict.fromkeys([*known, *self.bootstrap])

    async def connection(self, node_id: int, *, parked: bool = False) -> Connection:
        """Return the connection to a node by its id; fetch metadata if the node is unknown."""
        node = self.view.nodes.get(node_id)
        if node is None:
            await self.refresh(())
            node = self.view.nodes.get(node_id)
        if node is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"no node {node_id} is in the cluster's metadata"
            )
        return await self.connect(node.host, node.port, parked=parked)

    def finalized_level(self, feature: str) -> int:
        """The finalized level of a feature in the newest ApiVersions response; 0 if there is none.

        Only connections that are open now count: a client learns of a change when it connects.
        """
        found, newest = 0, -1
        for task in self._connections.values():
            if not task.done() or _is_dead(task):
                continue
            answer = task.result().api_versions
            if answer is not None and answer.finalized_features_epoch > newest:
                newest = answer.finalized_features_epoch
                levels = {f.name: f.max_version_level for f in answer.finalized_features}
                found = levels.get(feature, 0)
        return found

    # routing

    async def ask_any(self, request: Any, *, version: int | None = None) -> Any:
        """Send to some node; one attempt."""
        connection = await self.any_connection()
        return await self._ask(connection, request, version)

    async def ask_node(self, node_id: int, request: Any, *, version: int | None = None) -> Any:
        """Send to one node; one attempt."""
        connection = await self.connection(node_id)
        return await self._ask(connection, request, version)

    async def ask_controller(self, request: Any, *, version: int | None = None) -> Any:
        """Send to the node that decides changes of the cluster; one attempt.

        Brokers forward such requests themselves, so with brokers any node will do. In ZooKeeper
        mode they do not: after NOT_CONTROLLER the one that Metadata names as the controller is
        asked, unless it cannot be reached.
        """
        if not self.to_controllers and not self._asks_named_broker:
            return await self.ask_any(request, version=version)
        if self.view.controller_id < 0:
            await self.refresh(())
        try:
            connection = await self._controller_connection()
            return await self._ask(connection, request, version)
        except KafkaError as error:
            self.forget_controller(error.code)
            raise

    async def _controller_connection(self) -> Connection:
        """The connection to the controller; if a named broker is unreachable, to any other.

        The other's response names the cause better than the failure to connect.
        """
        if self.to_controllers:
            return await self.connection(self.view.controller_id)
        if self.view.controller_id >= 0:
            try:
                return await self.connection(self.view.controller_id)
            except KafkaError as error:
                if error.code not in _UNREACHABLE:
                    raise
                self.forget_controller(error.code)
        return await self.any_connection()

    def forget_controller(self, code: ErrorCode) -> None:
        """Look up the controller again before the next request: this one failed with `code`.

        NOT_CONTROLLER from a broker means that it does not forward.
        """
        self.view.controller_id = -1
        if code is ErrorCode.NOT_CONTROLLER and not self.to_controllers:
            self._asks_named_broker = True
        if self._told_by is not None:
            self._distrusted.add(self._told_by)

    async def ask_coordinator(
        self, group_id: str, request: Any, *, version: int | None = None, kind: int = 0
    ) -> Any:
        """Send to the coordinator of a group (or transactional id, `kind` 1); one attempt."""
        node_id = await self.coordinator(group_id, kind=kind)
        try:
            return await self.ask_node(node_id, request, version=version)
        except KafkaError:
            self.forget_coordinator(group_id, kind=kind)
            raise

    async def _ask(self, connection: Connection, request: Any, version: int | None) -> Any:
        return await connection.send(request, version=version, timeout_ms=self.request_timeout_ms)

    async def coordinator(self, key: str, *, kind: int = GROUP_COORDINATOR) -> int:
        """The id of the node that coordinates `key`; asks once, then remembers."""
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        from sparkraft.protocol.messages.k10_find_coordinator import FindCoordinatorRequest

        connection = await self.any_connection()
        version = connection.version_for(ApiKey.FIND_COORDINATOR)
        is_batched = version >= 4  # noqa: PLR2004 (KIP-699)
        request = FindCoordinatorRequest(key_type=kind)
        if is_batched:
            request.coordinator_keys = [key]
        else:
            request.key = key
        answer = await self._ask(connection, request, version)
        found = answer.coordinators[0] if is_batched else answer
        check(found.error_code, found.error_message)
        self._remember_node(Node(id=found.node_id, host=found.host, port=found.port))
        self._coordinators[kind, key] = found.node_id
        return int(found.node_id)

    def forget_coordinator(self, key: str, *, kind: int = GROUP_COORDINATOR) -> None:
        """Look the coordinator up again at the next request."""
        self._coordinators.pop((kind, key), None)

    def _remember_node(self, node: Node) -> None:
        self.view.nodes.setdefault(node.id, node)

    # metadata

    async def refresh(self, topics: Iterable[str] | None = None, *, create: bool = False) -> View:
        """Fetch metadata of `topics` (None: of all) now; one attempt.

        Args:
            topics: names; none at all fetches only who is in the cluster.
            create: let the cluster create topics that are missing, if it is set to.
        """
        if self.to_controllers:
            await self._refresh_controllers()
            return self.view
        from sparkraft.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic

        asked = None if topics is None else sorted(set(topics))
        request = MetadataRequest(
            topics=None if asked is None else [MetadataRequestTopic(name=name) for name in asked],
            allow_auto_topic_creation=create,
        )
        answer = await self.ask_any(request)
        check(answer.error_code)
        self._take(answer, is_whole=asked is None)
        return self.view

    async def _refresh_controllers(self) -> None:
        """Ask one controller after another for the leader: an isolated controller does not know it.

        Controllers with an open connection come first, and those that named a wrong leader last.
        """
        from sparkraft.protocol.messages.k60_describe_cluster import DescribeClusterRequest

        open_ones = [key for key, task in self._connections.items() if task.done()]
        order = dict.fromkeys([*open_ones, *self._addresses()])
        if self._distrusted.issuperset(order):
            self._distrusted.clear()
        failure: KafkaError | None = None
        says_nobody_leads = False
        for address in sorted(order, key=lambda each: each in self._distrusted):
            try:
                connection = await self.connect(*address)
                request = DescribeClusterRequest(endpoint_type=_CONTROLLERS)
                answer = await self._ask(connection, request, None)
                check(answer.error_code, answer.error_message)
            except KafkaError as error:
                failure = error
                continue
            self._take_controllers(answer)
            if answer.controller_id >= 0:
                self._told_by = address
                return
            says_nobody_leads = True
        if says_nobody_leads or failure is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the quorum has no leader")
        raise failure

    def _take_controllers(self, answer: Any) -> None:
        self.view.cluster_id = answer.cluster_id
        self.view.controller_id = answer.controller_id
        self.view.nodes = {
            entry.broker_id: Node(id=entry.broker_id, host=entry.host, port=entry.port)
            for entry in answer.brokers
        }

    def _take(self, answer: Any, *, is_whole: bool) -> None:
        self.view.cluster_id = answer.cluster_id
        self.view.controller_id = answer.controller_id
        self.view.nodes = {
            entry.node_id: Node(id=entry.node_id, host=entry.host, port=entry.port, rack=entry.rack)
            for entry in answer.brokers
        }
        if is_whole:
            names = {entry.name for entry in answer.topics}
            self.view.topics = {n: t for n, t in self.view.topics.items() if n in names}
            self.view.errors = {}
        now = asyncio.get_running_loop().time()
        for entry in answer.topics:
            self._fetched_at[entry.name] = now
            self.view.errors.pop(entry.name, None)
            if entry.error_code:
                self.view.topics.pop(entry.name, None)
                self.view.errors[entry.name] = KafkaError(code_of(entry.error_code), entry.name)
            else:
                self.view.topics[entry.name] = _topic_of(entry, self.view.topics.get(entry.name))

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """A topic's metadata, from memory while it is fresh.

        Raises:
            KafkaError: the cluster's error for the topic, such as UNKNOWN_TOPIC_OR_PARTITION.
        """
        age = asyncio.get_running_loop().time() - self._fetched_at.get(name, float("-inf"))
        if name not in self.view.topics or age * 1000 > METADATA_AGE_MS_MAX:
            await self.refresh([name], create=create)
        found = self.view.topics.get(name)
        if found is None:
            raise self.view.errors.get(name, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
        return found

    def forget_topic(self, name: str) -> None:
        """Fetch its metadata again at the next request, because a node is not the leader."""
        self._fetched_at.pop(name, None)

    async def leader(self, topic: str, partition: int) -> PartitionInfo:
        """The partition, with a leader; LEADER_NOT_AVAILABLE while it has none."""
        info = (await self.topic(topic)).partitions.get(partition)
        if info is None:
            self.forget_topic(topic)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {partition}"
            )
        if info.leader < 0:
            self.forget_topic(topic)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return info

    # retries

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_ms: int | None = None,
        backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> T:
        """The result of the first attempt that works, while errors are retriable and time is left.

        Raises:
            KafkaError: the last attempt's.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (timeout_ms or self.api_timeout_ms) / 1000
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not is_worth_retrying(error) or loop.time() + backoff_ms / 1000 > deadline:
                    raise
            await asyncio.sleep(backoff_ms / 1000)
            backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)


def is_worth_retrying(error: KafkaError) -> bool:
    """Whether the same request may work in a moment."""
    if isinstance(error, TransactionError):
        return False  # its code is that of the cause
    return error.code.is_retriable or error.code in _ALSO_RETRIABLE


_ALSO_RETRIABLE = frozenset({ErrorCode.BROKER_NOT_AVAILABLE})
"""A node that is not in the metadata may be in the next."""


_UNREACHABLE = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Errors of opening a connection to a node that is down or unknown."""


def _is_dead(task: asyncio.Task[Connection]) -> bool:
    return task.cancelled() or task.exception() is not None or task.result().is_closed


def _topic_of(entry: Any, known: TopicInfo | None) -> TopicInfo:
    partitions = {p.partition_index: _partition_of(p) for p in entry.partitions}
    if known is not None and known.id == entry.topic_id:
        for index, new in partitions.items():
            old = known.partitions.get(index)
            if old is not None and old.leader_epoch > new.leader_epoch >= 0:
                partitions[index] = replace(old, replicas=new.replicas)
    return TopicInfo(
        name=entry.name,
        id=Uuid(entry.topic_id),
        is_internal=entry.is_internal,
        partitions=partitions,
    )


def _partition_of(entry: Any) -> PartitionInfo:
    return PartitionInfo(
        index=entry.partition_index,
        leader=entry.leader_id,
        leader_epoch=entry.leader_epoch,
        replicas=tuple(entry.replica_nodes),
        isr=tuple(entry.isr_nodes),
        offline=tuple(entry.offline_replicas),
    )

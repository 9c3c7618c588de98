"""Which API keys this node serves, on which listener, and by which file.

A file `sparkraft/server/api/kNN_name.py` defines `API`, an `Api`. Add a line to `SERVED` (sorted by
key) and it is served and advertised. Files load at first use: a node that starts needs few of them.

A handler is `handle(node, context, request)`. It returns the response message (or its encoded
body: bytes, or a list of buffers), or an awaitable of that, or None for no response (Produce with
acks=0). If its work grows with the request or the cluster, it is a generator (`Steps`). It may
raise `KafkaError`; dispatch turns that into a response by `Api.refuse`, which by default sets
`error_code` (and `error_message`).
Brokers in ZooKeeper mode serve the broker listener's keys, without those of KRaft and with those of
their controller's requests: see `Api.zookeeper`.

On the broker listener `node` is a `sparkraft.server.broker_services.BrokerServices`, on the
controller listener a `sparkraft.server.controller.services.ControllerServices`.
"""

from collections.abc import Awaitable, Callable, Generator, Hashable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from sparkraft.base.errors import KafkaError
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from sparkraft.security.principal import KafkaPrincipal
from sparkraft.security.session import Session
from sparkraft.server.api.authorization import Authorization, check_request, request_rules

Handler = Callable[[Any, "RequestContext", Any], Any | Awaitable[Any] | None]

Result = TypeVar("Result")

REFUSALS_MAX = 10_000
"""Entries of a connection's `pipelined_refusals`; from then on all later requests are refused."""

EVERYTHING = "everything"
"""The entry for all partitions: they are tuples."""

Steps = Generator[Any, Any, Any]
"""A handler's work that can be interrupted (`server.network.slices`).

It yields, after each small piece, the units of work done since the last time: a unit is a
partition, a resource or a record, about 4 µs. It may also yield an awaitable, and gets its result.
It returns the response, or an awaitable of it.
"""


class RequestContext:
    """A request's header, its session and connection, and when its last byte arrived.

    A plain slots class: one is made per request on the hot path.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "loop_time",
        "received_ms",
        "refused",
        "session",
        "throttle_ms",
    )

    def __init__(  # noqa: PLR0913 (one call site, all fields needed)
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        *,
        session: Session,
        connection: Any,
        received_ms: int,
    ) -> None:
        """All but the first four are the same for every request of a connection and chunk."""
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.session = session
        self.connection = connection
        self.received_ms = received_ms
        self.refused: list[Hashable] | tuple[()] = ()
        """Its keys in `Connection.pipelined_refusals`, removed when the response leaves."""
        self.loop_time: Any = None
        """Its `LoopTime`, if a quota limits the time of requests; `measure_time` assigns it."""
        self.throttle_ms = 0
        """How long its client must wait because of a quota; `throttle_by` assigns it."""

    def creating_topics(self, version: int) -> "RequestContext":
        """The context of a CreateTopics that this client's request for metadata needs.

        It has no connection that a quota could hold up: as in Kafka, the topic is missing.
        """
        return RequestContext(
            int(ApiKey.CREATE_TOPICS),
            version,
            self.correlation_id,
            self.client_id,
            session=self.session,
            connection=None,
            received_ms=self.received_ms,
        )

    def throttle_by(self, throttle_ms: int) -> None:
        """Have the response report that its client must wait."""
        self.throttle_ms = throttle_ms

    def measure_time(self, loop_time: Any) -> None:
        """Measure how long the request keeps the loop; None: it is exempt."""
        self.loop_time = loop_time

    @property
    def principal(self) -> KafkaPrincipal:
        """The client's, also when a broker forwarded the request."""
        return self.session.principal

    @property
    def client_host(self) -> str:
        """The client's IP address, also when a broker forwarded the request."""
        return self.session.client_host

    @property
    def listener_name(self) -> str:
        """The listener the request arrived at."""
        return self.session.listener_name

    def is_allowed(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str = CLUSTER_NAME,
        *,
        logs: bool = True,
    ) -> bool:
        """Whether the session may do `operation` on the resource called `name`.

        Authorize a name before looking it up: the response to a denied name must not reveal
        whether it exists. A denial is logged, unless `logs` is False: for resources that the
        client did not name, and for rights that it may do without.
        """
        session = self.session
        authorizer = session.authorizer
        if authorizer.allows_all or authorizer.authorize(session, operation, resource_type, name):
            return True
        if logs:
            authorizer.log_denied(
                session,
                (operation, resource_type, name),
                request_name=API_INFO[ApiKey(self.api_key)].name,
                now_ms=self.received_ms,
            )
        return False

    def is_allowed_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether the session may do `operation` on some resource of that type."""
        session = self.session
        return session.authorizer.authorize_any(session, operation, resource_type)

    def allowed_operations(
        self, supported: int, resource_type: AclResourceType, name: str = CLUSTER_NAME
    ) -> int:
        """Those of `supported` that the session may do, as bits by operation code (KIP-430)."""
        if self.session.authorizer.allows_all:
            return supported
        return sum(
            1 << operation
            for operation in AclOperation
            if supported >> operation & 1
            and self.is_allowed(operation, resource_type, name, logs=False)
        )

    def refuse_pipelined_after(self, what: Hashable, error: KafkaError) -> None:
        """Refuse later requests about `what` until the response to this one has left.

        See `Connection.pipelined_refusals`.
        """
        refusals = self.connection.pipelined_refusals
        if len(refusals) >= REFUSALS_MAX:
            if EVERYTHING in refusals:
                return
            what = EVERYTHING
        refusals[what] = error
        if not self.refused:
            self.refused = []
        self.refused.append(what)

    @property
    def connection_id(self) -> str:
        """Names the connection in logs and member ids' hosts: `host:port-host:port-n`."""
        return str(self.connection)


def result_of(steps: "Generator[int, None, Result]") -> Result:
    """Do small work in one piece, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def refuse_at_top(response_class: type, request: Any, version: int, error: KafkaError) -> Any:
    """A response with `error` in its top-level `error_code` (and `error_message`)."""
    response = response_class()
    response.error_code = int(error.code)
    if error.detail and hasattr(response, "error_message"):
        response.error_message = error.detail
    return response


class NoResponseError(AttributeError):
    """Raised by `Api.refuse`: the request gets no response, so its connection is closed.

    An AttributeError, like that of a response without a field for errors, which dispatch treats
    the same way. Kafka's `getErrorResponse` returns null then.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """How one key is served.

    Attributes:
        key: the API key. handle: see the module docstring; reached by `call` only. authorize: the
        operations a session must be allowed (`authorization`). versions: lowest and highest served,
        both inclusive; None: all that Kafka 4.3 has stable. broker: served on broker listeners.
        controller: served on controller listeners. zookeeper: served on broker listeners in
        ZooKeeper mode; None: as `broker`. forward: a broker passes it to the active controller in
        an Envelope instead of handling it. zookeeper_forward: as `forward`, in ZooKeeper mode only,
        to the broker that is the controller.
        forward_by: how, if a broker checks or changes it first; None: unchanged.
        pipelined: a request's effects happen before `handle` returns, so the connection's next
            pipelined request may start while the first still waits (only Produce).
        fast: `(node, version, body, session) -> encoded response | awaitable of it | None`, tried
            before the body is decoded, and only for sessions that are `is_unhindered`; it asks
            their authorizer. None: not a common case, or denied: `handle` does it. Only for
            requests that come 100,000 times a second (Produce).
        dies_with_connection: a waiting response is cancelled when its client leaves (long polls).
        is_exempt_from_time: `request_percentage` does not limit it on the node that handles it,
            unless it is denied. Never does it limit what needs CLUSTER_ACTION (`request_time`).
        refuse: makes the response for a `KafkaError` of the whole request, or the steps to it;
            raises `NoResponseError` if no response is due. See `refuse_now`.
    """

    key: ApiKey
    handle: Handler
    authorize: Authorization
    versions: tuple[int, int] | None = None
    broker: bool = True
    controller: bool = False
    zookeeper: bool | None = None
    forward: bool = False
    zookeeper_forward: bool = False
    forward_by: Handler | None = None
    pipelined: bool = False
    fast: Callable[[Any, int, memoryview, Session], Any] | None = None
    dies_with_connection: bool = False
    is_exempt_from_time: bool = False
    refuse: Callable[[type, Any, int, KafkaError], Any] = refuse_at_top

    def call(self, node: Any, context: RequestContext, request: Any) -> Any:
        """Authorize the request as a whole, then handle it: the only way to a handler.

        Raises:
            KafkaError: see `check_request`, or what the handler raises.
        """
        if not context.session.authorizer.allows_all:
            check_request(self.authorize, context, request)
        return self.handle(node, context, request)

    def refuse_now(
        self, response_class: type, request: Any, version: int, error: KafkaError
    ) -> Any:
        """`refuse` in one piece: for requests that are not large."""
        refusal = self.refuse(response_class, request, version, error)
        return result_of(refusal) if isinstance(refusal, Generator) else refusal

    def is_served(self, *, controller_listener: bool, zookeeper: bool) -> bool:
        """Whether that kind of listener serves the key."""
        if controller_listener:
            return self.controller
        if zookeeper and self.zookeeper is not None:
            return self.zookeeper
        return self.broker

    @property
    def handler(self) -> Handler:
        """`call`, without its cost if there is nothing to authorize as a whole."""
        return self.call if request_rules(self.authorize) else self.handle

    def version_range(self) -> tuple[int, int]:
        """Lowest and highest version served, both inclusive."""
        if self.versions is not None:
            return self.versions
        info = API_INFO[self.key]
        newest = info.max_version - 1 if info.latest_version_unstable else info.max_version
        return info.kafka_4_min_version, newest


SERVED: dict[ApiKey, str] = {
    ApiKey.PRODUCE: "k00_produce",
    ApiKey.FETCH: "k01_fetch",
    ApiKey.LIST_OFFSETS: "k02_list_offsets",
    ApiKey.METADATA: "k03_metadata",
    ApiKey.LEADER_AND_ISR: "k04_leader_and_isr",
    ApiKey.STOP_REPLICA: "k05_stop_replica",
    ApiKey.UPDATE_METADATA: "k06_update_metadata",
    ApiKey.CONTROLLED_SHUTDOWN: "k07_controlled_shutdown",
    ApiKey.OFFSET_COMMIT: "k08_offset_commit",
    ApiKey.OFFSET_FETCH: "k09_offset_fetch",
    ApiKey.FIND_COORDINATOR: "k10_find_coordinator",
    ApiKey.JOIN_GROUP: "k11_join_group",
    ApiKey.HEARTBEAT: "k12_heartbeat",
    ApiKey.LEAVE_GROUP: "k13_leave_group",
    ApiKey.SYNC_GROUP: "k14_sync_group",
    ApiKey.DESCRIBE_GROUPS: "k15_describe_groups",
    ApiKey.LIST_GROUPS: "k16_list_groups",
    ApiKey.SASL_HANDSHAKE: "k17_sasl_handshake",
    ApiKey.API_VERSIONS: "k18_api_versions",
    ApiKey.CREATE_TOPICS: "k19_create_topics",
    ApiKey.DELETE_TOPICS: "k20_delete_topics",
    ApiKey.DELETE_RECORDS: "k21_delete_records",
    ApiKey.INIT_PRODUCER_ID: "k22_init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "k23_offset_for_leader_epoch",
    ApiKey.ADD_PARTITIONS_TO_TXN: "k24_add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "k25_add_offsets_to_txn",
    ApiKey.END_TXN: "k26_end_txn",
    ApiKey.WRITE_TXN_MARKERS: "k27_write_txn_markers",
    ApiKey.TXN_OFFSET_COMMIT: "k28_txn_offset_commit",
    ApiKey.DESCRIBE_ACLS: "k29_describe_acls",
    ApiKey.CREATE_ACLS: "k30_create_acls",
    ApiKey.DELETE_ACLS: "k31_delete_acls",
    ApiKey.DESCRIBE_CONFIGS: "k32_describe_configs",
    ApiKey.ALTER_CONFIGS: "k33_alter_configs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "k34_alter_replica_log_dirs",
    ApiKey.DESCRIBE_LOG_DIRS: "k35_describe_log_dirs",
    ApiKey.SASL_AUTHENTICATE: "k36_sasl_authenticate",
    ApiKey.CREATE_PARTITIONS: "k37_create_partitions",
    ApiKey.CREATE_DELEGATION_TOKEN: "k38_create_delegation_token",
    ApiKey.RENEW_DELEGATION_TOKEN: "k39_renew_delegation_token",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "k40_expire_delegation_token",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "k41_describe_delegation_token",
    ApiKey.DELETE_GROUPS: "k42_delete_groups",
    ApiKey.ELECT_LEADERS: "k43_elect_leaders",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "k44_incremental_alter_configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "k45_alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "k46_list_partition_reassignments",
    ApiKey.OFFSET_DELETE: "k47_offset_delete",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "k48_describe_client_quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "k49_alter_client_quotas",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "k50_describe_user_scram_credentials",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "k51_alter_user_scram_credentials",
    ApiKey.VOTE: "k52_vote",
    ApiKey.BEGIN_QUORUM_EPOCH: "k53_begin_quorum_epoch",
    ApiKey.END_QUORUM_EPOCH: "k54_end_quorum_epoch",
    ApiKey.DESCRIBE_QUORUM: "k55_describe_quorum",
    ApiKey.ALTER_PARTITION: "k56_alter_partition",
    ApiKey.UPDATE_FEATURES: "k57_update_features",
    ApiKey.ENVELOPE: "k58_envelope_zookeeper",
    ApiKey.FETCH_SNAPSHOT: "k59_fetch_snapshot",
    ApiKey.DESCRIBE_CLUSTER: "k60_describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "k61_describe_producers",
    ApiKey.BROKER_REGISTRATION: "k62_broker_registration",
    ApiKey.BROKER_HEARTBEAT: "k63_broker_heartbeat",
    ApiKey.UNREGISTER_BROKER: "k64_unregister_broker",
    ApiKey.DESCRIBE_TRANSACTIONS: "k65_describe_transactions",
    ApiKey.LIST_TRANSACTIONS: "k66_list_transactions",
    ApiKey.ALLOCATE_PRODUCER_IDS: "k67_allocate_producer_ids",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "k68_consumer_group_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "k69_consumer_group_describe",
    ApiKey.CONTROLLER_REGISTRATION: "k70_controller_registration",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "k71_get_telemetry_subscriptions",
    ApiKey.PUSH_TELEMETRY: "k72_push_telemetry",
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: "k73_assign_replicas_to_dirs",
    ApiKey.LIST_CONFIG_RESOURCES: "k74_list_config_resources",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "k75_describe_topic_partitions",
    ApiKey.ADD_RAFT_VOTER: "k80_add_raft_voter",
    ApiKey.REMOVE_RAFT_VOTER: "k81_remove_raft_voter",
    ApiKey.UPDATE_RAFT_VOTER: "k82_update_raft_voter",
    ApiKey.DESCRIBE_ELECTIONS: "k10000_describe_elections",
    ApiKey.RESIGN_CONTROLLER: "k10001_resign_controller",
    ApiKey.DESCRIBE_HISTORY: "k10002_describe_history",
    ApiKey.DESCRIBE_ISR_CHANGES: "k10003_describe_isr_changes",
    ApiKey.DESCRIBE_GROUP_DECISIONS: "k10004_describe_group_decisions",
    ApiKey.DESCRIBE_IMAGE: "k10005_describe_image",
    ApiKey.DESCRIBE_METADATA_LOG: "k10006_describe_metadata_log",
    ApiKey.DESCRIBE_CONTROLLER_DECISIONS: "k10007_describe_controller_decisions",
}
"""Key → file in this package. One line per key, sorted; its `API` has the listeners."""

SERVED_ON_CONTROLLER: dict[ApiKey, str] = {
    ApiKey.FETCH: "k01_fetch_raft",
    ApiKey.ENVELOPE: "k58_envelope",
}
"""Files of the controller listener that differ from the broker listener's."""

SERVED_IN_ZOOKEEPER_MODE: dict[ApiKey, str] = {
    ApiKey.WRITE_TXN_MARKERS: "k27_write_txn_markers_zookeeper",
    ApiKey.ALTER_PARTITION: "k56_alter_partition_zookeeper",
}
"""Files of the broker listener in ZooKeeper mode that differ from KRaft mode's."""


def load_api(key: ApiKey, *, controller_listener: bool, zookeeper: bool = False) -> Api | None:
    """The `Api` that serves `key` on that kind of listener; None if it is not served.

    Args:
        key: the API key.
        controller_listener: whether the listener is for controllers.
        zookeeper: whether the node is a broker in ZooKeeper mode.
    """
    module_name = SERVED.get(key)
    if controller_listener:
        module_name = SERVED_ON_CONTROLLER.get(key, module_name)
    elif zookeeper:
        module_name = SERVED_IN_ZOOKEEPER_MODE.get(key, module_name)
    if module_name is None:
        return None
    api: Api = import_module(f"sparkraft.server.api.{module_name}").API
    served = api.is_served(controller_listener=controller_listener, zookeeper=zookeeper)
    return api if served else None


def served_ranges(
    *, controller_listener: bool, zookeeper: bool = False
) -> list[tuple[int, int, int]]:
    """Key, lowest and highest version that ApiVersions advertises, by key."""
    kind = controller_listener, zookeeper
    known = _RANGES.get(kind)
    if known is None:
        apis = served_apis(controller_listener=controller_listener, zookeeper=zookeeper)
        known = [_advertised(api) for api in apis if not API_INFO[api.key].is_own]
        _RANGES[kind] = known
    return known


_RANGES: dict[tuple[bool, bool], list[tuple[int, int, int]]] = {}


def forwarded_keys(*, zookeeper: bool) -> frozenset[int]:
    """The keys that a broker forwards to the controller."""
    known = _FORWARDED.get(zookeeper)
    if known is None:
        apis = served_apis(controller_listener=False, zookeeper=zookeeper)
        known = _FORWARDED[zookeeper] = frozenset(int(api.key) for api in apis if api.forward)
    return known


_FORWARDED: dict[bool, frozenset[int]] = {}


def _advertised(api: Api) -> tuple[int, int, int]:
    lowest, highest = api.version_range()
    if api.key == ApiKey.PRODUCE:
        lowest = 0  # KAFKA-18659: librdkafka disables compression if it does not see v0
    return int(api.key), lowest, highest


def served_apis(*, controller_listener: bool, zookeeper: bool = False) -> list[Api]:
    """Every `Api` of that kind of listener, by key; loads all their files."""
    keys = sorted({*SERVED, *SERVED_ON_CONTROLLER})
    found = (
        load_api(key, controller_listener=controller_listener, zookeeper=zookeeper) for key in keys
    )
    return [api for api in found if api is not None]

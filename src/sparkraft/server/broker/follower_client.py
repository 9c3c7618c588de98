"""The requests this broker sends to the leaders it follows: Fetch and ListOffsets.

Each contains the replica id and, from Fetch v15 on, the broker epoch, so that a leader can reject
an earlier incarnation of the broker (KIP-903).
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k01_fetch import FetchRequest, ReplicaState
from sparkraft.server.sasl_config import inter_broker_login

if TYPE_CHECKING:
    from sparkraft.client.connection import Connection
    from sparkraft.server.broker.broker_epoch import BrokerEpoch
    from sparkraft.server.broker.metadata_cache import MetadataCache
    from sparkraft.server.config import NodeConfig
    from sparkraft.tls.dialing import Connect

REPLICA_STATE_VERSION = 15
"""First Fetch version in which a follower sends its broker epoch (KIP-903)."""

_FETCH_VERSIONS = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14), (0, 13))
"""(lowest metadata.version, Fetch version): Kafka's `MetadataVersion.fetchRequestVersion`."""

_LIST_OFFSETS_VERSIONS = ((29, 11), (25, 10), (21, 9), (9, 8), (0, 7))


def fetch_version(metadata_version: int) -> int:
    """The Fetch version that every broker of a cluster at this metadata.version supports."""
    return next(v for level, v in _FETCH_VERSIONS if metadata_version >= level)


def list_offsets_version(metadata_version: int) -> int:
    """The same for ListOffsets."""
    return next(v for level, v in _LIST_OFFSETS_VERSIONS if metadata_version >= level)


class FollowerClient:
    """See the module docstring."""

    def __init__(
        self,
        config: "NodeConfig",
        connect: "Connect",
        metadata: "MetadataCache",
        broker_epoch: "BrokerEpoch",
    ) -> None:
        self._connect = connect
        self._node_id = config.node_id
        self._listener = config.inter_broker_listener_name
        self._login = inter_broker_login(config)
        self._timeout_ms = config.number("replica.socket.timeout.ms")
        self._metadata = metadata
        self._broker_epoch = broker_epoch

    @property
    def is_registered(self) -> bool:
        """Whether the broker has its epoch; until then it may not fetch."""
        return self._broker_epoch.is_known

    async def connect(self, leader_id: int, purpose: str) -> "Connection":
        """Connect to another broker; `purpose` becomes part of the client id.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE if the image has no endpoint for it, and as `open`.
        """
        from sparkraft.client.connection import Connection

        registration = self._metadata.image.brokers.get(leader_id)
        endpoint = None if registration is None else registration.endpoint(self._listener)
        if endpoint is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {leader_id} has no {self._listener}"
            )
        return await Connection.open(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{self._node_id}-{purpose}",
            timeout_ms=self._timeout_ms,
            connect=self._connect,
            login=self._login,
        )

    async def fetch(self, connection: "Connection", request: FetchRequest) -> Any:
        """Send a Fetch as this follower; the request's replica fields are filled in here."""
        highest = fetch_version(self._metadata.image.metadata_version)
        version = connection.version_for(ApiKey.FETCH, at_most=highest)
        if version >= REPLICA_STATE_VERSION:
            request.replica_state = ReplicaState(
                replica_id=self._node_id, replica_epoch=self._broker_epoch.value
            )
        else:
            request.replica_id = self._node_id
        return await connection.send(request, version=version, timeout_ms=self._timeout_ms)

    async def list_offsets(self, connection: "Connection", topics: list[Any]) -> Any:
        """Send a ListOffsets as this follower.

        Args:
            connection: to the leader.
            topics: of `ListOffsetsTopic`.
        """
        from sparkraft.protocol.messages.k02_list_offsets import ListOffsetsRequest

        request = ListOffsetsRequest(
            replica_id=self._node_id, topics=topics, timeout_ms=self._timeout_ms
        )
        highest = list_offsets_version(self._metadata.image.metadata_version)
        version = connection.version_for(ApiKey.LIST_OFFSETS, at_most=highest)
        return await connection.send(request, version=version, timeout_ms=self._timeout_ms)

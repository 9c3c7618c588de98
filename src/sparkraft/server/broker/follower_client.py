"""The requests this broker sends to the leaders it follows.

Fetch, ListOffsets and, if the responses to Fetch do not show that logs diverge,
OffsetForLeaderEpoch (`RemoteLeaderEndPoint`). Each contains the replica id and, from Fetch v15 on,
the broker epoch, so that a leader can reject an earlier incarnation of the broker (KIP-903).
"""

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.loop_work import LoopBound
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.codec import encode_arrays
from sparkraft.protocol.messages.k01_fetch import FetchRequest, ReplicaState
from sparkraft.server.broker.inter_broker_versions import TOPIC_IDS_VERSION
from sparkraft.server.sasl_config import inter_broker_login

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkraft.client.connection import Connection
    from sparkraft.server.broker.broker_epoch import BrokerEpoch
    from sparkraft.server.broker.inter_broker_versions import InterBrokerVersions
    from sparkraft.server.broker.metadata_cache import MetadataCache
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.loop_turns import Turn
    from sparkraft.tls.dialing import Connect

TOPICS_ENCODED_WHOLE: LoopBound = 500
"""A Fetch with more topics is encoded in slices: a fetcher may have thousands of partitions."""

REPLICA_STATE_VERSION = 15
"""First Fetch version in which a follower sends its broker epoch (KIP-903)."""


class FollowerClient:
    """See the module docstring."""

    def __init__(
        self,
        config: "NodeConfig",
        connect: "Connect",
        metadata: "MetadataCache",
        broker_epoch: "BrokerEpoch",
        versions: "Callable[[], InterBrokerVersions]",
        turn: "Callable[[], Turn]",
    ) -> None:
        """Connect to nothing yet.

        Args:
            config: static configs of this node.
            connect: opens connections to the inter-broker listeners of other nodes.
            metadata: has the endpoints of brokers.
            broker_epoch: of this broker.
            versions: the highest versions that all brokers of the cluster support now.
            turn: begins long work on the event loop.
        """
        self.turn = turn
        self._connect = connect
        self._node_id = config.node_id
        self._listener = config.inter_broker_listener_name
        self._login = inter_broker_login(config)
        self._timeout_ms = config.number("replica.socket.timeout.ms")
        self._metadata = metadata
        self._broker_epoch = broker_epoch
        self._versions = versions

    @property
    def truncates_on_fetch(self) -> bool:
        """Whether the response to a Fetch shows that logs diverge (KIP-595)."""
        return self._versions().truncates_on_fetch

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

    async def fetch(
        self, connection: "Connection", request: FetchRequest, *, by_id: bool = True
    ) -> Any:
        """Send a Fetch as this follower; the request's replica fields are filled in here.

        Args:
            connection: to the leader.
            request: names topics by id and by name.
            by_id: whether all topics of the fetch session have an id; else only names are sent.
        """
        highest = self._versions().fetch
        if not by_id:
            highest = min(highest, TOPIC_IDS_VERSION - 1)
        version = connection.version_for(ApiKey.FETCH, at_most=highest)
        if version >= REPLICA_STATE_VERSION:
            request.replica_state = ReplicaState(
                replica_id=self._node_id, replica_epoch=self._broker_epoch.value
            )
        else:
            request.replica_id = self._node_id
        if len(request.topics) > TOPICS_ENCODED_WHOLE:
            request = await self.turn().carry_out(encode_arrays(request, version))
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
        highest = self._versions().list_offsets
        version = connection.version_for(ApiKey.LIST_OFFSETS, at_most=highest)
        return await connection.send(request, version=version, timeout_ms=self._timeout_ms)

    async def ends_of_epochs(self, connection: "Connection", topics: list[Any]) -> Any:
        """Send an OffsetForLeaderEpoch as this follower.

        Args:
            connection: to the leader.
            topics: of `OffsetForLeaderTopic`.
        """
        from sparkraft.protocol.messages.k23_offset_for_leader_epoch import (
            OffsetForLeaderEpochRequest,
        )

        request = OffsetForLeaderEpochRequest(replica_id=self._node_id, topics=topics)
        highest = self._versions().offset_for_leader_epoch
        version = connection.version_for(ApiKey.OFFSET_FOR_LEADER_EPOCH, at_most=highest)
        return await connection.send(request, version=version, timeout_ms=self._timeout_ms)

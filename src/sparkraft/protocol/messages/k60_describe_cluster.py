"""DescribeCluster (key 60): v0-2, flexible from v0.

KIP-700.
"""

from sparkraft.protocol.declare import Message, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Message, key=60, versions="0-2", flexible="0+"):
    """Asks for brokers, or from v1 controllers (KIP-919), and the cluster's id.

    v2 fenced brokers too (KIP-1073).
    """

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Message):
    """A node: `DescribeClusterResponse.brokers`."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=True, default=None)
    is_fenced: bool = boolean("2+")


class DescribeClusterResponse(Message, key=60, versions="0-2", flexible="0+"):
    """The nodes with their addresses."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True, default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-0x80000000)

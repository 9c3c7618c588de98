"""ListConfigResources (key 74): v0-1, flexible from v0."""

from sparkraft.protocol.declare import Message, array, int8, int8s, int16, int32, string


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    """Asks for names of configuration resources.

    V0 metrics subscriptions only (KIP-714), v1 any type (KIP-1142).
    """

    resource_types: list[int] = int8s("1+")


class ConfigResource(Message):
    """A resource: `ListConfigResourcesResponse.config_resources`."""

    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    """Type and name of each resource."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)

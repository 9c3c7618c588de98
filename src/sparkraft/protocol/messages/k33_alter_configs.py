"""AlterConfigs (key 33): v0-2, flexible from v2."""

from sparkraft.protocol.declare import Message, array, boolean, int8, int16, int32, secret, string


class AlterableConfig(Message):
    """A name and a value: `AlterConfigsRequest.resources.configs`."""

    name: str = string()
    value: str | None = secret(string(nullable=True))


class AlterConfigsResource(Message):
    """A resource and its values: `AlterConfigsRequest.resources`."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, key=33, versions="0-2", flexible="2+"):
    """Replaces the whole configuration of resources.

    A config that is not named returns to its default (KIP-133).
    """

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Message):
    """Result for a resource: `AlterConfigsResponse.responses`."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, key=33, versions="0-2", flexible="2+"):
    """An error for each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

"""IncrementalAlterConfigs (key 44): v0-1, flexible from v1."""

from sparkraft.protocol.declare import Message, array, boolean, int8, int16, int32, secret, string


class AlterableConfig(Message):
    """A name and a value: `IncrementalAlterConfigsRequest.resources.configs`."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = secret(string(nullable=True))


class AlterConfigsResource(Message):
    """A resource and its values: `IncrementalAlterConfigsRequest.resources`."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, key=44, versions="0-1", flexible="1+"):
    """Sets, deletes, appends to and subtracts from single configuration values (KIP-339)."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Message):
    """Result for a resource: `IncrementalAlterConfigsResponse.responses`."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Message, key=44, versions="0-1", flexible="1+"):
    """An error for each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

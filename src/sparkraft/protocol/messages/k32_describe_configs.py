"""DescribeConfigs (key 32): v1-4, flexible from v4.

KIP-133.
"""

from sparkraft.protocol.declare import Message, array, boolean, int8, int16, int32, string, strings


class DescribeConfigsResource(Message):
    """A resource, and which of its keys: `DescribeConfigsRequest.resources`."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = strings(nullable=True)


class DescribeConfigsRequest(Message, key=32, versions="1-4", flexible="4+"):
    """Asks for the configuration of topics, brokers, groups or metrics subscriptions.

    v1 synonyms (KIP-226), v3 documentation (KIP-569).
    """

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Message):
    """A place where the value may be set: `DescribeConfigsResponse.results.configs.synonyms`."""

    name: str = string()
    value: str | None = string(nullable=True)
    source: int = int8()


class DescribeConfigsResourceResult(Message):
    """One configuration value: `DescribeConfigsResponse.results.configs`."""

    name: str = string()
    value: str | None = string(nullable=True)
    read_only: bool = boolean()
    config_source: int = int8(default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable=True, ignorable=True)


class DescribeConfigsResult(Message):
    """A resource and its values: `DescribeConfigsResponse.results`."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, key=32, versions="1-4", flexible="4+"):
    """Values with their sources; sensitive ones are null."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)

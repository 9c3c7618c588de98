"""ApiVersions (key 18): v0-4, flexible from v3.

v4 carries features whose range begins at 0 (KIP-1022).
"""

from sparkraft.protocol.declare import Message, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, key=18, versions="0-4", flexible="3+"):
    """Asks which requests a broker serves, and in which versions.

    The first request of a connection. v3 has the client's software name and version (KIP-511).
    """

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


class ApiVersion(Message):
    """The versions served of one key: `ApiVersionsResponse.api_keys`."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Message):
    """The levels of a feature this broker knows: `ApiVersionsResponse.supported_features`."""

    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Message):
    """The level of a feature in the cluster: `ApiVersionsResponse.finalized_features`."""

    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, key=18, versions="0-4", flexible="3+"):
    """Version ranges, and the feature levels of the cluster (KIP-584).

    Always sent with response header 0.
    """

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)

"""UpdateFeatures (key 57): v0-2, flexible from v0.

v1 may only validate; v2 is all or nothing (KIP-1022).
"""

from sparkraft.protocol.declare import Message, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Message):
    """A feature and its new level: `UpdateFeaturesRequest.feature_updates`."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, key=57, versions="0-2", flexible="0+"):
    """Raises or lowers feature levels (KIP-584)."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Message):
    """Result for a feature: `UpdateFeaturesResponse.results`."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


class UpdateFeaturesResponse(Message, key=57, versions="0-2", flexible="0+"):
    """An error for the whole; for each feature up to v1."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)

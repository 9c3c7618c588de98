"""UpdateFeatures (key 57): v0-2, flexible from v0."""

from sparkraft.protocol.declare import Message, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Message):
    """In `UpdateFeaturesRequest.feature_updates`."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, key=57, versions="0-2", flexible="0+"):
    """Asks for UpdateFeatures."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Message):
    """In `UpdateFeaturesResponse.results`."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


class UpdateFeaturesResponse(Message, key=57, versions="0-2", flexible="0+"):
    """Answers UpdateFeaturesRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)

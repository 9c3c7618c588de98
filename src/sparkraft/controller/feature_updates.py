"""Raising and lowering feature levels (KIP-584, KIP-778, KIP-1022).

A level must be supported by this controller, by every registered broker and by every voter. All
updates of a request happen or none. `kraft.version` is the quorum's own and not decided here.
"""

from collections.abc import Mapping

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.controller.call import Call
from sparkraft.controller.configs import MIN_ISR
from sparkraft.controller.decision import Decision, VersionedRecord
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.metadata import features
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages import k57_update_features as k57
from sparkraft.protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


def update_features(context: DecisionContext, call: Call[k57.UpdateFeaturesRequest]) -> Decision:
    """Decide an UpdateFeatures request."""
    request = call.request
    updates = {u.feature: u.max_version_level for u in request.feature_updates}
    proposed = {**context.image.features, **updates}
    records: list[VersionedRecord] = []
    if len(updates) != len(request.feature_updates):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate feature in the request.")
    for update in request.feature_updates:
        kind = update.upgrade_type
        if call.version == 0:
            # Then there was one kind of downgrade, and it took the risk.
            kind = UNSAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
        _check(context, update.feature, update.max_version_level, kind, proposed)
        record = FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)
        records.append((record, 0))
    if updates.get(features.ELR_VERSION, 0) > 0 and not context.elr_enabled:
        records += elr_safety_records(context)
    response = k57.UpdateFeaturesResponse(error_message=None)
    if call.version < 2:  # noqa: PLR2004 (results per feature went away with version 2)
        response.results = [
            k57.UpdatableFeatureResult(feature=name, error_message="NONE") for name in updates
        ]
    return Decision(records=() if request.validate_only else tuple(records), response=response)


def elr_safety_records(context: DecisionContext) -> list[VersionedRecord]:
    """Make ELR safe to enable: set one min.insync.replicas for the cluster, none per broker."""
    records: list[VersionedRecord] = []
    if MIN_ISR not in context.image.config(ResourceType.BROKER, ""):
        records.append(cluster_min_isr_record(context.config.static_configs))
    for kind, name in sorted(context.image.configs):
        if kind == ResourceType.BROKER and name and MIN_ISR in context.image.config(kind, name):
            record = ConfigRecord(resource_type=kind, resource_name=name, name=MIN_ISR, value=None)
            records.append((record, 0))
    return records


def cluster_min_isr_record(static_configs: Mapping[str, str]) -> VersionedRecord:
    """Set the cluster-level min.insync.replicas to that of this controller's file."""
    record = ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name="",
        name=MIN_ISR,
        value=static_configs.get(MIN_ISR, "1"),
    )
    return record, 0


def _check(
    context: DecisionContext, name: str, level: int, kind: int, proposed: Mapping[str, int]
) -> None:
    wrong = _why_refused(context, name, level, kind, proposed)
    if wrong is not None:
        message = f"Invalid update version {level} for feature {name}. {wrong}"
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
    if name == features.METADATA_VERSION:
        _check_keeps_metadata(level, context.metadata_level, kind)


def _why_refused(
    context: DecisionContext, name: str, level: int, kind: int, proposed: Mapping[str, int]
) -> str | None:
    if kind not in {UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE}:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if context.image.is_migrating:
        return "Unable to modify features while a ZK migration is in progress."
    if name == features.KRAFT_VERSION:
        return "kraft.version can't be changed while the cluster runs."
    return (
        _unsupported(context, name, level)
        or _wrong_direction(level, context.image.features.get(name, 0), kind)
        or _missing_dependency(name, level, proposed)
    )


def _wrong_direction(level: int, current: int, kind: int) -> str | None:
    if level < current and kind == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if level > current and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _check_keeps_metadata(level: int, current: int, kind: int) -> None:
    """Reject a downgrade of metadata.version that loses records: Kafka's text, and what to do."""
    if level >= current or not features.metadata_changed_between(level, current):
        return
    why = (
        "Refusing to perform the requested downgrade because it might delete metadata information."
    )
    if kind == UNSAFE_DOWNGRADE:
        why = "Unsafe metadata downgrade is not supported in this version."
    lowest = features.lowest_lossless_downgrade(current)
    old, new = features.name_of(current), features.name_of(level)
    raise KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Unsupported metadata.version downgrade from {current} to {level}. {why} "
        f"Level {current} is {old}, level {level} is {new}; the lowest level without loss is "
        f"{lowest} ({features.name_of(lowest)}). To run {new}, format a new cluster with "
        f"`sparkraft storage format --release-version {new}` and copy the topics to it.",
    )


def _missing_dependency(name: str, level: int, proposed: Mapping[str, int]) -> str | None:
    for needed, at_least in features.FEATURE_DEPENDENCIES.get((name, level), {}).items():
        if proposed.get(needed, 0) < at_least:
            return f"It needs {needed} at level {at_least} or higher."
    return None


def _unsupported(context: DecisionContext, name: str, level: int) -> str | None:
    supported: list[tuple[str, Mapping[str, tuple[int, int]]]] = [
        (f"Local controller {context.config.node_id}", features.SUPPORTED_FEATURES)
    ]
    image = context.image
    supported += [
        (f"Broker {broker_id}", image.brokers[broker_id].supported_features)
        for broker_id in sorted(image.brokers)
    ]
    if context.metadata_level >= features.CONTROLLER_REGISTRATION_LEVEL:
        others = [node for node in sorted(image.controllers) if node != context.config.node_id]
        supported += [(f"Controller {n}", image.controllers[n].supported_features) for n in others]
        for voter in context.config.voter_ids:
            if voter != context.config.node_id and voter not in image.controllers:
                return f"controller {voter} has not registered, and may not support this feature"
    for who, ranges in supported:
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            what = f"versions {low}-{high}" if name in ranges else "no version of this feature"
            return f"{who} only supports {what}"
    return None

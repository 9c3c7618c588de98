"""A new controller's first records: bootstrap of an empty log, or the end of an open transaction.

A new metadata log starts with BeginTransaction, the bootstrap records (features first), a
cluster-level min.insync.replicas if ELR is enabled, and EndTransaction (KIP-868). A controller that
stops before the end leaves an open transaction; the next one aborts it and starts over.
"""

from collections.abc import Mapping, Sequence

from sparkraft.controller.decision import Decision, VersionedRecord
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.controller.feature_updates import cluster_min_isr_record
from sparkraft.metadata import features
from sparkraft.metadata.image import MigrationState
from sparkraft.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    ZkMigrationStateRecord,
)

BOOTSTRAP_NAME = "Bootstrap records"
ABORT_REASON = "Controller failover"


MIGRATION_LEVEL_MAX = 21
"""metadata.version of Kafka 3.9, the last with ZooKeeper."""


class MigrationRefusedError(Exception):
    """zookeeper.metadata.migration.enable is set for a metadata log that cannot have it."""


def check_levels(levels: Mapping[str, int]) -> None:
    """Check the feature levels of a new metadata log that a cluster shall be migrated to.

    They must be those of brokers in ZooKeeper mode: metadata.version from 3.6-IV1, the first with
    the transaction in which everything is copied, to 3.9-IV0, and no other feature.

    Raises:
        MigrationRefusedError: they are not.
    """
    level = levels.get(features.METADATA_VERSION, 0)
    others = sorted(name for name in levels if name != features.METADATA_VERSION and levels[name])
    lowest = features.name_of(features.TRANSACTION_RECORDS_LEVEL)
    highest = features.name_of(MIGRATION_LEVEL_MAX)
    if not features.TRANSACTION_RECORDS_LEVEL <= level <= MIGRATION_LEVEL_MAX:
        found = features.name_of(level)
        raise MigrationRefusedError(
            f"a migration from ZooKeeper needs a metadata.version from {lowest} to {highest}, and "
            f"this controller was formatted with {found}; format it with --release-version 3.9-IV0"
        )
    if others:
        raise MigrationRefusedError(
            f"a migration from ZooKeeper needs a log without the features {', '.join(others)}"
        )


def _migration_records(context: DecisionContext) -> list[VersionedRecord]:
    """Finalize a migration after its config was removed (`ActivationRecordsGenerator`).

    Raises:
        MigrationRefusedError: it is configured for a cluster that began without ZooKeeper.
    """
    state, is_enabled = context.image.migration, context.config.migration_enabled
    if is_enabled and state == MigrationState.NONE:
        raise MigrationRefusedError(
            "zookeeper.metadata.migration.enable=true, but this cluster was created in KRaft mode"
        )
    if not is_enabled and state == MigrationState.MIGRATION:
        record = ZkMigrationStateRecord(zk_migration_state=MigrationState.POST_MIGRATION)
        return [(record, 0)]
    return []


def default_bootstrap() -> list[VersionedRecord]:
    """Bootstrap records for a log that was formatted without any: the default feature levels."""
    return [
        (FeatureLevelRecord(name=name, feature_level=level), 0)
        for name, level in features.DEFAULT_FINALIZED.items()
    ]


def activation_records(
    context: DecisionContext, bootstrap: Sequence[VersionedRecord], *, in_transaction: bool
) -> Decision:
    """Decide the records that a new active controller writes first.

    Args:
        context: the image before any open transaction; without features if the log is new.
        bootstrap: records of bootstrap.checkpoint, metadata.version among them.
        in_transaction: a predecessor left a transaction open.
    """
    aborted: list[VersionedRecord] = []
    if in_transaction:
        aborted.append((AbortTransactionRecord(reason=ABORT_REASON), 0))
    if context.metadata_level:
        return Decision(records=(*aborted, *_migration_records(context)))
    levels = {
        record.name: record.feature_level
        for record, _ in bootstrap
        if isinstance(record, FeatureLevelRecord)
    }
    records = list(bootstrap)
    if levels.get(features.ELR_VERSION, 0) > 0:
        records.append(cluster_min_isr_record(context.config.static_configs))
    if context.config.migration_enabled:
        check_levels(levels)
        records.append((ZkMigrationStateRecord(zk_migration_state=MigrationState.PRE_MIGRATION), 0))
    if levels.get(features.METADATA_VERSION, 0) < features.TRANSACTION_RECORDS_LEVEL:
        return Decision(records=(*aborted, *records))
    begin: VersionedRecord = (BeginTransactionRecord(name=BOOTSTRAP_NAME), 0)
    end: VersionedRecord = (EndTransactionRecord(), 0)
    return Decision(records=(*aborted, begin, *records, end), atomic=False)

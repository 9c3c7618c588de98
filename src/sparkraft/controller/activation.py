"""A new controller's first records: bootstrap of an empty log, or the end of an open transaction.

A new metadata log starts with BeginTransaction, the bootstrap records (features first), a
cluster-level min.insync.replicas if ELR is enabled, and EndTransaction (KIP-868). A controller that
stops before the end leaves an open transaction; the next one aborts it and starts over.
"""

from collections.abc import Sequence

from sparkraft.controller.decision import Decision, VersionedRecord
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.controller.feature_updates import cluster_min_isr_record
from sparkraft.metadata import features
from sparkraft.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

BOOTSTRAP_NAME = "Bootstrap records"
ABORT_REASON = "Controller failover"


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
        return Decision(records=tuple(aborted))
    levels = {
        record.name: record.feature_level
        for record, _ in bootstrap
        if isinstance(record, FeatureLevelRecord)
    }
    records = list(bootstrap)
    if levels.get(features.ELR_VERSION, 0) > 0:
        records.append(cluster_min_isr_record(context.config.static_configs))
    if levels.get(features.METADATA_VERSION, 0) < features.TRANSACTION_RECORDS_LEVEL:
        return Decision(records=(*aborted, *records))
    begin: VersionedRecord = (BeginTransactionRecord(name=BOOTSTRAP_NAME), 0)
    end: VersionedRecord = (EndTransactionRecord(), 0)
    return Decision(records=(*aborted, begin, *records, end), atomic=False)

"""A check that partitions belong to a producer's open transaction (KIP-890)."""

from enum import Enum
from typing import NamedTuple

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import TopicPartition

PRODUCE_ADDS_FROM = 12
"""From this version of Produce on the leader adds a partition to the client's transaction."""


class CheckKind(Enum):
    """The kind of the request that is checked."""

    DEFAULT = "default"
    """Produce up to v10, TxnOffsetCommit up to v3: the client knows INVALID_TXN_STATE only."""
    ABORTABLE = "abortable"
    """Produce v11, TxnOffsetCommit v4: the client knows TRANSACTION_ABORTABLE."""
    ADD = "add"
    """Produce from v12, TxnOffsetCommit from v5: partitions that are not part are added."""


class NotVerifiedError(KafkaError):
    """The coordinator has not verified that a batch belongs to an open transaction."""


class AddPartitionsCheck(NamedTuple):
    """Whether partitions belong to a producer's open transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: list[TopicPartition]
    kind: CheckKind

    @property
    def adds(self) -> bool:
        """Whether partitions that do not belong to it are added."""
        return self.kind is CheckKind.ADD

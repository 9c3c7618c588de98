"""Configuration of the transaction coordinator, with Kafka's names and defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """The transaction settings of a broker, in milliseconds.

    Attributes:
        max_timeout_ms: `transaction.max.timeout.ms`.
        id_expiration_ms: `transactional.id.expiration.ms`.
        abort_interval_ms: between two searches for timed-out transactions.
        expiry_interval_ms: between two searches for expired ids.
    """

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expiry_interval_ms: int = 3_600_000

"""Configuration of the transaction coordinator, with Kafka's names and defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """The transaction settings of a broker, in milliseconds.

    Attributes:
        id_expiration_ms: `transactional.id.expiration.ms`.
        abort_interval_ms: between two searches for timed-out transactions.
        expiry_interval_ms: between two searches for expired ids.
    """

    id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expiry_interval_ms: int = 3_600_000

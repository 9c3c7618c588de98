"""How bad records are refused; each is a `KafkaError` that knows its code."""

from sparkraft.base.errors import ErrorCode, KafkaError


class CorruptRecords(KafkaError):  # noqa: N818 (named after Kafka's code)
    """CORRUPT_MESSAGE: a length, magic or CRC is wrong; sending again may help."""

    def __init__(self, detail: str) -> None:
        """Say what is wrong."""
        super().__init__(ErrorCode.CORRUPT_MESSAGE, detail)


class RefusedRecords(KafkaError):  # noqa: N818 (named after Kafka's code)
    """Records that are whole but break a rule; sending them again won't help.

    Args:
        code: INVALID_RECORD or INVALID_TIMESTAMP.
        detail: for the `error_message` of the partition.
        record_errors: (index in the batch, message) of each bad record, for `record_errors`.
    """

    def __init__(
        self,
        detail: str,
        record_errors: list[tuple[int, str]] | None = None,
        *,
        code: ErrorCode = ErrorCode.INVALID_RECORD,
    ) -> None:
        """Refuse the batch."""
        super().__init__(code, detail)
        self.record_errors = record_errors or []

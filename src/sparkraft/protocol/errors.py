"""Errors of encoding: our own mistakes, and values that a version cannot carry.

Bytes that cannot be decoded are `sparkraft.base.errors.DecodeError`.
"""


class EncodeError(ValueError):
    """A message that cannot be written.

    Args:
        reason: the error, in a sentence.
        path: the field, such as `topics[0].partition`.
    """

    def __init__(self, reason: str, *, path: str = "") -> None:
        """Describe what could not be written."""
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path


class UnsupportedFieldError(EncodeError):
    """A field has a value that this version cannot carry and may not drop."""


class UnsupportedVersionError(EncodeError):
    """The message has no such version."""

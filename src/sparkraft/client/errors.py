"""Errors of planned changes, and how the client's users read a `KafkaError`."""

from sparkraft.base.errors import ErrorCode, KafkaError


class PlanError(Exception):
    """A change cannot be planned or carried out; the message is for the person who wants it."""


def sentence_of(error: KafkaError) -> str:
    """The error as text: its detail, and its name for reference."""
    if error.code in {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT} and error.detail:
        return error.detail
    return f"{error.detail} ({error.code.name})" if error.detail else error.code.name

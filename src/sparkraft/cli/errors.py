"""Failures of commands: one sentence and an exit code."""

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError

FAILED = 1
USAGE = 2


class CommandError(Exception):
    """The command can't do what it was asked; the message is for the person who asked."""


class UsageError(Exception):
    """The command line is invalid; the message names the reason."""


def exit_code_and_sentence(command: str, error: Exception) -> tuple[int, str] | None:
    """How `command` reports `error`; None if it is a bug, which deserves its traceback."""
    where = f"sparkraft {command}"
    match error:
        case UsageError():
            return USAGE, f"{where}: {error}\n`{where} --help` lists the options"
        case CommandError():
            return FAILED, f"{where}: {error}"
        case KafkaError():
            return FAILED, f"{where}: {sentence_of(error)}"
        case DecodeError():
            return FAILED, f"{where}: bytes that are not Kafka's: {error}"
        case OSError() if error.filename is not None:
            return FAILED, f"{where}: {error.filename}: {error.strerror}"
        case _:
            return None


def sentence_of(error: KafkaError) -> str:
    """The error as text: its detail, and its name for reference."""
    if error.code in {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT} and error.detail:
        return error.detail
    return f"{error.detail} ({error.code.name})" if error.detail else error.code.name

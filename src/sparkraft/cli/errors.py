"""Failures of commands: one sentence and an exit code."""

from sparkraft.base.errors import DecodeError, KafkaError
from sparkraft.client.errors import PlanError, sentence_of
from sparkraft.zookeeper.znodes.json_form import ZnodeError

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
        case CommandError() | PlanError() | ZnodeError():
            return FAILED, f"{where}: {error}"
        case KafkaError():
            return FAILED, f"{where}: {sentence_of(error)}"
        case DecodeError():
            return FAILED, f"{where}: bytes that are not Kafka's: {error}"
        case OSError() if error.filename is not None:
            return FAILED, f"{where}: {error.filename}: {error.strerror}"
        case _:
            return None

"""Valid topic names."""

from sparkraft.base.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX = 249
"""A file name has at most 255 bytes; the partition number and `-delete` suffix need the rest."""

_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics of the brokers themselves; Metadata responses mark them as internal."""


def what_is_wrong(name: str) -> str | None:
    """The reason that a topic name is invalid, or None."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _ALLOWED.issuperset(name):
        return (
            f"'{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def check_topic_name(name: str) -> None:
    """Reject an invalid topic name.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION.
    """
    wrong = what_is_wrong(name)
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {wrong}")


def unify_collision_chars(name: str) -> str:
    """The name in metrics, which do not distinguish `.` from `_`."""
    return name.replace(".", "_")

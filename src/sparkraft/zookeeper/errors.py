"""ZooKeeper's error codes, and an exception class for each code that callers handle."""

from enum import IntEnum


class Code(IntEnum):
    """Error codes of replies (`KeeperException.Code`)."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


class ZooKeeperError(Exception):
    """A request failed.

    Attributes:
        code: the code of the reply; a plain number if this client does not know it.
        path: the znode, with its chroot removed; empty if the request has none.
    """

    def __init__(self, code: int, path: str = "") -> None:
        self.code = code
        self.path = path
        super().__init__(code, path)

    def __str__(self) -> str:
        known = self.code in Code.__members__.values()
        name = Code(self.code).name if known else f"error {self.code}"
        return f"ZooKeeper: {name} for {self.path}" if self.path else f"ZooKeeper: {name}"


class NoNodeError(ZooKeeperError):
    """The znode, or the parent of a znode to be created, does not exist."""


class NodeExistsError(ZooKeeperError):
    """The znode to be created exists."""


class BadVersionError(ZooKeeperError):
    """The znode has another version than the request expects."""


class NotEmptyError(ZooKeeperError):
    """The znode to be deleted has children."""


class ConnectionLossError(ZooKeeperError):
    """The connection was lost before the reply arrived; the request may have been applied."""


class SessionExpiredError(ZooKeeperError):
    """The session has ended: its ephemeral znodes and watches no longer exist."""


_CLASSES: dict[int, type[ZooKeeperError]] = {
    Code.NO_NODE: NoNodeError,
    Code.NODE_EXISTS: NodeExistsError,
    Code.BAD_VERSION: BadVersionError,
    Code.NOT_EMPTY: NotEmptyError,
    Code.CONNECTION_LOSS: ConnectionLossError,
    Code.SESSION_EXPIRED: SessionExpiredError,
}


def error_of(code: int, path: str = "") -> ZooKeeperError:
    """Return the exception for an error code."""
    return _CLASSES.get(code, ZooKeeperError)(code, path)


class MultiError(ZooKeeperError):
    """A transaction was not applied.

    Attributes:
        index: the operation that failed, from 0.
        codes: the code of each operation: 0 before `index`, -2 after it.
    """

    def __init__(self, codes: tuple[int, ...], path: str, index: int) -> None:
        super().__init__(codes[index], path)
        self.codes = codes
        self.index = index

"""ZooKeeper's tree of znodes as a pure state machine: transactions in, results and events out.

`Znodes.apply` does what the ensemble's leader does with one write. Every write takes the next zxid,
also one that fails. The state of a node counts the creations of children (`creations`); `Stat`
shows creations plus deletions, as ZooKeeper does, and the number of a sequential znode is the count
of creations before it.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sparkraft.zookeeper.errors import Code
from sparkraft.zookeeper.exchange import EventType, WatchEvent
from sparkraft.zookeeper.requests import (
    ANY_VERSION,
    OPEN_ACL,
    Acl,
    Check,
    Create,
    Delete,
    Multi,
    SetAcl,
    SetData,
    Stat,
)

Write = Create | Delete | SetData | SetAcl | Check


@dataclass(slots=True)
class Znode:
    """One node; zxids and times as in `Stat`."""

    data: bytes
    acl: tuple[Acl, ...]
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    owner: int
    version: int = 0
    acl_version: int = 0
    creations: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime=self.ctime,
            mtime=self.mtime,
            version=self.version,
            cversion=2 * self.creations - len(self.children),
            aversion=self.acl_version,
            ephemeral_owner=self.owner,
            data_length=len(self.data),
            num_children=len(self.children),
            pzxid=self.pzxid,
        )


class RefusedError(Exception):
    """A write that changes nothing; `code` is ZooKeeper's."""

    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.code = code


class Applied(NamedTuple):
    """A write's results, one for each operation, and the events for watchers in order."""

    results: list[object]
    events: list[WatchEvent]


class MultiRefusedError(Exception):
    """A transaction that changes nothing; one code for each operation."""

    def __init__(self, codes: tuple[int, ...]) -> None:
        super().__init__(codes)
        self.codes = codes


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def is_path(path: str) -> bool:
    """Whether `path` is absolute, without empty names and without a trailing slash."""
    return path == "/" or (path.startswith("/") and "" not in path[1:].split("/"))


class Znodes:
    """The tree that all servers of an ensemble agree on."""

    def __init__(self) -> None:
        self.zxid = 0
        """Of the last write."""
        self._nodes = {"/": Znode(b"", OPEN_ACL, 0, 0, 0, 0, 0, 0)}

    def get(self, path: str) -> Znode:
        """Return a node.

        Raises:
            RefusedError: NO_NODE.
        """
        found = self._nodes.get(path)
        if found is None:
            raise RefusedError(Code.NO_NODE)
        return found

    def next_zxid(self) -> int:
        """Take the zxid of a write that changes no node: the start of a session."""
        self.zxid += 1
        return self.zxid

    def apply(self, write: Write, session_id: int, now_ms: int) -> Applied:
        """Apply one write.

        Raises:
            RefusedError: nothing was changed.
        """
        self.next_zxid()
        events: list[WatchEvent] = []
        return Applied([self._apply(write, session_id, now_ms, events)], events)

    def apply_multi(self, multi: Multi, session_id: int, now_ms: int) -> Applied:
        """Apply all writes of a transaction with one zxid, or none.

        Raises:
            MultiRefusedError: nothing was changed.
        """
        self.next_zxid()
        before = dict(self._nodes)
        results: list[object] = []
        events: list[WatchEvent] = []
        for index, write in enumerate(multi.operations):
            try:
                self._copy_on_write(write)
                results.append(self._apply(write, session_id, now_ms, events))
            except RefusedError as refused:
                self._nodes = before
                later = [int(Code.RUNTIME_INCONSISTENCY)] * (len(multi.operations) - index - 1)
                raise MultiRefusedError((*[0] * index, int(refused.code), *later)) from refused
        return Applied(results, events)

    def end_session(self, session_id: int) -> list[WatchEvent]:
        """Delete the ephemeral znodes of a session with one zxid; return the events."""
        self.next_zxid()
        owned = sorted(path for path, node in self._nodes.items() if node.owner == session_id)
        events: list[WatchEvent] = []
        for path in owned:
            self._delete(path, events)
        return events

    def _copy_on_write(self, write: Write) -> None:
        """Copy the nodes that `write` may change, so that a failed transaction leaves them."""
        for path in (write.path, parent_of(write.path)):
            if path in self._nodes:
                node = self._nodes[path]
                self._nodes[path] = replace(node, children=set(node.children))

    def _apply(
        self, write: Write, session_id: int, now_ms: int, events: list[WatchEvent]
    ) -> object:
        if not is_path(write.path) and not isinstance(write, Create | Delete):
            raise RefusedError(Code.BAD_ARGUMENTS)  # a path to delete is only looked up
        match write:
            case Create():
                return self._create(write, session_id, now_ms, events)
            case Delete():
                self._check_version(self.get(write.path).version, write.version)
                if write.path == "/":
                    raise RefusedError(Code.BAD_ARGUMENTS)
                if self.get(write.path).children:
                    raise RefusedError(Code.NOT_EMPTY)
                self._delete(write.path, events)
                return None
            case SetData():
                return self._set_data(write, now_ms, events)
            case SetAcl():
                node = self.get(write.path)
                self._check_version(node.acl_version, write.version)
                node.acl = write.acl
                node.acl_version += 1
                return node.stat()
            case Check():
                self._check_version(self.get(write.path).version, write.version)
                return None

    @staticmethod
    def _check_version(actual: int, expected: int) -> None:
        if expected not in (ANY_VERSION, actual):
            raise RefusedError(Code.BAD_VERSION)

    def _create(self, write: Create, session_id: int, now_ms: int, events: list[WatchEvent]) -> str:
        parent_path = parent_of(write.path)
        parent = self.get(parent_path)
        path = f"{write.path}{parent.creations:010d}" if write.sequential else write.path
        if not is_path(path):
            raise RefusedError(Code.BAD_ARGUMENTS)
        if path in self._nodes:
            raise RefusedError(Code.NODE_EXISTS)
        if parent.owner:
            raise RefusedError(Code.NO_CHILDREN_FOR_EPHEMERALS)
        owner = session_id if write.ephemeral else 0
        acl = OPEN_ACL if write.acl is None else write.acl
        self._nodes[path] = Znode(
            write.data or b"", acl, self.zxid, self.zxid, self.zxid, now_ms, now_ms, owner
        )
        parent.children.add(path.rpartition("/")[2])
        parent.creations += 1
        parent.pzxid = self.zxid
        events.append(WatchEvent(EventType.NODE_CREATED, path))
        events.append(WatchEvent(EventType.NODE_CHILDREN_CHANGED, parent_path))
        return path

    def _set_data(self, write: SetData, now_ms: int, events: list[WatchEvent]) -> Stat:
        node = self.get(write.path)
        self._check_version(node.version, write.version)
        node.data = write.data
        node.version += 1
        node.mzxid = self.zxid
        node.mtime = now_ms
        events.append(WatchEvent(EventType.NODE_DATA_CHANGED, write.path))
        return node.stat()

    def _delete(self, path: str, events: list[WatchEvent]) -> None:
        del self._nodes[path]
        parent_path = parent_of(path)
        parent = self.get(parent_path)
        parent.children.discard(path.rpartition("/")[2])
        parent.pzxid = self.zxid
        events.append(WatchEvent(EventType.NODE_DELETED, path))
        events.append(WatchEvent(EventType.NODE_CHILDREN_CHANGED, parent_path))

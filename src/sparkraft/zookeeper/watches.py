"""The watches of a session: one-shot, kept by the client so that a reconnect can set them again.

request with a watch      table it goes into
Exists of an absent node  exist: fires when the node is created
Exists, GetData           data: fires when it is deleted or gets other data
GetChildren               child: fires when a child is created or deleted, or the node is
"""

from collections.abc import Iterator

from sparkraft.zookeeper.errors import Code
from sparkraft.zookeeper.exchange import EventType, WatchEvent
from sparkraft.zookeeper.requests import Exists, GetChildren, GetData, Request, SetWatches

SET_WATCHES_BYTES_MAX = 128 * 1024
"""ZooKeeper's own bound of one SetWatches request; more watches take several."""

_PATH_OVERHEAD = 4


class Watches:
    """Paths watched by a session; no chroot in them."""

    def __init__(self) -> None:
        self._data: set[str] = set()
        self._exist: set[str] = set()
        self._child: set[str] = set()

    def add(self, request: Request, code: int) -> None:
        """Record the watch that `request` has set; `code` is the code of its reply.

        Only `Exists` can watch an absent znode.
        """
        match request:
            case Exists(path=path, watch=True) if code == Code.NO_NODE:
                self._exist.add(path)
            case Exists(path=path, watch=True) | GetData(path=path, watch=True) if code == Code.OK:
                self._data.add(path)
            case GetChildren(path=path, watch=True) if code == Code.OK:
                self._child.add(path)

    def on_event(self, event: WatchEvent) -> None:
        """Remove the watches that fired."""
        match event.type:
            case EventType.NODE_CREATED | EventType.NODE_DATA_CHANGED:
                self._data.discard(event.path)
                self._exist.discard(event.path)
            case EventType.NODE_CHILDREN_CHANGED:
                self._child.discard(event.path)
            case EventType.NODE_DELETED:
                self._data.discard(event.path)
                self._exist.discard(event.path)
                self._child.discard(event.path)

    def clear(self) -> None:
        """Forget all: the session has ended."""
        for paths in (self._data, self._exist, self._child):
            paths.clear()

    def renewals(self, zxid: int) -> Iterator[SetWatches]:
        """Requests that set all watches again, each of at most 128 KiB."""
        lists: tuple[list[str], list[str], list[str]] = ([], [], [])
        size = 0
        for index, paths in enumerate((self._data, self._exist, self._child)):
            for path in sorted(paths):
                size += len(path.encode()) + _PATH_OVERHEAD
                if size > SET_WATCHES_BYTES_MAX and any(lists):
                    yield SetWatches(zxid=zxid, data=lists[0], exist=lists[1], child=lists[2])
                    lists, size = ([], [], []), len(path.encode()) + _PATH_OVERHEAD
                lists[index].append(path)
        if any(lists):
            yield SetWatches(zxid=zxid, data=lists[0], exist=lists[1], child=lists[2])

"""The znodes of a cluster as they were read: data, versions and children."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from sparkraft.zookeeper.znodes import tree as codecs
from sparkraft.zookeeper.znodes.json_form import ZnodeError


class Znode(NamedTuple):
    """A znode's data and the number of its changes."""

    data: bytes
    version: int


class ZnodeTree:
    """Znodes by path."""

    def __init__(self) -> None:
        self._znodes: dict[str, Znode] = {}
        self._children: dict[str, list[str]] = {}

    def __contains__(self, path: str) -> bool:
        """Whether the znode exists."""
        return path in self._znodes

    def __iter__(self) -> Iterator[str]:
        """Every path, sorted."""
        return iter(sorted(self._znodes))

    def __len__(self) -> int:
        """The number of znodes."""
        return len(self._znodes)

    def add(self, path: str, data: bytes, version: int) -> None:
        """Add a znode; each path once."""
        self._znodes[path] = Znode(data, version)
        parent, _, name = path.rpartition("/")
        self._children.setdefault(parent, []).append(name)

    def children(self, path: str) -> list[str]:
        """The names below a znode, sorted; none if it does not exist."""
        return sorted(self._children.get(path, ()))

    def get(self, path: str) -> Znode | None:
        """A znode; None if it does not exist."""
        return self._znodes.get(path)

    def value(self, path: str) -> Any:
        """The decoded data of a znode; None if it does not exist, or has no data yet.

        Raises:
            ZnodeError: malformed, or of a version that Kafka 3.9 rejects.
        """
        znode = self._znodes.get(path)
        return None if znode is None else codecs.decode(path, znode.data)

    def problems(self, paths: Iterable[str]) -> list[ZnodeError]:
        """Those of these znodes whose data Kafka 3.9 rejects."""
        found = []
        for path in paths:
            if codecs.has_codec(path):
                try:
                    self.value(path)
                except ZnodeError as error:
                    found.append(error)
        return found

"""The little of a simulated world that the checkers of ZooKeeper mode and of migrations look at."""

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

from sparkraft.simulation.world.loop import Incarnation
from sparkraft.simulation.world.violation import Violation
from sparkraft.simulation.world.znodes import Znodes
from sparkraft.zookeeper.requests import Create, Delete, SetData


def require(holds: object, invariant: str, text: str) -> None:
    """Raise a violation unless `holds`."""
    if not holds:
        raise Violation(invariant, text)


class World:
    """A probe of brokers 1 to n, which run unless their `live_node` is None."""

    def __init__(self, brokers: int = 2) -> None:
        self.counts: Counter[str] = Counter()
        self.brokers = [
            SimpleNamespace(
                id=broker, name=f"n{broker}", life=1, incarnation=Incarnation(f"n{broker}"),
                node=None, live_node=None,
            )
            for broker in range(1, brokers + 1)
        ]  # fmt: skip

    def machine(self, name: str) -> SimpleNamespace | None:
        return next((each for each in self.brokers if each.name == name), None)

    def note(self, text: str, kind: str = "note", **fields: Any) -> None:
        """Nothing: no trace."""

    def check(self, look: Any) -> None:
        look()


class Tree:
    """Znodes, and writes to them as JSON."""

    def __init__(self) -> None:
        self.znodes = Znodes()

    def write(self, path: str, value: Any, session: int = 0) -> Create | SetData:
        """Set the data of a znode, which is created with its parents; return the last write."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        parts = path.split("/")[1:]
        for depth in range(1, len(parts)):
            parent = "/" + "/".join(parts[:depth])
            if not self.has(parent):
                self.znodes.apply(Create(path=parent, data=b""), 0, 0)
        if self.has(path):
            write: Create | SetData = SetData(path=path, data=data)
        else:
            write = Create(path=path, data=data, ephemeral=session > 0)
        self.znodes.apply(write, session, 0)
        return write

    def delete(self, path: str) -> None:
        self.znodes.apply(Delete(path=path), 0, 0)

    def has(self, path: str) -> bool:
        parent, _, name = path.rpartition("/")
        return name in self.znodes.get(parent or "/").children

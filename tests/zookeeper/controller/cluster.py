"""A cluster of Kafka's znodes in memory, and decisions that run on it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sparkraft.simulation.world.znodes import MultiRefusedError, RefusedError, Znodes
from sparkraft.zookeeper.controller.active import Active, Settings
from sparkraft.zookeeper.controller.requests import (
    ControlRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from sparkraft.zookeeper.controller.steps import Answer, Send, Worked
from sparkraft.zookeeper.errors import Code, MultiError, error_of
from sparkraft.zookeeper.requests import (
    Check,
    Create,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiRead,
    SetData,
)

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = {
    LeaderAndIsrRequest: "LeaderAndIsr",
    UpdateMetadataRequest: "UpdateMetadata",
    StopReplicaRequest: "StopReplica",
}


class Cluster:
    """Znodes, an active controller of epoch 7, and what its decisions wrote and sent.

    Attributes:
        before_write: called before each transaction: another client may write here.
        repeat_writes: send each transaction twice, as after a lost reply.
    """

    def __init__(self, *brokers: int, unclean: bool = False) -> None:
        self.znodes = Znodes()
        self.active = Active(Settings(node_id=1, unclean_leader_election=unclean))
        self.writes: list[str] = []
        self.written: list = []
        self.sent: list[ControlRequest] = []
        self.answers: list = []
        self.before_write: Callable[[], None] = lambda: None
        self.repeat_writes = False
        for path in ("/brokers/ids", "/brokers/topics", "/config/topics", "/admin/delete_topics",
                     "/log_dir_event_notification", "/isr_change_notification"):  # fmt: skip
            self.make(path)
        self.make("/controller_epoch", b"7")
        self.active.context.epoch = 7
        for broker in brokers:
            self.register(broker)

    @property
    def context(self):
        return self.active.context

    def make(self, path: str, data: bytes = b"") -> None:
        """Create a znode and those above it."""
        names = path.strip("/").split("/")
        for depth in range(1, len(names)):
            parent = "/" + "/".join(names[:depth])
            try:
                self.znodes.get(parent)
            except RefusedError:
                self.znodes.apply(Create(path=parent), 0, 0)
        self.znodes.apply(Create(path=path, data=data), 0, 0)

    def set(self, path: str, data: bytes) -> None:
        self.znodes.apply(SetData(path=path, data=data), 0, 0)

    def register(self, broker: int) -> None:
        fields = {
            "version": 5,
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": [f"PLAINTEXT://127.0.0.1:{9000 + broker}"],
            "rack": f"r{broker}",
            "features": {},
            "jmx_port": -1,
        }
        self.make(f"/brokers/ids/{broker}", json.dumps(fields).encode())

    def topic(self, name: str, partitions: dict[int, list[int]], **fields: object) -> None:
        data = {"version": 3, "partitions": partitions, **fields}
        self.make(f"/brokers/topics/{name}", json.dumps(data).encode())

    def state(self, at: tuple[str, int], leader: int, isr: list[int], epoch: int = 0, by: int = 7):
        """Create or change the state znode of a partition."""
        path = f"/brokers/topics/{at[0]}/partitions/{at[1]}/state"
        fields = {"controller_epoch": by, "leader": leader, "version": 1, "leader_epoch": epoch,
                  "isr": isr}  # fmt: skip
        data = json.dumps(fields).encode()
        try:
            self.znodes.get(path)
        except RefusedError:
            self.make(path, data)
        else:
            self.set(path, data)

    def read(self, at: tuple[str, int]) -> dict:
        node = self.znodes.get(f"/brokers/topics/{at[0]}/partitions/{at[1]}/state")
        return {**json.loads(node.data), "znode_version": node.version}

    def run(self, decision):
        """Execute a decision; return its result."""
        results = None
        while True:
            try:
                effect = decision.send(results)
            except StopIteration as end:
                return end.value
            results = None
            if isinstance(effect, Send):
                self.sent.extend(effect.requests)
            elif isinstance(effect, Worked):
                continue
            elif isinstance(effect, Answer):
                self.answers.append(effect.value)
            else:
                results = [self._answer(request) for request in effect.requests]

    def take_answers(self) -> list:
        """The answers in order; forgets them."""
        taken, self.answers = self.answers, []
        return taken

    def _answer(self, request):  # noqa: PLR0911 (one for each kind of request)
        try:
            match request:
                case GetData(path=path):
                    node = self.znodes.get(path)
                    return node.data, node.stat()
                case MultiRead(reads=reads):
                    return [self._answer(read) for read in reads]
                case GetChildren(path=path):
                    node = self.znodes.get(path)
                    return sorted(node.children), node.stat()
                case Exists(path=path):
                    return self.znodes.get(path).stat()
                case Create() | SetData():
                    return self.znodes.apply(request, 0, 0).results[0]
                case Multi():
                    if self.repeat_writes:
                        self._apply(request)
                    return self._apply(request)
        except RefusedError as refused:
            return error_of(refused.code, request.path)
        raise AssertionError(request)

    def _apply(self, multi: Multi):
        self.before_write()
        try:
            results = self.znodes.apply_multi(multi, self.active.settings.node_id, 0).results
        except MultiRefusedError as refused:
            culprits = (at for at, code in enumerate(refused.codes) if code not in (Code.OK, -2))
            index = next(culprits)
            return MultiError(refused.codes, multi.operations[index].path, index)
        for operation in multi.operations:
            if not isinstance(operation, Check):
                self.writes.append(f"{type(operation).__name__} {operation.path}")
                self.written.append(operation)
        return results

    def sends(self) -> list[str]:
        """The requests in order, a line each; forgets them."""
        lines = []
        for each in self.sent:
            partitions = " ".join(f"{t}-{p}" for t, p in sorted(each.partitions))
            lines.append(f"{NAMES[type(each)]} to {each.broker}: {partitions}".rstrip())
        self.sent.clear()
        return lines

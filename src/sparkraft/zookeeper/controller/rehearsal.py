"""Runs a decision on real znodes without changing them.

Reads pass through. Writes are recorded and answered as ZooKeeper would answer them if no other
client wrote at the same time, and later reads see them. Requests to brokers are recorded.
"""

from dataclasses import dataclass, field
from typing import Any

from sparkraft.zookeeper.controller.requests import ControlRequest
from sparkraft.zookeeper.controller.steps import Answer, Ask, Send, Steps, T, Worked
from sparkraft.zookeeper.errors import Code, error_of
from sparkraft.zookeeper.requests import (
    Check,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiRead,
    Operation,
    Request,
    SetData,
    Stat,
)

Read = GetData | GetChildren | Exists | MultiRead


@dataclass(slots=True)
class Rehearsal:
    """Records of one decision.

    Attributes:
        hidden: znodes that the decision must not see, such as that of a broker assumed to fail.
        writes: writes in order, without the checks that guard them.
        sent: requests to brokers, in order.
    """

    hidden: frozenset[str] = frozenset()
    writes: list[Operation] = field(default_factory=list)
    sent: list[ControlRequest] = field(default_factory=list)
    _written: dict[str, tuple[bytes, int] | None] = field(default_factory=dict)

    def run(self, decision: Steps[T]) -> Steps[T]:
        """Execute `decision`; yields its reads only."""
        try:
            effect = next(decision)
            while True:
                if isinstance(effect, Send):
                    self.sent.extend(effect.requests)
                    effect = decision.send(None)
                elif isinstance(effect, Answer | Worked):
                    effect = decision.send(None)
                else:
                    effect = decision.send((yield from self._ask(effect)))
        except StopIteration as end:
            result: T = end.value
            return result

    def _ask(self, ask: Ask) -> Steps[list[Any]]:
        reads = tuple(request for request in ask.requests if isinstance(request, Read))
        found: list[Any] = (yield Ask(reads)) if reads else []
        results = iter(found)
        return [
            self._seen(request, next(results))
            if isinstance(request, Read)
            else self._write(request)
            for request in ask.requests
        ]

    def _seen(self, request: Read, result: Any) -> Any:
        """Return what the decision sees in place of `result`."""
        if isinstance(request, MultiRead):
            return self._seen_together(request, result)
        if isinstance(request, GetChildren):
            return self._children(request.path, result)
        if request.path in self.hidden:
            return error_of(Code.NO_NODE, request.path)
        if request.path not in self._written:
            return result
        written = self._written[request.path]
        if written is None:
            return error_of(Code.NO_NODE, request.path)
        return written[0], _stat(written[1])

    def _seen_together(self, request: MultiRead, result: Any) -> Any:
        if isinstance(result, BaseException):
            return result
        return [self._seen(*each) for each in zip(request.reads, result, strict=True)]

    def _children(self, path: str, result: Any) -> Any:
        if isinstance(result, BaseException):
            return result
        names = [name for name in result[0] if f"{path}/{name}" not in self.hidden]
        return names, result[1]

    def _write(self, request: Request) -> list[Any]:
        assert isinstance(request, Multi), request
        return [self._apply(operation) for operation in request.operations]

    def _apply(self, operation: Operation) -> Any:
        if isinstance(operation, Check):
            return None
        self.writes.append(operation)
        match operation:
            case Create(path=path, data=data):
                self._written[path] = (data or b"", 0)
                return path
            case Delete(path=path):
                self._written[path] = None
                return None
            case SetData(path=path, data=data, version=version):
                self._written[path] = (data, version + 1)
                return _stat(version + 1)


def _stat(version: int) -> Stat:
    return Stat(
        czxid=0,
        mzxid=0,
        ctime=0,
        mtime=0,
        version=version,
        cversion=0,
        aversion=0,
        ephemeral_owner=0,
        data_length=0,
        num_children=0,
        pzxid=0,
    )

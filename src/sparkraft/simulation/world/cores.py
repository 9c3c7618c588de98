"""A quorum of bare raft cores on an event heap: time, network, clients, by seed.

There are no sockets, tasks or encoded messages: `core_node` carries out the results of
`Quorum.step`, `invariants` checks them, `nemesis` injects faults. Time is in whole milliseconds.

Invariant: everything that varies comes from `dice`, so a seed determines the run. Each incarnation
of a node has a generator of its own, so the choices of one node do not change those of another.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, TextIO

from sparkraft.base.errors import ErrorCode, InvariantBroken
from sparkraft.base.ids import BrokerId, LeaderEpoch, Millis
from sparkraft.raft.events import (
    BOOTSTRAP_SNAPSHOT,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Append,
    Appended,
    Failure,
    QuorumEpochResponse,
    Refusal,
    RequestFailed,
    ResponseReceived,
    Send,
)
from sparkraft.raft.voters import Node, VoterSet, without_directories
from sparkraft.simulation.world.core_disk import EMPTY_FOLD, CoreDisk, SnapshotContent
from sparkraft.simulation.world.core_node import (
    FIRST_PORT,
    CoreNode,
    NodeStopped,
    endpoint_of,
    voter_of,
)
from sparkraft.simulation.world.core_points import FaultPoints
from sparkraft.simulation.world.observers import CoreObserver
from sparkraft.simulation.world.trace import Trace, tell
from sparkraft.simulation.world.trace_events import message_name
from sparkraft.simulation.world.violation import Violation

START_MS = 1_000
SECOND_MS = 1_000

APPEND_EVERY_MS = (10, 200)
"""Bounds of the random interval between appends of the client."""

UNCOMMITTED_MAX = 200
"""Limit of uncommitted records, like the in-flight limit of clients. Without it a follower with a
lossy link might never reach the end of the log."""


class World:
    """See the module docstring.

    Attributes:
        cut: directed pairs of nodes whose messages are lost.
        adopting_any_epoch: nodes that model Kafka's voters (`kafka_guard`).
        on_election: called with every newly elected leader.
        loss: fraction of messages lost on other links; `duplicates` likewise.
        delay_ms: longest latency of a message.
        counts: the number of events, by name.
    """

    def __init__(
        self,
        seed: int,
        voters: int = 3,
        observers: int = 0,
        *,
        observed_by: Callable[["World"], CoreObserver],
        dynamic: bool = False,
        sink: TextIO | None = None,
    ) -> None:
        """Create the nodes, all down: voters 1 to `voters`, then the observers."""
        self.seed = seed
        self.dice = random.Random(seed)
        self.now = Millis(START_MS)
        self.trace = Trace(sink)
        self.counts: Counter[str] = Counter()
        self.loss = self.duplicates = 0.0
        self.delay_ms = 25
        self.cut: set[tuple[int, int]] = set()
        self.dynamic = dynamic
        self.auto_join = False
        self.adopting_any_epoch: frozenset[int] = frozenset()
        self.on_election: list[Callable[[CoreNode], None]] = []
        self.elections: list[tuple[int, int]] = []
        self.points = FaultPoints(self)
        self.invariants: CoreObserver = observed_by(self)
        self.nodes = {
            node_id: CoreNode(self, node_id, voter=node_id <= voters)
            for node_id in range(1, voters + observers + 1)
        }
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._next_value = 0
        self._messages = 0
        self._set_voters(VoterSet.of(voter_of(node_id) for node_id in range(1, voters + 1)))
        self.after(SECOND_MS, self._every_second)

    def _set_voters(self, voters: VoterSet) -> None:
        self.bootstrap: tuple[Node, ...] = ()
        if not self.dynamic:
            self.static_voters = without_directories(voters)
            return
        self.static_voters = VoterSet()
        self.bootstrap = tuple(
            Node(BrokerId(-1 - node_id), endpoint_of(node_id).host, endpoint_of(node_id).port)
            for node_id in voters.ids
        )
        checkpoint = SnapshotContent(EMPTY_FOLD, 1, voters).encode()
        for node_id in voters.ids:
            self.nodes[node_id].disk = CoreDisk(snapshots={BOOTSTRAP_SNAPSHOT: checkpoint})

    # ---- time

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run `action` after a delay."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self._sequence, action))

    def run_for(self, millis: int, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass until `until` holds, for at most `millis`; return whether it did.

        Raises:
            Violation: of an invariant, or of an assertion in the product itself.
        """
        end = self.now + millis
        while self._heap and self._heap[0][0] <= end:
            at, _, action = heapq.heappop(self._heap)
            self.now = Millis(at)
            self.counts["events"] += 1
            try:
                action()
            except NodeStopped:
                pass
            except (InvariantBroken, AssertionError) as error:
                raise self._as_violation(error) from error
            if until is not None and until():
                return True
        self.now = Millis(end)
        return False

    def _as_violation(self, error: Exception) -> Violation:
        if isinstance(error, Violation):
            self.note(f"VIOLATION {error}", "violation", invariant=error.invariant)
            return error
        self.note(
            f"VIOLATION the product's own assertion: {error}", "violation", invariant="assert"
        )
        return Violation("assert", str(error) or type(error).__name__)

    def _every_second(self) -> None:
        self.after(SECOND_MS, self._every_second)
        self.invariants.every_second()

    def note(self, text: str, kind: str | None = "note", **fields: Any) -> None:
        """Add a line to the trace, and with a `kind` an event of it; see `trace_events`."""
        self.trace.add(self.now, text, kind, **fields)

    @property
    def node_names(self) -> list[str]:
        """The names of the nodes in the trace."""
        return [node.name for node in self.nodes.values()]

    def cut_links(self) -> set[tuple[int, int]]:
        """Return the directed pairs of nodes whose messages are lost."""
        return self.cut

    def record_messages(self) -> None:
        """Nothing to prepare: a core's messages are events as they are sent."""

    def record(self, kind: str, **fields: Any) -> None:
        """Add an event that has no line."""
        if self.trace.events is not None:
            self.trace.events.add(self.now, kind, **fields)

    def summary(self) -> str:
        """Return the state of all nodes as one line."""
        return " | ".join(node.summary() for node in self.nodes.values())

    # ---- network

    def transmit(self, sender: CoreNode, send: Send) -> None:
        """Send a request; its response or failure comes back to the sender."""
        self.invariants.on_send(sender, send)
        target_id = send.to.port - FIRST_PORT
        message = self._next_message()
        self.note(
            f"{sender.name} sends n{target_id}: {tell(send.request)}",
            "sends",
            id=message,
            node=sender.name,
            to=f"n{target_id}",
            message=message_name(send.request),
        )
        sender.in_flight.add(send.correlation_id)
        sender.later(send.timeout_ms, lambda: self._fail(sender, send, Failure.TIMED_OUT))
        arrive = self._arrival(sender, send, target_id, message)
        self.after(self.dice.randint(1, self.delay_ms), arrive)
        if self.dice.random() < self.duplicates:
            self.counts["requests twice"] += 1
            self.after(self.dice.randint(1, 10 * self.delay_ms), arrive)

    def _fail(self, sender: CoreNode, send: Send, failure: Failure) -> None:
        if send.correlation_id in sender.in_flight:
            sender.in_flight.discard(send.correlation_id)
            sender.step(RequestFailed(correlation_id=send.correlation_id, failure=failure))

    def _next_message(self) -> int:
        self._messages += 1
        return self._messages

    def _arrival(
        self, sender: CoreNode, send: Send, target_id: int, message: int
    ) -> Callable[[], None]:
        reply = self._reply(sender, send, target_id)

        def arrive() -> None:
            target = self.nodes.get(target_id)
            if target is None or self._is_lost(sender.id, target_id):
                self.record("lost", id=message)
                return  # A rogue also names addresses without a node.
            self.record("arrives" if target.is_up else "lost", id=message)
            if not target.is_up:
                failure = self.dice.choice([Failure.REFUSED, Failure.DISCONNECTED])
                sender.later(1, lambda: self._fail(sender, send, failure))
            elif isinstance(send.request, ApiVersionsRequest):
                target.guarded(lambda: reply(_API_VERSIONS))()
            else:
                target.guarded(lambda: target.ask(send.request, reply))()

        return arrive

    def _reply(self, sender: CoreNode, send: Send, target_id: int) -> Callable[[Any], None]:
        back = sender.guarded

        def disconnect(message: int) -> None:
            self.record("arrives", id=message)
            self._fail(sender, send, Failure.DISCONNECTED)

        def deliver(answer: Any, message: int) -> None:
            self.record("arrives", id=message)
            sender.in_flight.discard(send.correlation_id)
            sender.step(ResponseReceived(correlation_id=send.correlation_id, response=answer))

        def reply(answer: Any) -> None:
            message = self._next_message()
            self._record_reply(message, target_id, sender, answer)
            if self._is_lost(target_id, sender.id):
                self.record("lost", id=message)
                return
            if answer is None:
                self.after(1, back(lambda: disconnect(message)))
                return
            received = _as_peer_answer(answer)
            delay = self.dice.randint(1, self.delay_ms)
            self.after(delay, back(lambda: deliver(received, message)))

        return reply

    def _record_reply(self, message: int, origin_id: int, receiver: CoreNode, answer: Any) -> None:
        if self.trace.events is None:
            return
        name = "connection closed" if answer is None else message_name(answer)
        content = name if answer is None else tell(answer)
        self.record(
            "sends",
            id=message,
            node=f"n{origin_id}",
            to=receiver.name,
            message=name,
            text=f"n{origin_id} answers {receiver.name}: {content}",
        )

    def _is_lost(self, origin: int, target: int) -> bool:
        lost = (
            (origin, target) in self.cut
            or self.now < self.nodes[target].deaf_until
            or self.dice.random() < self.loss
        )
        if lost:
            self.counts["messages lost"] += 1
        return lost

    # ---- clients

    def start_all(self) -> None:
        """Start every node, and a client that keeps appending."""
        for node in self.nodes.values():
            self.after(0, node.start)
        self.after(1, self._append_on)

    def _append_on(self) -> None:
        self.after(self.dice.randint(*APPEND_EVERY_MS), self._append_on)
        for node in self.nodes.values():
            waiting = node.disk.end - node.high_watermark
            if node.is_leader and node.backlog is None and waiting < UNCOMMITTED_MAX:
                self._append(node)

    def _append(self, node: CoreNode) -> None:
        self._next_value += 1
        count = self.dice.randint(1, 3)
        epoch = node.quorum.state.epoch
        request = Append(epoch=epoch, count=count, payload=(self._next_value, count))
        node.ask(request, self._on_appended)

    def _on_appended(self, answer: Any) -> None:
        if isinstance(answer, Appended):
            self.counts["appends"] += 1

    # ---- state for scenarios and checkers

    def leader(self) -> CoreNode | None:
        """Return the running leader of the highest epoch."""
        leaders = [node for node in self.nodes.values() if node.is_leader]
        return max(leaders, key=lambda node: node.quorum.state.epoch, default=None)

    def on_leader(self, node: CoreNode, epoch: int) -> None:
        """Called when a node has become the leader."""
        self.elections.append((node.id, epoch))
        self.counts["elections won"] += 1
        for hook in self.on_election:
            hook(node)

    def has_consistent_leader(self) -> bool:
        """Return whether all running nodes agree on a running leader and its epoch."""
        known = {node.quorum.leader_and_epoch for node in self.nodes.values() if node.is_up}
        leader = self.leader()
        return len(known) == 1 and leader is not None

    def high_watermarks(self, among: list[int] | None = None) -> list[int]:
        """Return the high watermarks of the running nodes, or of those in `among`."""
        chosen = list(self.nodes) if among is None else among
        return [self.nodes[i].high_watermark for i in chosen if self.nodes[i].is_up]


def _as_peer_answer(answer: Any) -> Any:
    """Return the response as a peer decodes it: a refusal has only an error code."""
    if isinstance(answer, Refusal):
        return QuorumEpochResponse(error=answer.error, epoch=LeaderEpoch(0))
    return answer


_API_VERSIONS = ApiVersionsResponse(error=ErrorCode.NONE, max_kraft_version=1)

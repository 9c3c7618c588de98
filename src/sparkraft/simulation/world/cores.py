"""A quorum of bare raft cores on an event heap: time, network, clients, by seed.

No sockets, no tasks, no bytes on the wire: what `Quorum.step` asks for is carried out by
`core_node`, watched by `invariants`, disturbed by `nemesis`. Time is whole milliseconds.

Invariant: everything that varies comes from `dice`, so a seed is a run. A node's own dice are
seeded by its id and incarnation, lest one node's rolls shift another's.
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
from sparkraft.simulation.world.violation import Violation

START_MS = 1_000
SECOND_MS = 1_000

APPEND_EVERY_MS = (10, 200)
"""How often the client appends, at random between."""

UNCOMMITTED_MAX = 200
"""Records that the client lets wait for their commit, as clients with requests in flight do; a
follower that gets them through a lossy link might never reach the end otherwise."""


class World:
    """See the module docstring.

    Attributes:
        cut: directed pairs of nodes whose messages are lost.
        on_election: called with every node that comes to lead.
        loss: part of messages lost otherwise; `duplicates` likewise.
        delay_ms: longest time a message takes.
        counts: what happened, by name.
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
        """All nodes down. Voters are 1 to `voters`, observers follow."""
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
        """Do `action` then."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self._sequence, action))

    def run_for(self, millis: int, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; whether `until` came true in it.

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
            self.note(f"VIOLATION {error}")
            return error
        self.note(f"VIOLATION the product's own assertion: {error}")
        return Violation("assert", str(error) or type(error).__name__)

    def _every_second(self) -> None:
        self.after(SECOND_MS, self._every_second)
        self.invariants.every_second()

    def note(self, text: str) -> None:
        """One line of the trace."""
        self.trace.add(self.now, text)

    def summary(self) -> str:
        """Every node in a line."""
        return " | ".join(node.summary() for node in self.nodes.values())

    # ---- network

    def transmit(self, sender: CoreNode, send: Send) -> None:
        """A request sets out; its answer, or its failure, comes back to the sender."""
        self.invariants.on_send(sender, send)
        target_id = send.to.port - FIRST_PORT
        self.note(f"{sender.name} asks n{target_id}: {tell(send.request)}")
        sender.in_flight.add(send.correlation_id)
        sender.later(send.timeout_ms, lambda: self._fail(sender, send, Failure.TIMED_OUT))
        arrive = self._arrival(sender, send, target_id)
        self.after(self.dice.randint(1, self.delay_ms), arrive)
        if self.dice.random() < self.duplicates:
            self.counts["requests twice"] += 1
            self.after(self.dice.randint(1, 10 * self.delay_ms), arrive)

    def _fail(self, sender: CoreNode, send: Send, failure: Failure) -> None:
        if send.correlation_id in sender.in_flight:
            sender.in_flight.discard(send.correlation_id)
            sender.step(RequestFailed(correlation_id=send.correlation_id, failure=failure))

    def _arrival(self, sender: CoreNode, send: Send, target_id: int) -> Callable[[], None]:
        reply = self._reply(sender, send, target_id)

        def arrive() -> None:
            target = self.nodes[target_id]
            if self._is_lost(sender.id, target_id):
                return
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

        def deliver(answer: Any) -> None:
            sender.in_flight.discard(send.correlation_id)
            sender.step(ResponseReceived(correlation_id=send.correlation_id, response=answer))

        def reply(answer: Any) -> None:
            if self._is_lost(target_id, sender.id):
                return
            if answer is None:
                self.after(1, back(lambda: self._fail(sender, send, Failure.DISCONNECTED)))
                return
            told = _as_peer_answer(answer)
            self.after(self.dice.randint(1, self.delay_ms), back(lambda: deliver(told)))

        return reply

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
        """Start every node, and a client that goes on appending."""
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

    # ---- what scenarios and checkers look at

    def leader(self) -> CoreNode | None:
        """The live leader of the highest epoch."""
        leaders = [node for node in self.nodes.values() if node.is_leader]
        return max(leaders, key=lambda node: node.quorum.state.epoch, default=None)

    def on_leader(self, node: CoreNode, epoch: int) -> None:
        """A node came to lead."""
        self.elections.append((node.id, epoch))
        self.counts["elections won"] += 1
        for hook in self.on_election:
            hook(node)

    def has_consistent_leader(self) -> bool:
        """Whether all that run know one live leader in one epoch."""
        known = {node.quorum.leader_and_epoch for node in self.nodes.values() if node.is_up}
        leader = self.leader()
        return len(known) == 1 and leader is not None

    def high_watermarks(self, among: list[int] | None = None) -> list[int]:
        """Of the nodes that run, or of those named."""
        chosen = list(self.nodes) if among is None else among
        return [self.nodes[i].high_watermark for i in chosen if self.nodes[i].is_up]


def _as_peer_answer(answer: Any) -> Any:
    """What the wire makes of answers that are only an error."""
    if isinstance(answer, Refusal):
        return QuorumEpochResponse(error=answer.error, epoch=LeaderEpoch(0))
    return answer


_API_VERSIONS = ApiVersionsResponse(error=ErrorCode.NONE, max_kraft_version=1)

"""E1: what nodes tell of leaders, ISRs, brokers and the quorum is what happened, and why.

What happened is kept by `true_history`, as it is committed, and by `explanation_ghosts`, from what
leaders and controllers are seen to do. Nodes are asked what `sparkraft explain` asks them, as of
now, of offsets and of times of the past:

    each second   the leaders' journals of ISR changes, where there is anything new in them
    now and then  one node after the other, of now and of one moment of the past
    at the end    every node, of now and of one such moment; the documents of the commands

A change that is missing, invented or altered, a reason that does not lead to the leader, a cause
that was none, a follower that was farther behind than is told: each is a violation.
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.history import put_together
from sparkraft.controller.history import History
from sparkraft.protocol.messages.k10002_describe_history import DescribeHistoryRequest, HistoryTopic
from sparkraft.protocol.messages.k10003_describe_isr_changes import DescribeIsrChangesRequest
from sparkraft.security.session import NodeSession
from sparkraft.server.api import k10002_describe_history as k10002
from sparkraft.server.api import k10003_describe_isr_changes as k10003
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.raft.past_reader import HistoryQuery
from sparkraft.simulation.checks.election_reasons import disagreements, wrong_reason
from sparkraft.simulation.checks.explanation_answers import Span, Truth, wrong_answer
from sparkraft.simulation.checks.explanation_documents import wrong_documents
from sparkraft.simulation.checks.explanation_quorum import QuorumTruth
from sparkraft.simulation.checks.isr_oracle import Agreed, IsrOracle
from sparkraft.simulation.checks.metadata_oracle import MetadataOracle
from sparkraft.simulation.world.violation import Violation

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.nodes import NodesWorld

EVENTS_MAX = 100_000
"""Of one partition: more than a run has."""

TOLD_MAX = 100
"""Changes of one thing that an answer is asked for: more than most have."""

LOOK_EVERY_S = 7
"""A node is asked so often; a question reads all that it keeps of the metadata log."""

PAST = (0.2, 0.5, 0.8)
"""How far between the oldest offset that is kept and the newest the moments of the past are."""

TURNS_MAX = 100_000
"""An answer gives others so many turns at most: reading the longest log takes fewer."""

T = TypeVar("T")


class ExplanationChecks:
    """See the module docstring."""

    def __init__(self, world: "NodesWorld") -> None:
        self._world = world
        self.ghosts = IsrOracle()
        self._history = MetadataOracle()
        self._truth = Truth(self._history, self.ghosts)
        self._quorum = QuorumTruth()
        self._seconds = 0
        self._compared: dict[str, tuple[int, int]] = {}

    def on_committed(self, header: Any, view: memoryview) -> None:
        """Each committed batch of the metadata log once, in order."""
        self._history.on_committed(header, view)
        if header.is_control:
            self._quorum.on_committed(view)

    # ---- who is asked, and when

    def every_second(self) -> None:
        """Look at journals that have grown, and now and then at what a node tells."""
        self._seconds += 1
        nodes = self._nodes()
        for machine, node in nodes:
            self._check_isr_journal(machine, node)
        turn, rest = divmod(self._seconds, LOOK_EVERY_S)
        if nodes and not rest:
            machine, node = nodes[turn % len(nodes)]
            now = self._ask(machine, node, whole_log=True)
            if now is not None and now.offset > now.start_offset:
                self._check_past(machine, node, now, PAST[turn % len(PAST)])

    def at_end(self) -> None:
        """Ask every node that runs."""
        nodes = self._nodes()
        wrong = list(self._quorum.wrong_account(node for _, node in nodes))
        self._world.checks.require(not wrong, "E1", f"`explain quorum`: {'; '.join(wrong[:3])}")
        for place, (machine, node) in enumerate(nodes):
            self._check_isr_journal(machine, node)
            self._check_log(machine, node)
            now = self._ask(machine, node, whole_log=True)
            if now is None:
                continue
            if now.offset > now.start_offset:
                self._check_past(machine, node, now, PAST[(self._seconds + place) % len(PAST)])
            self._check_bounds(machine, node, now)
            self._check_documents(machine, now, nodes)

    def _nodes(self) -> "list[tuple[Machine, Any]]":
        return [
            (machine, node)
            for machine in self._world.machines
            if machine not in self._world.broken
            and (node := machine.live_node) is not None
            and node.failure is None
            and node.raft is not None
            and (node.broker is not None or node.controller_services is not None)
        ]

    # ---- the log, as the product reads it

    def _check_log(self, machine: "Machine", node: Any) -> None:
        question = HistoryQuery(wanted=lambda *_: True, events_max=EVENTS_MAX, whole_log=True)
        history = _at_once(node.raft.past.read(question))
        for (topic_id, index), facts in sorted(self._history.facts.items()):
            events = history.partition_events(topic_id, index)
            known = [f for f in facts if f.offset < history.image.offset + 1]
            told = known and known[-1].offset >= history.start
            wrong = disagreements(events, known) if told else []
            first = next((f.offset for f in known if f.offset >= history.start), None)
            if first is not None and events and events[0].offset > first:
                wrong.append(f"offset {first}: a change is not told")
            present = history.image.partition(topic_id, index)
            if known and present != known[-1].partition:
                wrong.append(f"it is told to be {present}")
            self._require(machine, wrong, f"{topic_id}-{index}")
        services = node.controller_services
        if services is not None:
            self._check_journal(machine, services.controller.core.journal.entries(), history)

    def _check_journal(self, machine: "Machine", entries: Any, history: History) -> None:
        """What a controller noted of elections that were committed."""
        for entry in entries:
            noted = entry.election
            for event in history.partition_events(noted.topic_id, noted.partition):
                after: PartitionState | None = event.after
                if after is None or not event.leader_changed:
                    continue
                same = (after.leader, after.leader_epoch) == (noted.leader, noted.leader_epoch)
                if not same or event.epoch != entry.epoch:
                    continue
                wrong = list(wrong_reason(noted.reason, after))
                derived = event.election
                if derived is not None and derived.chosen_by is not noted.reason.chosen_by:
                    wrong.append(f"noted as {noted.reason}, told as {derived}")
                place = f"{noted.topic}-{noted.partition} in epoch {noted.leader_epoch}"
                self._require(machine, wrong, place)

    # ---- answers, of now and of the past

    def _ask(
        self,
        machine: "Machine",
        node: Any,
        *,
        at_offset: int = -1,
        at_ms: int = -1,
        whole_log: bool = False,
    ) -> Any:
        """The node's answer about everything, which is held against the truth; None: refused."""
        end = at_offset if at_offset >= 0 else node.raft.high_watermark - 1
        request = self._request(self._history.image_at(end))
        if at_ms >= 0:
            then = self._history.image_at(self._last_before(at_ms, end))
            request.topics = [t for t in request.topics if t.name in then.topics_by_name]
        request.at_offset, request.at_ms = at_offset, at_ms
        request.whole_log = whole_log
        services = node.broker or node.controller_services
        try:
            answer = _at_once(k10002.handle(services, own_context(), request))
        except KafkaError as error:
            told = [] if error.code is ErrorCode.OFFSET_OUT_OF_RANGE else [str(error)]
            self._require(machine, told, f"what there was at {max(at_offset, at_ms)}")
            return None
        span = Span(answer.start_offset, answer.offset, request.events_max)
        wrong = list(wrong_answer(answer, span, self._truth))
        missing = _partitions_of(self._history.image_at(span.end)) - {
            (told.topic_id, told.partition) for told in answer.partitions
        }
        if missing and at_ms < 0:
            wrong.append(f"nothing is told of {sorted(missing)}")
        when = f"at offset {at_offset}" if at_offset >= 0 else f"at time {at_ms}"
        self._require(machine, wrong, "now" if max(at_offset, at_ms) < 0 else when)
        return answer

    def _last_before(self, at_ms: int, end: int) -> int:
        """The offset below the first batch that was written later."""
        later = (batch.base_offset for batch in self._history.batches if batch.at_ms > at_ms)
        return min(next(later, end + 1) - 1, end)

    def _request(self, image: "ClusterImage") -> DescribeHistoryRequest:
        topics = [HistoryTopic(name=topic.name) for topic in image.topics_in_order()]
        brokers = sorted({*self._history.notes, *image.brokers})
        told = len(brokers) + len(_partitions_of(image))
        events_max = max(1, min(TOLD_MAX, k10002.ANSWER_EVENTS_MAX // max(1, told)))
        return DescribeHistoryRequest(topics=topics, broker_ids=brokers, events_max=events_max)

    def _check_past(self, machine: "Machine", node: Any, now: Any, share: float) -> None:
        """As of an offset between the oldest and the newest, and as of its time."""
        offset = now.start_offset + int((now.offset - now.start_offset) * share)
        told = self._ask(machine, node, at_offset=offset)
        wrong = [] if told is not None and told.offset == offset else ["it is not told"]
        self._require(machine, wrong, f"offset {offset}")
        batch = self._history.batch_at(offset)
        if batch is not None:
            self._check_time(machine, node, batch.at_ms)

    def _check_time(self, machine: "Machine", node: Any, at_ms: int) -> None:
        """All that was written until then, and nothing later.

        Controllers' clocks differ, so times may go back within the log: then it has several such
        places, and the answer is one of them.
        """
        told = self._ask(machine, node, at_ms=at_ms)
        if told is None:
            oldest = [s.offset - 1 for s in node.raft.log.snapshots if s.offset > 0]
            kept = [b for b in map(self._history.batch_at, oldest) if b and b.at_ms <= at_ms]
            wrong = [] if node.raft.log.start and not kept else ["it is refused"]
        else:
            wrong = list(self._wrong_moment(told, at_ms, node.raft.high_watermark))
        self._require(machine, wrong, f"time {at_ms}")

    def _wrong_moment(self, told: Any, at_ms: int, high_watermark: int) -> Iterator[str]:
        for batch in self._history.batches:
            within = told.start_offset - 1 <= batch.last_offset <= told.offset
            if within and batch.at_ms > at_ms:
                yield f"{batch} is told, and is later"
        after = self._history.batch_at(told.offset + 1)
        if after is not None and after.last_offset < high_watermark and after.at_ms <= at_ms:
            yield f"{after} is not told"

    def _check_bounds(self, machine: "Machine", node: Any, now: Any) -> None:
        """What is not committed yet, and what is not kept any more, is refused."""
        future = self._ask(machine, node, at_offset=node.raft.high_watermark)
        wrong = [] if future is None else [f"told as of {future.offset}"]
        oldest = now.start_offset - 2
        if oldest >= 0 and self._ask(machine, node, at_offset=oldest) is not None:
            wrong.append(f"offset {oldest} is told, kept is {now.start_offset}")
        self._require(machine, wrong, "what it can't know")

    # ---- leaders' journals

    def _check_isr_journal(self, machine: "Machine", node: Any) -> None:
        agreed = self.ghosts.agreed.get((machine.name, machine.life), ())
        seen = (machine.life, len(agreed))
        if node.broker is None or not agreed or self._compared.get(machine.name) == seen:
            return
        self._compared[machine.name] = seen
        for topic in sorted({each.topic for each in agreed}):
            told = _isr_changes(node, topic).changes
            wrong = self._wrong_isr_changes(told, [e for e in agreed if e.topic == topic])
            self._require(machine, list(wrong), f"the ISRs of {topic}")

    def _wrong_isr_changes(self, told: list[Any], agreed: list[Agreed]) -> Iterator[str]:
        if len(told) != len(agreed):
            yield f"{len(agreed)} changes were made, told are {len(told)}"
            return
        for entry, known in zip(told, agreed, strict=True):
            for wrong in self._wrong_isr_change(entry, known):
                yield f"{entry}: {wrong}"

    def _wrong_isr_change(self, entry: Any, known: Agreed) -> Iterator[str]:
        place = (entry.partition, entry.at_ms, entry.leader_epoch, entry.partition_epoch)
        is_place = (known.where[1], known.at_ms, known.leader_epoch, known.partition_epoch)
        if place != is_place:
            yield f"it was {is_place}"
        change = next(
            (
                each
                for each in self._history.changes.get(known.where, ())
                if each.after is not None and each.after.partition_epoch == known.partition_epoch
            ),
            None,
        )
        if change is None or change.before is None or change.after is None:
            yield "no such change was committed"
            return
        before, after = set(change.before.isr), set(change.after.isr)
        if (set(entry.isr_before), set(entry.isr)) != (before, after):
            yield f"it was {sorted(before)}, then {sorted(after)}"
        joined = set() if entry.joined < 0 else {entry.joined}
        if joined != after - before:
            yield f"who joined is {sorted(after - before)}"
        left = {e.replica: (e.log_end_offset, e.leader_end, e.behind_ms) for e in entry.left}
        gone = {r: known.behind[r] for r in sorted(before - after) if r in known.behind}
        if left != {
            r: (*b[:2], -1 if b.behind_ms is None else b.behind_ms) for r, b in gone.items()
        }:
            yield f"who left is {gone}"
        limit = known.slow_ms
        quick = [r for r, b in gone.items() if b.behind_ms is not None and b.behind_ms <= limit]
        if quick:
            yield f"{quick} had everything just before"

    # ---- what the commands print

    def _check_documents(self, machine: "Machine", now: Any, nodes: list[Any]) -> None:
        """Of the node's own answer, with what all others noted."""
        image = self._history.image_at(now.offset)
        question = self._request(image)
        question.journal_only = True
        services = [node.broker or node.controller_services for _, node in nodes]
        journals = [_at_once(k10002.handle(each, own_context(), question)) for each in services]
        brokers = [node for _, node in nodes if node.broker is not None]
        changes = {
            topic.name: [_isr_changes(node, topic.name) for node in brokers]
            for topic in question.topics
        }
        account = put_together(now, journals, changes, {})
        span = Span(now.start_offset, now.offset, question.events_max)
        lives = [(other.name, other.life) for other, node in nodes if node.broker is not None]
        agreed = {
            (each.where, each.partition_epoch): each
            for life in lives
            for each in self.ghosts.agreed.get(life, ())
        }
        wrong = list(wrong_documents(account, span, self._truth, agreed))
        wrong += wrong_answer(now, span, self._truth)  # with the reasons of all journals
        self._require(machine, wrong, "with all others")

    def _require(self, machine: "Machine", wrong: list[str], what: str) -> None:
        text = f"{machine.name} explains {what}: {'; '.join(wrong[:3])}"
        self._world.checks.require(not wrong, "E1", text)


def _isr_changes(node: Any, topic: str) -> Any:
    return k10003.handle(node.broker, own_context(), DescribeIsrChangesRequest(topic=topic))


def own_context() -> RequestContext:
    """A context that may ask everything, for handlers that are called without a connection."""
    return RequestContext(
        0, 0, 0, None, session=NodeSession("CONTROLLER"), connection=None, received_ms=0
    )


def _partitions_of(image: "ClusterImage") -> set[Any]:
    return {(topic.id, index) for topic in image.topics_in_order() for index in topic.partitions}


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run what only ever gives others their turn, while the simulated loop stands still."""
    step: Callable[[None], Any] = work.send
    for _ in range(TURNS_MAX):
        try:
            step(None)
        except StopIteration as done:
            result: T = done.value
            return result
    work.close()
    raise Violation("E1", f"no answer after {TURNS_MAX} turns: it waits for what others do")

"""E1: explanations of leaders, ISRs, brokers and the quorum match what happened, and why.

`metadata_oracle` records what is committed; `isr_oracle` records what leaders and controllers are
observed to do. The checker sends nodes the requests of `sparkraft explain`, for the present, for
past offsets and for past times:

    each second   the ISR journals of leaders that have new entries
    periodically  one node at a time, for the present and for one point in the past
    at the end    every node, for the present and one point in the past; the commands' documents

Violations: a missing, invented or altered change, a reason that does not imply the leader, a wrong
cause, a follower that lagged more than reported.
"""

from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.history import merge_journals
from sparkraft.controller.history import History
from sparkraft.protocol.messages.k10002_describe_history import DescribeHistoryRequest, HistoryTopic
from sparkraft.protocol.messages.k10003_describe_isr_changes import DescribeIsrChangesRequest
from sparkraft.security.session import NodeSession
from sparkraft.server.api import k10002_describe_history as k10002
from sparkraft.server.api import k10003_describe_isr_changes as k10003
from sparkraft.server.api.registry import RequestContext
from sparkraft.server.raft.past_reader import HistoryQuery
from sparkraft.simulation.checks.election_reasons import disagreements, wrong_reason
from sparkraft.simulation.checks.explanation_documents import wrong_documents
from sparkraft.simulation.checks.explanation_quorum import QuorumTruth
from sparkraft.simulation.checks.explanation_responses import Span, Truth, wrong_response
from sparkraft.simulation.checks.isr_oracle import ConfirmedIsrChange, IsrOracle
from sparkraft.simulation.checks.metadata_oracle import MetadataOracle
from sparkraft.simulation.checks.probe import Probe, Require
from sparkraft.simulation.world.violation import Violation

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.metadata.partition_state import PartitionState
    from sparkraft.simulation.world.machine import Machine

EVENTS_MAX = 100_000
"""Events per partition: more than any run has."""

REQUESTED_EVENTS_MAX = 100
"""Changes requested per partition or broker: more than most have."""

LOOK_EVERY_S = 7
"""Interval between full checks of one node; each reads its whole metadata log."""

PAST = (0.2, 0.5, 0.8)
"""Past points to check, as fractions of the range from the oldest to the newest offset."""

YIELDS_MAX = 100_000
"""Yields to the event loop per request: more than reading the longest log takes."""

T = TypeVar("T")


class ExplanationChecks:
    """See the module docstring."""

    def __init__(self, probe: Probe, require: Require) -> None:
        self._probe = probe
        self._check = require
        self.isr_oracle = IsrOracle()
        self._history = MetadataOracle()
        self._truth = Truth(self._history, self.isr_oracle)
        self._quorum = QuorumTruth()
        self._seconds = 0
        self._compared: dict[str, tuple[int, int]] = {}

    def on_committed(self, header: Any, view: memoryview) -> None:
        """Record a committed batch of the metadata log. Called once per batch, in order."""
        self._history.on_committed(header, view)
        if header.is_control:
            self._quorum.on_committed(view)

    # ---- schedule

    def every_second(self) -> None:
        """Check journals that have grown, and periodically the explanations of one node."""
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
        """Check every running node."""
        nodes = self._nodes()
        wrong = list(self._quorum.disagreements(node for _, node in nodes))
        self._check(not wrong, "E1", f"explain quorum: {'; '.join(wrong[:3])}")
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
            for machine in self._probe.machines
            if machine not in self._probe.broken
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
            reported = known and known[-1].offset >= history.start
            wrong = disagreements(events, known) if reported else []
            first = next((f.offset for f in known if f.offset >= history.start), None)
            if first is not None and events and events[0].offset > first:
                wrong.append(f"offset {first}: a change is missing")
            present = history.image.partition(topic_id, index)
            if known and present != known[-1].partition:
                wrong.append(f"its state is {present}, in the log {known[-1].partition}")
            self._require(machine, wrong, f"{topic_id}-{index}")
        services = node.controller_services
        if services is not None:
            self._check_journal(machine, services.controller.core.journal.entries(), history)

    def _check_journal(self, machine: "Machine", entries: Any, history: History) -> None:
        """Check a controller's journal entries of elections that were committed."""
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
                    wrong.append(f"the journal has {noted.reason}, the history {derived}")
                place = f"{noted.topic}-{noted.partition} in epoch {noted.leader_epoch}"
                self._require(machine, wrong, place)

    # ---- responses, present and past

    def _ask(
        self,
        machine: "Machine",
        node: Any,
        *,
        at_offset: int = -1,
        at_ms: int = -1,
        whole_log: bool = False,
    ) -> Any:
        """Request the node's full history and check it; return None if the node refuses."""
        end = at_offset if at_offset >= 0 else node.raft.high_watermark - 1
        request = self._request(self._history.image_at(end))
        if at_ms >= 0:
            then = self._history.image_at(self._last_before(at_ms, end))
            request.topics = [t for t in request.topics if t.name in then.topics_by_name]
        request.at_offset, request.at_ms = at_offset, at_ms
        request.whole_log = whole_log
        services = node.broker or node.controller_services
        try:
            response = _described(k10002.describe(services, own_context(), request))
        except KafkaError as error:
            reported = [] if error.code is ErrorCode.OFFSET_OUT_OF_RANGE else [str(error)]
            self._require(machine, reported, f"the state at {max(at_offset, at_ms)}")
            return None
        span = Span(response.start_offset, response.offset, request.events_max)
        wrong = list(wrong_response(response, span, self._truth))
        missing = _partitions_of(self._history.image_at(span.end)) - {
            (reported.topic_id, reported.partition) for reported in response.partitions
        }
        if missing and at_ms < 0:
            wrong.append(f"partitions {sorted(missing)} are missing")
        when = f"the state at {f'offset {at_offset}' if at_offset >= 0 else f'time {at_ms}'}"
        self._require(machine, wrong, "the present" if max(at_offset, at_ms) < 0 else when)
        return response

    def _last_before(self, at_ms: int, end: int) -> int:
        """Return the last offset before the first batch that was written after `at_ms`."""
        later = (batch.base_offset for batch in self._history.batches if batch.at_ms > at_ms)
        return min(next(later, end + 1) - 1, end)

    def _request(self, image: "ClusterImage") -> DescribeHistoryRequest:
        topics = [HistoryTopic(name=topic.name) for topic in image.topics_in_order()]
        brokers = sorted({*self._history.notes, *image.brokers})
        reported = len(brokers) + len(_partitions_of(image))
        events_max = max(1, min(REQUESTED_EVENTS_MAX, k10002.ANSWER_EVENTS_MAX // max(1, reported)))
        return DescribeHistoryRequest(topics=topics, broker_ids=brokers, events_max=events_max)

    def _check_past(self, machine: "Machine", node: Any, now: Any, share: float) -> None:
        """Check the state at an offset between the oldest and the newest, and at its time."""
        offset = now.start_offset + int((now.offset - now.start_offset) * share)
        reported = self._ask(machine, node, at_offset=offset)
        wrong = (
            []
            if reported is not None and reported.offset == offset
            else ["the node did not return it"]
        )
        self._require(machine, wrong, f"offset {offset}")
        batch = self._history.batch_at(offset)
        if batch is not None:
            self._check_time(machine, node, batch.at_ms)

    def _check_time(self, machine: "Machine", node: Any, at_ms: int) -> None:
        """Check that the response has everything written up to `at_ms`, and nothing later.

        Controllers' clocks differ, so times may go back within the log. Several offsets then
        qualify, and the response must use one of them.
        """
        reported = self._ask(machine, node, at_ms=at_ms)
        if reported is None:
            oldest = [s.offset - 1 for s in node.raft.log.snapshots if s.offset > 0]
            kept = [b for b in map(self._history.batch_at, oldest) if b and b.at_ms <= at_ms]
            wrong = (
                []
                if node.raft.log.start and not kept
                else ["the node refused although it has the data"]
            )
        else:
            wrong = list(self._wrong_moment(reported, at_ms, node.raft.high_watermark))
        self._require(machine, wrong, f"time {at_ms}")

    def _wrong_moment(self, reported: Any, at_ms: int, high_watermark: int) -> Iterator[str]:
        for batch in self._history.batches:
            within = reported.start_offset - 1 <= batch.last_offset <= reported.offset
            if within and batch.at_ms > at_ms:
                yield f"it includes {batch}, which was written later"
        after = self._history.batch_at(reported.offset + 1)
        if after is not None and after.last_offset < high_watermark and after.at_ms <= at_ms:
            yield f"it lacks {after}"

    def _check_bounds(self, machine: "Machine", node: Any, now: Any) -> None:
        """Check that offsets not yet committed and offsets no longer retained are refused."""
        future = self._ask(machine, node, at_offset=node.raft.high_watermark)
        wrong = [] if future is None else [f"it returned the state at {future.offset}"]
        oldest = now.start_offset - 2
        if oldest >= 0 and self._ask(machine, node, at_offset=oldest) is not None:
            wrong.append(f"it returned offset {oldest}, its log starts at {now.start_offset}")
        self._require(machine, wrong, "offsets outside its log")

    # ---- leaders' journals

    def _check_isr_journal(self, machine: "Machine", node: Any) -> None:
        confirmed = self.isr_oracle.confirmed.get((machine.name, machine.life), ())
        seen = (machine.life, len(confirmed))
        if node.broker is None or not confirmed or self._compared.get(machine.name) == seen:
            return
        self._compared[machine.name] = seen
        for topic in sorted({each.topic for each in confirmed}):
            reported = _isr_changes(node, topic).changes
            wrong = self._wrong_isr_changes(reported, [e for e in confirmed if e.topic == topic])
            self._require(machine, list(wrong), f"the ISRs of {topic}")

    def _wrong_isr_changes(
        self, reported: list[Any], confirmed: list[ConfirmedIsrChange]
    ) -> Iterator[str]:
        if len(reported) != len(confirmed):
            yield f"the journal has {len(reported)} changes, observed were {len(confirmed)}"
            return
        for entry, known in zip(reported, confirmed, strict=True):
            for wrong in self._wrong_isr_change(entry, known):
                yield f"{entry}: {wrong}"

    def _wrong_isr_change(self, entry: Any, known: ConfirmedIsrChange) -> Iterator[str]:
        place = (entry.partition, entry.at_ms, entry.leader_epoch, entry.partition_epoch)
        is_place = (known.where[1], known.at_ms, known.leader_epoch, known.partition_epoch)
        if place != is_place:
            yield f"observed was {is_place}"
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
            yield f"in the log the ISR changed from {sorted(before)} to {sorted(after)}"
        joined = set() if entry.joined < 0 else {entry.joined}
        if joined != after - before:
            yield f"in the log {sorted(after - before)} joined"
        left = {e.replica: (e.log_end_offset, e.leader_end, e.behind_ms) for e in entry.left}
        left_isr = {r: known.behind[r] for r in sorted(before - after) if r in known.behind}
        if left != {
            r: (*b[:2], -1 if b.behind_ms is None else b.behind_ms) for r, b in left_isr.items()
        }:
            yield f"in the log {left_isr} left"
        limit = known.slow_ms
        quick = [r for r, b in left_isr.items() if b.behind_ms is not None and b.behind_ms <= limit]
        if quick:
            yield f"{quick} had caught up less than {limit} ms before"

    # ---- documents of the commands

    def _check_documents(self, machine: "Machine", now: Any, nodes: list[Any]) -> None:
        """Check the documents built from the node's response and the journals of all nodes."""
        image = self._history.image_at(now.offset)
        question = self._request(image)
        question.journal_only = True
        services = [node.broker or node.controller_services for _, node in nodes]
        journals = [_described(k10002.describe(each, own_context(), question)) for each in services]
        brokers = [node for _, node in nodes if node.broker is not None]
        changes = {
            topic.name: [_isr_changes(node, topic.name) for node in brokers]
            for topic in question.topics
        }
        report = merge_journals(now, journals, changes, {})
        span = Span(now.start_offset, now.offset, question.events_max)
        lives = [(other.name, other.life) for other, node in nodes if node.broker is not None]
        confirmed = {
            (each.where, each.partition_epoch): each
            for life in lives
            for each in self.isr_oracle.confirmed.get(life, ())
        }
        wrong = list(wrong_documents(report, span, self._truth, confirmed))
        wrong += wrong_response(now, span, self._truth)  # now with the reasons from all journals
        self._require(machine, wrong, "documents merged from all nodes")

    def _require(self, machine: "Machine", wrong: list[str], what: str) -> None:
        text = f"{machine.name} explains {what}: {'; '.join(wrong[:3])}"
        self._check(not wrong, "E1", text)


def _isr_changes(node: Any, topic: str) -> Any:
    return k10003.describe(node.broker, DescribeIsrChangesRequest(topic=topic))


def own_context() -> RequestContext:
    """Return a context that is authorized for everything, for calls without a connection."""
    return RequestContext(
        0, 0, 0, None, session=NodeSession("CONTROLLER"), connection=None, received_ms=0
    )


def _partitions_of(image: "ClusterImage") -> set[Any]:
    return {(topic.id, index) for topic in image.topics_in_order() for index in topic.partitions}


def _described(steps: Generator[Any, Any, T]) -> T:
    """Do all the work of a handler, without advancing the simulated event loop."""
    sent: Any = None
    while True:
        try:
            got = steps.send(sent)
        except StopIteration as done:
            result: T = done.value
            return result
        sent = None if isinstance(got, int) else _at_once(got)


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that only yields, without advancing the simulated event loop."""
    step: Callable[[None], Any] = work.send
    for _ in range(YIELDS_MAX):
        try:
            step(None)
        except StopIteration as done:
            result: T = done.value
            return result
    work.close()
    raise Violation("E1", f"no response after {YIELDS_MAX} yields: it waits for another task")

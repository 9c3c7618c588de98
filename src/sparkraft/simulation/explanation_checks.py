"""E1: what every node tells of leaders and ISRs is what happened, and why it happened.

What happened is noted here as it is committed. At the end every node is asked what `explain` would
be told: its metadata log read again, with the reasons of the journals. A change that is missing,
invented or altered, and a reason that does not lead to the leader, is a violation.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from sparkraft.controller.explanation_check import Fact, disagreements, wrong_reason
from sparkraft.controller.history import History
from sparkraft.metadata.apply import apply
from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.protocol.framing import decode_metadata_record
from sparkraft.records.record import decode_records
from sparkraft.server.raft.history import Question

if TYPE_CHECKING:
    from sparkraft.base.ids import Uuid
    from sparkraft.metadata.image import Partition
    from sparkraft.simulation.machine import Machine
    from sparkraft.simulation.nodes import NodesWorld

EVENTS_MAX = 100_000
"""Of one partition: more than a run has."""

T = TypeVar("T")


class ExplanationChecks:
    """See the module docstring."""

    def __init__(self, world: "NodesWorld") -> None:
        """Nothing has happened yet."""
        self._world = world
        self._facts: dict[tuple[Uuid, int], list[Fact]] = {}
        self._image = EMPTY_IMAGE

    def on_committed(self, view: memoryview) -> None:
        """Each committed data batch of the metadata log once, in order."""
        for record in decode_records(view):
            before = self._image
            self._image = apply(before, decode_metadata_record(record.value or b"")[0])
            if before.topics_by_id is not self._image.topics_by_id:
                self._note_changes(record.offset, before, self._image)

    def _note_changes(self, offset: int, before: ClusterImage, after: ClusterImage) -> None:
        for topic_id in sorted({*before.topics_by_id, *after.topics_by_id}):
            old = before.topics_by_id.get(topic_id)
            new = after.topics_by_id.get(topic_id)
            if old is new:
                continue
            indexes = {*(old.partitions if old else ()), *(new.partitions if new else ())}
            for index in sorted(indexes):
                now = after.partition(topic_id, index)
                if now != before.partition(topic_id, index):
                    self._note(topic_id, index, Fact(offset, now))

    def _note(self, topic_id: "Uuid", index: int, fact: Fact) -> None:
        self._facts.setdefault((topic_id, index), []).append(fact)

    def at_end(self) -> None:
        """Ask every node that runs."""
        for machine in self._world.machines:
            node = machine.live_node
            if machine not in self._world.broken and node is not None and node.raft is not None:
                self._check(machine, node)

    def _check(self, machine: "Machine", node: Any) -> None:
        question = Question(wanted=lambda *_: True, events_max=EVENTS_MAX, whole_log=True)
        history = _at_once(node.raft.past.read(question))
        for (topic_id, index), facts in sorted(self._facts.items()):
            events = history.partition_events(topic_id, index)
            known = [f for f in facts if f.offset < history.image.offset + 1]
            told = known and known[-1].offset >= history.start
            wrong = disagreements(events, known) if told else []
            self._require(machine, not wrong, f"{topic_id}-{index}: {'; '.join(wrong[:3])}")
            present = history.image.partition(topic_id, index)
            self._require(
                machine,
                not known or present == known[-1].partition,
                f"{topic_id}-{index} is told to be {present}",
            )
        services = node.controller_services
        if services is not None:
            self._check_journal(machine, services.controller.core.journal.entries(), history)

    def _check_journal(self, machine: "Machine", entries: Any, history: History) -> None:
        """What a controller noted of elections that were committed."""
        for entry in entries:
            noted = entry.election
            for event in history.partition_events(noted.topic_id, noted.partition):
                after: Partition | None = event.after
                if after is None or not event.leader_changed:
                    continue
                same = (after.leader, after.leader_epoch) == (noted.leader, noted.leader_epoch)
                if not same or event.epoch != entry.epoch:
                    continue
                wrong = list(wrong_reason(noted.reason, after))
                place = f"{noted.topic}-{noted.partition} in epoch {noted.leader_epoch}"
                self._require(machine, not wrong, f"{place}: {'; '.join(wrong)}")
                derived = event.election
                self._require(
                    machine,
                    derived is None or derived.chosen_by is noted.reason.chosen_by,
                    f"{place}: noted as {noted.reason}, told as {derived}",
                )

    def _require(self, machine: "Machine", holds: object, text: str) -> None:
        self._world.checks.require(holds, "E1", f"{machine.name} explains {text}")


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run what only ever gives others their turn, while the simulated loop stands still."""
    step: Callable[[None], Any] = work.send
    while True:
        try:
            step(None)
        except StopIteration as done:
            result: T = done.value
            return result

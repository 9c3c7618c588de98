"""The contract between a coordinator's core (a shard) and the runtime that executes it.

A shard is a pure state machine over one partition of an internal topic. Request handlers decide
and return a `Decision`; only replay changes hard state. The runtime executes each decision:

    1. append `records` as one batch and replay each of them
    2. when the batch is committed, or has failed: `on_append_completed(append_callback, error)`
    3. once everything the decision depends on is committed: start `effects`, send `response`
    4. `on_effect_completed(effect, result)` when an executor has finished an effect

Effects are plain data, and their results return as ordinary events, so that a simulator can
delay, drop and repeat them. A runtime may lose an effect at any time (leadership moves, the broker
stops); a shard that needs one repeats it after `loaded`, or by a timer.

Order of calls: `replay` for every record of the log, `loaded` once, then any of the others;
`unload` last. All calls come from one event loop, and none of them blocks.

A decision whose work grows with its input is returned as `Steps`. The runtime calls nothing else
until these steps, and then those of encoding and replaying the records, have ended.

Boundary: no clock, no socket, no log. `sparkraft.server.coordinator` implements the runtime.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Millis, Offset, Uuid
from sparkraft.base.placeholder_ids import is_same_topic
from sparkraft.base.steps import complete
from sparkraft.coordinator.steps import Deciding, Steps, pieces
from sparkraft.metadata.image import ClusterImage, Topic

R = TypeVar("R")
"""The record type of a shard's internal topic."""

R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")

NO_PRODUCER_ID = -1

ReplyTo = int
"""Identifies a parked request. Assigned by the runtime, returned by `take_replies`."""


class Instant(NamedTuple):
    """The current time on both clocks: `mono_ms` for timers, `wall_ms` for records."""

    mono_ms: Millis
    wall_ms: Millis


class ProducerEpoch(NamedTuple):
    """The producer whose transaction records belong to."""

    producer_id: int
    producer_epoch: int


class AppendCallback:
    """Base of what a shard wants to know about an append; opaque to the runtime."""

    __slots__ = ()


class Effect:
    """Base of work outside the shard, such as sending transaction markers or creating a topic.

    The runtime finds the executor by the effect's class.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[R_co, T_co]):
    """The result of a request, timer or event. See the module docstring for the order.

    Attributes:
        response: None if the request is parked (`take_replies`) or there is no request.
        records: appended as one batch; empty if there is nothing to write.
        is_atomic: False: more than one batch is fine, for tombstones that no batch can hold. Then
            it has neither `append_callback` nor `effects`.
        replay: whether the runtime replays the records once appended. False if the live state
            is ahead of its record already.
        producer: the transaction that the records belong to; None: they count at once.
        append_callback: passed to `on_append_completed`; requires records.
        effects: started once the records are committed, or, without records, once everything
            written before them is. Dropped if the append fails.
    """

    response: T_co
    records: tuple[R_co, ...] = ()
    is_atomic: bool = True
    replay: bool = True
    producer: ProducerEpoch | None = None
    append_callback: AppendCallback | None = None
    effects: tuple[Effect, ...] = ()

    def with_response(self, response: U) -> "Decision[R_co, U]":
        """The same decision with another response."""
        return Decision(
            response=response,
            records=self.records,
            is_atomic=self.is_atomic,
            replay=self.replay,
            producer=self.producer,
            append_callback=self.append_callback,
            effects=self.effects,
        )


class TopicChanges(NamedTuple):
    """Topics that differ between two images.

    Attributes:
        names: of those that may differ; of all if any may.
        deleted: names of those whose ids exist in the earlier image only.
        has_new: whether an id exists in the later image only.
    """

    names: frozenset[str]
    deleted: frozenset[str]
    has_new: bool


class MetadataDelta:
    """A change of the cluster image, shared by all shards of a broker."""

    def __init__(
        self, before: ClusterImage, image: ClusterImage, changed: Iterable[Uuid] | None
    ) -> None:
        """Describe the change from `before` to `image`.

        Args:
            before: the previous image.
            image: the current image.
            changed: ids of topics that may differ; None if any may.
        """
        self.before = before
        self.image = image
        self.changed = changed
        self._topics: TopicChanges | None = None

    @property
    def deleted_topics(self) -> frozenset[str]:
        """Names of topics whose ids exist in `before` only, and not under another placeholder."""
        return complete(self.topics()).deleted

    def topics(self) -> Steps[TopicChanges]:
        """The changes of topics, found once for all shards."""
        if self._topics is None:
            self._topics = yield from self._find_topics()
        return self._topics

    def _find_topics(self) -> Steps[TopicChanges]:
        before, after = self.before.topics_by_id, self.image.topics_by_id
        names: set[str] = set()
        deleted: set[str] = set()
        has_new = False
        sources = (before, after) if self.changed is None else (self.changed,)
        for ids in sources:
            for piece in pieces(ids):
                for topic_id in piece:
                    was, now = before.get(topic_id), after.get(topic_id)
                    names.update(topic.name for topic in (was, now) if topic is not None)
                    if now is None and was is not None and not self._lives_on(was):
                        deleted.add(was.name)
                    has_new |= was is None and now is not None
                yield len(piece) >> 1
        return TopicChanges(frozenset(names), frozenset(deleted), has_new)

    def _lives_on(self, was: Topic) -> bool:
        """Whether a topic has got its id, or lost it; see `base.placeholder_ids`."""
        now = self.image.topics_by_name.get(was.name)
        return now is not None and is_same_topic(was.id, now)


class CoordinatorShard(Protocol[R]):
    """The core of one partition of an internal topic; `R` is the topic's record type."""

    # The log

    def replay(self, offset: Offset, record: R, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record; `producer_id` if it belongs to a transaction."""

    def replay_in_steps(
        self, offset: Offset, record: R, producer_id: int = NO_PRODUCER_ID
    ) -> Steps[None]:
        """The same in pieces, for a record that is long or one of many."""

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> Steps[None]:
        """Apply a transaction marker, in pieces: a transaction may have any number of records."""

    def loaded(self, image: ClusterImage, now: Instant) -> Deciding[Decision[R, None]]:
        """Start serving: the whole log has been replayed. Schedules sessions and other timers."""

    def unload(self, now: Instant) -> Deciding[None]:
        """Stop serving. Adds a NOT_COORDINATOR reply for every parked request."""

    # Events

    def on_image(self, delta: MetadataDelta, now: Instant) -> Deciding[Decision[R, None]]:
        """React to new metadata."""

    def on_append_completed(
        self, callback: AppendCallback, error: ErrorCode | None, now: Instant
    ) -> Deciding[Decision[R, None]]:
        """React to the end of an append; `error` if its records were not committed."""

    def on_effect_completed(
        self, effect: Effect, result: Any | KafkaError, now: Instant
    ) -> Deciding[Decision[R, None]]:
        """React to the result of an effect, or to the error that ended it."""

    # Timers and parked requests

    @property
    def wake_at(self) -> Millis | None:
        """When to call `on_timers` next, on the monotonic clock; None for never."""

    def on_timers(self, now: Instant) -> Iterable[Deciding[Decision[R, None]]]:
        """Fire the timers that are due. Execute each decision before requesting the next."""

    def take_replies(self) -> list[tuple[ReplyTo, Any]]:
        """Responses to parked requests since the last call, to be sent in order."""

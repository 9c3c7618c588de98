"""Incremental fetch sessions (KIP-227): a client's fetched partitions are kept between requests.

A full fetch (epoch 0) requests a session and gets an id; the next ones (epochs 1, 2 …) name only
changes, and their responses contain only partitions with news. Epoch -1 is a full fetch without a
session, and ends the one it names.

    session_id 0, epoch 0   → new session, all partitions and the id in the response
    session_id n, epoch k   → k must be the next one, else INVALID_FETCH_SESSION_EPOCH
    session_id n, epoch -1  → session n ends

A consumer's session costs what changed. Its partitions are registered with the hosted partitions
(`HostedPartition.waiters`), which report every event that a consumer could notice: more readable
bytes, a moved log start, a truncation, another role, epoch or log, the end. A fetch reads only
`FetchSession.changed`:

    named by a request, or reported by its partition → changed
    read to its visible end, and the client has its values → settled, until the next report
    data returned, an error, cut off by max_bytes → still changed

The cache is bounded (max.incremental.fetch.session.cache.slots, 1000). A new session takes the
slot of one unused for `EVICTION_MS_MIN`; if there is none the client gets no session (id 0), which
is correct but slower. All sessions together keep sparkraft.fetch.session.partitions.max partitions;
above it a new session is not made, and a request that adds partitions ends its session.
"""

from collections import deque
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.loop_work import LoopBound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.base.env import Clock, Entropy
    from sparkraft.base.ids import Uuid
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.purgatory import FetchWaiter
    from sparkraft.server.broker.topic_traffic import TopicTraffic

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS_MIN = 120_000
"""How long a session must be unused before another may take its slot."""

EPOCH_MAX = (1 << 31) - 1

LEFT_AT_ONCE_MAX: LoopBound = 2_000
"""Partitions of ended sessions that are unregistered with each request: well below 1 ms."""

SORTED_MAX: LoopBound = 10_000
"""Changed partitions that are put in order for one fetch: 2 ms."""

_by_order = attrgetter("order")


class SessionPartition:
    """One partition of a session: the last request and the last response.

    In a consumer's session it is a `PartitionReader`: it notes that its partition changed.
    """

    __slots__ = (
        "_watched",
        "current_leader_epoch",
        "fetch_offset",
        "had_error",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "order",
        "quiet",
        "replica_log_start_offset",
        "session",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(self, topic: str | None, topic_id: "Uuid", index: int) -> None:
        """Without a request yet; `topic` is None while its id is unknown here."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.replica_log_start_offset = -1
        self.high_watermark = -1
        self.log_start_offset = -1
        self.had_error = False
        self.traffic: TopicTraffic | None = None
        """The counters of its topic, once it was read."""
        self.quiet: HostedPartition | None = None
        """Set for a follower that has read to the log's end: the partition to check for news."""
        self.session: FetchSession | None = None
        """The consumer's session; None in others, whose partitions are read each time."""
        self.order = 0
        """Its place in the session's reading order."""
        self._watched: HostedPartition | None = None

    # ---- reports of its partition

    def join(self, session: "FetchSession") -> None:
        """Belong to a consumer's session."""
        self.session = session

    def name_topic(self, name: str) -> None:
        """Take the name that its topic id has here."""
        self.topic = name

    def move_to(self, order: int) -> None:
        """Take a place in the session's reading order."""
        self.order = order

    def read_from(self, traffic: "TopicTraffic") -> None:
        """Count what is read with the other reads of its topic."""
        self.traffic = traffic
        traffic.on_read()

    def watch(self, hosted: "HostedPartition") -> None:
        """Have `hosted` report to this partition of a session, and no other."""
        if self._watched is not hosted:
            self.unwatch()
            self._watched = hosted
            hosted.waiters[self] = None

    def unwatch(self) -> None:
        """Get no reports any more."""
        if self._watched is not None:
            self._watched.waiters.pop(self, None)
            self._watched = None

    def note_end(self, hosted: "HostedPartition | None") -> None:
        """Remember that a follower has read `hosted` to its end; None if it must read again."""
        self.quiet = hosted

    def on_bytes(self, count: int) -> None:
        """See `PartitionReader.on_bytes`."""
        session = self.session
        if session is not None:
            session.changed[self] = None
            for waiter in session.waiters:
                waiter.on_bytes(count)

    def on_bounds(self) -> None:
        """See `PartitionReader.on_bounds`."""
        if self.session is not None:
            self.session.changed[self] = None

    def finish(self) -> None:
        """See `PartitionReader.finish`."""
        session = self.session
        if session is not None:
            session.changed[self] = None
            for waiter in session.waiters:
                waiter.finish()

    # ---- requests and responses

    def on_request(self, asked: Any) -> None:
        """Apply a request (a `FetchPartition`)."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.replica_log_start_offset = asked.log_start_offset
        self.quiet = None
        if self.session is not None:
            self.session.changed[self] = None

    def is_settled(self, answer: Any, visible_end: int) -> bool:
        """Whether `answer` has no news for the client, and nothing was left unread."""
        return (
            self.fetch_offset >= visible_end
            and not answer.records
            and not answer.error_code
            and not self.had_error
            and self.high_watermark == answer.high_watermark
            and self.log_start_offset == answer.log_start_offset
            and answer.diverging_epoch.epoch < 0
            and answer.preferred_read_replica < 0
        )

    def is_quiet(self, hosted: "HostedPartition") -> bool:
        """Whether `hosted` has no news, and is still led in the same epoch."""
        log = hosted.log
        return (
            log.log_end_offset == self.fetch_offset
            and log.high_watermark == self.high_watermark
            and log.log_start_offset == self.log_start_offset
            and hosted.is_leader
            and hosted.leader_epoch == self.current_leader_epoch
            and log.fault is None
            and not self.had_error
        )

    def has_news(self, answer: Any) -> bool:
        """Whether an incremental response must contain `answer`; remembers its values.

        News: records, an error, a moved high watermark or log start, a diverging epoch, a preferred
        read replica; and the first response after an error.
        """
        news = bool(answer.records) or answer.error_code != 0 or self.had_error
        if answer.high_watermark != self.high_watermark:
            news = True
            self.high_watermark = answer.high_watermark
        if answer.log_start_offset != self.log_start_offset:
            news = True
            self.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica != -1 or answer.diverging_epoch.epoch != -1:
            news = True
        self.had_error = answer.error_code != 0
        if self.had_error:
            self.high_watermark = -1
        return news


Key = tuple[bytes | str, int]


class FetchSession:
    """A client's session.

    Attributes:
        partitions: in the order in which they are read.
        changed: those that the next fetch must read, in a consumer's session.
        waiters: parked fetches of a consumer's session.
        is_consumers: whether its partitions report changes.
        keeps_up: whether the last response probably left nothing to read.
    """

    __slots__ = (
        "_last_order",
        "_read_as",
        "changed",
        "created_ms",
        "epoch",
        "id",
        "is_consumers",
        "keeps_up",
        "last_used_ms",
        "partitions",
        "uses_ids",
        "waiters",
    )

    def __init__(self, session_id: int, *, now: int, uses_ids: bool, is_consumers: bool) -> None:
        """Start at epoch 1: the request that created it was epoch 0."""
        self.id = session_id
        self.epoch = 1
        self.created_ms = now
        self.last_used_ms = now
        self.uses_ids = uses_ids
        self.is_consumers = is_consumers
        self.keeps_up = False
        self.partitions: dict[Key, SessionPartition] = {}
        self.changed: dict[SessionPartition, None] = {}
        self.waiters: dict[FetchWaiter, None] = {}
        self._read_as: object = None
        self._last_order = 0

    def on_response(self, *, keeps_up: bool) -> None:
        """Remember whether a response probably left nothing to read."""
        self.keeps_up = keeps_up

    def add(self, key: Key, partition: SessionPartition) -> None:
        """Add a partition, to be read last."""
        self.partitions[key] = partition
        if self.is_consumers:
            partition.join(self)
            self._put_last(partition)
            self.changed[partition] = None

    def _put_last(self, partition: SessionPartition) -> None:
        self._last_order += 1
        partition.move_to(self._last_order)

    def forget(self, key: Key) -> None:
        """Remove a partition, if it is there."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.unwatch()
            self.changed.pop(partition, None)

    def read_as(self, how: object) -> None:
        """Read every partition again if `how`, what reads depend on, is not as the last time."""
        if self._read_as != how:
            self._read_as = how
            self.changed.update(dict.fromkeys(self.partitions.values()))

    def recheck(self, topics: "set[str]") -> None:
        """Read the partitions of these topics again, changed or not."""
        for partition in self.partitions.values():
            if partition.topic in topics:
                self.changed[partition] = None

    def to_read(self, count_max: int) -> tuple[list[SessionPartition], bool]:
        """The first changed partitions in the session's order, and whether there are more."""
        changed = self.changed
        first = changed if len(changed) <= SORTED_MAX else islice(changed, SORTED_MAX)
        return sorted(first, key=_by_order)[:count_max], len(changed) > count_max

    def on_read(self, partition: SessionPartition, answer: Any, visible_end: int) -> None:
        """Leave `partition` out of the next fetches if `answer` has no news."""
        if partition.is_settled(answer, visible_end):
            self.changed.pop(partition, None)
        else:
            self.changed[partition] = None

    def advance(self, now: int) -> None:
        """Expect the next epoch; the session was used at `now`, monotonic ms."""
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        self.last_used_ms = now

    def key_of(self, topic: Any, index: int) -> Key:
        """The key of a request's partition in this session."""
        return (topic.topic_id if self.uses_ids else topic.topic, index)

    def move_to_end(self, keys: "Iterable[Key]") -> None:
        """Read these last next time, so that no partition starves."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition
                self._put_last(partition)


class FetchSessions:
    """All sessions of a broker."""

    def __init__(
        self, clock: "Clock", entropy: "Entropy", *, slots: int, partitions_max: int = 500_000
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._slots = slots
        self._partitions_max = partitions_max
        self._kept = 0
        """Partitions of all sessions, or more: it is counted when it comes to the bound."""
        self._sessions: dict[int, FetchSession] = {}
        self._ended: deque[SessionPartition] = deque()
        """Partitions of ended sessions that still get reports."""

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int, epoch: int, *, uses_ids: bool) -> FetchSession:
        """The session of an incremental request; it advances to its next epoch.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
                FETCH_SESSION_TOPIC_ID_ERROR if names and ids are mixed.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.advance(self._clock.mono_ms())
        if self._ended:
            self._leave_partitions()
        # Ordered by last use: the first is the one to evict.
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return session

    def has_room(self, count: int) -> bool:
        """Whether sessions may keep `count` partitions more; they are reserved then."""
        if self._kept + count > self._partitions_max:
            self._kept = sum(len(session.partitions) for session in self._sessions.values())
        if self._kept + count > self._partitions_max:
            return False
        self._kept += count
        return True

    def size_of(self, session_id: int) -> int:
        """Partitions of a session; 0 if it is unknown."""
        session = self._sessions.get(session_id)
        return 0 if session is None else len(session.partitions)

    def keeps_up(self, session_id: int) -> bool:
        """Whether the last response of a consumer's session left nothing to read."""
        session = self._sessions.get(session_id)
        return session is not None and session.keeps_up

    def make(self, partitions: int, *, uses_ids: bool, is_consumers: bool) -> FetchSession | None:
        """Create a session; None if all slots are in use or its partitions exceed the bound."""
        self._leave_partitions()
        now = self._clock.mono_ms()
        if len(self._sessions) >= self._slots and not self._evict(now):
            return None
        if not self.has_room(partitions):
            return None
        session = FetchSession(
            self._new_id(), now=now, uses_ids=uses_ids, is_consumers=is_consumers
        )
        self._sessions[session.id] = session
        return session

    def has(self, session: FetchSession) -> bool:
        """Whether a session has not ended."""
        return self._sessions.get(session.id) is session

    def end(self, session_id: int) -> None:
        """Remove a session; its parked fetches complete."""
        session = self._sessions.pop(session_id, None)
        if session is not None and session.is_consumers:
            self._ended.extend(session.partitions.values())
            for waiter in session.waiters:
                waiter.finish()

    def _leave_partitions(self) -> None:
        """Unregister some partitions of ended sessions."""
        ended = self._ended
        for partition in list(islice(ended, LEFT_AT_ONCE_MAX)):
            partition.unwatch()
            ended.popleft()

    def _evict(self, now: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now - oldest.last_used_ms < EVICTION_MS_MIN:
            return False
        self.end(oldest.id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._entropy.below(EPOCH_MAX - 1) + 1
            if session_id not in self._sessions:
                return session_id

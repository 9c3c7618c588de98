"""The follower's end of an incremental fetch session (KIP-227, Kafka's FetchSessionHandler).

The leader remembers a follower's partitions; a request names only changes since the last one.

    epoch 0, id 0   all partitions; the response may open a session
    epoch n, id s   only partitions that changed, and those to forget
    epoch 0, id s   after an error: close session s, open a new one

`add` and `forget` collect changes for the next request; `request` fills it; `accept` checks the
response. One request is in flight at a time, and its response is about the current `partitions`.

A request names topics by id and by name, and its version decides which of both is sent (KIP-516).
A session uses one of them: if a topic without an id enters it, or the last one leaves, the next
request opens a new session, as in Kafka. Responses by name get the ids of the session's topics.

Not here: the leader's end (`sparkraft.server.broker.fetch_sessions`).
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import TopicIdPartition, Uuid
from sparkraft.base.loop_work import LoopBound
from sparkraft.base.placeholder_ids import is_placeholder
from sparkraft.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

PARTITIONS_PER_STEP: LoopBound = 100
"""Partitions of a fetcher that are looked at before others run: there may be thousands."""

EPOCH_MAX = (1 << 31) - 1
"""The session epoch that is followed by 1."""


class FetchPosition(NamedTuple):
    """The position of a partition in a request."""

    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    """-1 if unknown."""
    topic: str = ""
    """The topic's name; leaders of Fetch up to v12 know no ids."""


class SessionTopics:
    """The topics of a session's partitions.

    Attributes:
        without_ids: partitions of topics without an id.
    """

    def __init__(self) -> None:
        self.without_ids = 0
        self._ids: dict[str, Uuid] = {}
        self._counts: Counter[Uuid] = Counter()

    def enter(self, name: str, topic_id: Uuid) -> None:
        """Add a partition of a topic."""
        self._ids[name] = topic_id
        self._counts[topic_id] += 1
        self.without_ids += is_placeholder(topic_id)

    def leave(self, name: str, topic_id: Uuid) -> None:
        """Remove a partition of a topic."""
        self.without_ids -= is_placeholder(topic_id)
        self._counts[topic_id] -= 1
        if not self._counts[topic_id]:
            del self._counts[topic_id]
            if self._ids.get(name) == topic_id:
                del self._ids[name]

    def id_of(self, name: str) -> Uuid:
        """Return the id of a topic; zero if it has no partition in the session."""
        return self._ids.get(name, Uuid.ZERO)


class ClientFetchSession:
    """See the module docstring.

    Attributes:
        partitions: the session's partitions once the next request has arrived, in the leader's
            reading order: a changed partition comes last.
        trouble: why the last response was unusable, for the log; empty if it was usable.
    """

    def __init__(self, partition_bytes_max: int) -> None:
        """No session yet; `partition_bytes_max` goes with each partition."""
        self.id = 0
        self.epoch = 0
        self.partitions: dict[TopicIdPartition, FetchPosition] = {}
        self.trouble = ""
        self._partition_bytes_max = partition_bytes_max
        self._changed: dict[TopicIdPartition, None] = {}
        self._forgotten: dict[TopicIdPartition, str] = {}
        """The topic's name, by partition."""
        self._topics_by_name = SessionTopics()
        self._used_ids = True
        """Whether the last request could name all topics by id."""

    @property
    def has_ids(self) -> bool:
        """Whether all topics of the session have an id."""
        return not self._topics_by_name.without_ids

    # -- changes for the next request

    def add(self, key: TopicIdPartition, position: FetchPosition) -> None:
        """Fetch `key` from `position` in the next request; moves it last if that is a change."""
        if self.partitions.get(key) != position:
            if self.partitions.pop(key, None) is None:
                self._topics_by_name.enter(position.topic, key[0])
            self.partitions[key] = position
            self._changed[key] = None
            self._forgotten.pop(key, None)

    def forget(self, key: TopicIdPartition) -> None:
        """Remove `key` from the session."""
        position = self.partitions.pop(key, None)
        if position is not None:
            self._topics_by_name.leave(position.topic, key[0])
            self._changed.pop(key, None)
            self._forgotten[key] = position.topic

    def has_request(self) -> bool:
        """Whether there is anything to send: a partition to fetch, or one to forget."""
        return bool(self.partitions) or (self.epoch > 0 and bool(self._forgotten))

    def request(self, request: FetchRequest) -> Generator[int, None, None]:
        """Fill in the session's fields, and clear the collected changes; yields what is done."""
        if self.has_ids != self._used_ids:
            self._used_ids = self.has_ids
            self.lost()
        request.session_id = self.id
        request.session_epoch = self.epoch
        named = self.partitions if self.epoch == 0 else self._changed
        request.topics = yield from self._topics(named)
        if self.epoch > 0:
            request.forgotten_topics_data = _forgotten_topics(self._forgotten)
        self._changed.clear()
        self._forgotten.clear()

    def _topics(self, named: Iterable[TopicIdPartition]) -> Generator[int, None, list[FetchTopic]]:
        """Adjacent partitions of a topic share an entry, to preserve the order."""
        topics: list[FetchTopic] = []
        for count, key in enumerate(named, 1):
            if not count % PARTITIONS_PER_STEP:
                yield PARTITIONS_PER_STEP
            topic_id, index = key
            position = self.partitions[key]
            if not topics or topics[-1].topic_id != topic_id:
                topics.append(FetchTopic(topic=position.topic, topic_id=topic_id))
            topics[-1].partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=self._partition_bytes_max,
                )
            )
        return topics

    # -- responses

    def accept(self, response: FetchResponse) -> bool:
        """Advance to the session's next epoch; returns whether the partitions may be used.

        The next request starts a new session if the leader lost or refused this one, if the
        response has partitions that were not requested, or if a full response lacks some.
        """
        self.trouble = ""
        self._identify(response)
        if response.error_code:
            self.trouble = _name_of(response.error_code)
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._reset()
            else:
                self.lost()
            return False
        problem = self._problem(response)
        if problem:
            self.trouble = problem
            if self.epoch == 0:
                self._reset()
            else:
                self.lost()
            return False
        if response.session_id == 0:
            self._reset()
        else:
            self.id = response.session_id
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        return True

    def _identify(self, response: FetchResponse) -> None:
        """Fill in the ids of topics that the response has by name."""
        for topic in response.responses:
            if topic.topic:
                topic.topic_id = self._topics_by_name.id_of(topic.topic)

    def lost(self) -> None:
        """Close the session after a failed request; the next request opens a new one."""
        self.epoch = 0

    def _reset(self) -> None:
        self.id = self.epoch = 0

    def _problem(self, response: FetchResponse) -> str:
        known = self.partitions
        count = extra = 0
        for topic in response.responses:
            for part in topic.partitions:
                count += 1
                extra += (topic.topic_id, part.partition_index) not in known
        if extra:
            return f"the response has {extra} partitions that were not requested"
        if self.epoch == 0 and count != len(known):
            return f"the response has {count} of {len(known)} partitions"
        return ""


def _forgotten_topics(forgotten: Mapping[TopicIdPartition, str]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for (topic_id, index), name in forgotten.items():
        topic = topics.setdefault(topic_id, ForgottenTopic(topic=name, topic_id=topic_id))
        topic.partitions.append(index)
    return list(topics.values())


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"

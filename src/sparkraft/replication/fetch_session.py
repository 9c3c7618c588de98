"""The follower's end of an incremental fetch session (KIP-227, Kafka's FetchSessionHandler).

The leader remembers what a follower reads; a request names only what changed since the last one.

    epoch 0, id 0   everything is named; the answer may open a session
    epoch n, id s   only partitions that changed, and those to forget
    epoch 0, id s   after an error: close session s, open a new one

`add` and `forget` gather what the next request must tell; `request` fills it; `accept` judges the
answer. One request at a time: what `partitions` holds then is what the answer is about.

Partitions are named by topic id alone: every metadata.version we join has Fetch v13 and up.
Not here: the leader's end (`sparkraft.server.broker.fetch_sessions`).
"""

from collections.abc import Iterable
from typing import NamedTuple

from sparkraft.base.errors import ErrorCode
from sparkraft.base.ids import TopicIdPartition, Uuid
from sparkraft.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

EPOCH_MAX = (1 << 31) - 1
"""The session epoch after which 1 comes again."""


class FetchPosition(NamedTuple):
    """What a request says of a partition."""

    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    """-1 where none is known."""


class ClientFetchSession:
    """See the module docstring.

    Attributes:
        partitions: what the leader reads for us once the next request has reached it, in the order
            in which it will: a partition asked anew stands last.
        trouble: why the last answer was not usable, for the log; empty where it was.
    """

    def __init__(self, partition_bytes_max: int) -> None:
        """No session yet; `partition_bytes_max` goes with each partition."""
        self.id = 0
        self.epoch = 0
        self.partitions: dict[TopicIdPartition, FetchPosition] = {}
        self.trouble = ""
        self._partition_bytes_max = partition_bytes_max
        self._changed: dict[TopicIdPartition, None] = {}
        self._forgotten: dict[TopicIdPartition, None] = {}

    # -- what the next request tells

    def add(self, key: TopicIdPartition, position: FetchPosition) -> None:
        """Read `key` from `position` from the next request on; last, unless nothing changed."""
        if self.partitions.get(key) != position:
            self.partitions.pop(key, None)
            self.partitions[key] = position
            self._changed[key] = None
            self._forgotten.pop(key, None)

    def forget(self, key: TopicIdPartition) -> None:
        """Read `key` no longer."""
        if self.partitions.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def has_request(self) -> bool:
        """Whether there is anything to ask: a partition to read, or one to forget in a session."""
        return bool(self.partitions) or (self.epoch > 0 and bool(self._forgotten))

    def request(self, request: FetchRequest) -> None:
        """Fill in what the session decides; everything gathered counts as told."""
        request.session_id = self.id
        request.session_epoch = self.epoch
        named = self.partitions if self.epoch == 0 else self._changed
        request.topics = self._topics(named)
        if self.epoch > 0:
            request.forgotten_topics_data = _forgotten_topics(self._forgotten)
        self._changed.clear()
        self._forgotten.clear()

    def _topics(self, named: Iterable[TopicIdPartition]) -> list[FetchTopic]:
        """Neighbours of one topic share its entry, so that the order stays."""
        topics: list[FetchTopic] = []
        for key in named:
            topic_id, index = key
            asked = self.partitions[key]
            if not topics or topics[-1].topic_id != topic_id:
                topics.append(FetchTopic(topic_id=topic_id))
            topics[-1].partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=asked.leader_epoch,
                    fetch_offset=asked.fetch_offset,
                    last_fetched_epoch=asked.last_fetched_epoch,
                    log_start_offset=asked.log_start_offset,
                    partition_max_bytes=self._partition_bytes_max,
                )
            )
        return topics

    # -- what came of it

    def accept(self, response: FetchResponse) -> bool:
        """Go on to the session's next epoch; whether the answer's partitions may be used.

        A session that the leader lost or refused begins anew with the next request. So does one
        whose answer names partitions that were not asked, or a full one that leaves some out.
        """
        self.trouble = ""
        if response.error_code:
            self.trouble = _name_of(response.error_code)
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._begin_anew()
            else:
                self.lost()
            return False
        problem = self._problem(response)
        if problem:
            self.trouble = problem
            if self.epoch == 0:
                self._begin_anew()
            else:
                self.lost()
            return False
        if response.session_id == 0:
            self._begin_anew()
        else:
            self.id = response.session_id
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        return True

    def lost(self) -> None:
        """The request failed or the session is of no more use: close it, and try for another."""
        self.epoch = 0

    def _begin_anew(self) -> None:
        self.id = self.epoch = 0

    def _problem(self, response: FetchResponse) -> str:
        known = self.partitions
        count = extra = 0
        for topic in response.responses:
            for part in topic.partitions:
                count += 1
                extra += (topic.topic_id, part.partition_index) not in known
        if extra:
            return f"{extra} partitions that were not asked"
        if self.epoch == 0 and count != len(known):
            return f"{count} of {len(known)} partitions"
        return ""


def _forgotten_topics(forgotten: Iterable[TopicIdPartition]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, index in forgotten:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
    return list(topics.values())


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"

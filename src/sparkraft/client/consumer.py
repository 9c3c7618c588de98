"""Reads records: of partitions it is given, or of those a group gives it.

    poll() → fetch from every broker that has none in flight → records, at most `max_poll_records`

A partition is read from its leader, or from the follower in our rack that the leader names
(`client_rack`, KIP-392), until that one fails or `_PREFERENCE_SECONDS` have passed.

One fetch per broker is in flight, also between polls, so that records are available at the next
poll. A partition with unread records is not fetched again: memory stays within
`partition_bytes_max` per partition.

Invariants:
    * Positions move only by what `poll` has returned.
    * Records of control batches and, with read_committed, of aborted transactions never come out.
    * After a `seek`, records fetched for the old position are dropped.

Not done: fetch sessions (each fetch names its partitions).
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Cluster, check, code_of
from sparkraft.client.consumer_membership import ConsumerMembership
from sparkraft.client.errors import UnreadableBatchError
from sparkraft.client.groups import Groups
from sparkraft.client.membership import Membership
from sparkraft.client.reading import ConsumedRecord, Reading, is_unset, visible_records
from sparkraft.client.subscription import (
    CONSUMER,
    GroupSettings,
    NoListener,
    RebalanceListener,
    Subscription,
)
from sparkraft.client.values import EARLIEST, LATEST, Committed, GroupMetadata
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.base.ids import TopicPartition


_BY_TOPIC_ID = 13
_BY_NAME_MAX = 9
_READ_COMMITTED = 1
_METADATA_SECONDS = 30
_COMMITS_MAX = 5
"""Attempts to commit while the member epoch changes."""
_PREFERENCE_SECONDS = 300
"""How long a follower is read before the leader is asked again; Kafka's metadata.max.age.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Kafka's consumer configs."""

    group: GroupSettings | None = None
    auto_offset_reset: str = "latest"
    """`earliest`, `latest` or `none`."""
    read_committed: bool = False
    max_poll_records: int = 500
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 50 << 20
    partition_bytes_max: int = 1 << 20
    fetch_wait_ms_max: int = 500
    auto_commit_interval_ms: int = 0
    """0: only `commit` commits."""
    check_crcs: bool = True
    client_rack: str = ""
    """The rack of this consumer; a broker may direct it to a follower in the same rack
    (KIP-392)."""


class Consumer:
    """Reads over a `Cluster`, which stays the caller's to close. Close it to leave its group."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings | None = None) -> None:
        """Prepare; `assign` or `subscribe` next."""
        self.cluster = cluster
        self.settings = settings or ConsumerSettings()
        self._readings: dict[TopicPartition, Reading] = {}
        self._fetches: dict[int, asyncio.Task[None]] = {}
        self._arrived = asyncio.Event()
        self._failure: KafkaError | None = None
        self._out_of_range: set[TopicPartition] = set()
        self._topics: frozenset[str] = frozenset()
        self._pattern: str | None = None
        self._pattern_read_at = float("-inf")
        self._committed_at = 0.0
        self._listener: RebalanceListener = NoListener()
        self._membership: Membership | ConsumerMembership | None = None
        group = self.settings.group
        if group is not None and group.protocol == CONSUMER:
            self._membership = ConsumerMembership(
                cluster, group, self._subscription, self._arrived.set
            )
        elif group is not None:
            self._membership = Membership(cluster, group, lambda: self._topics)

    async def __aenter__(self) -> Consumer:
        """Use it as a context manager to leave the group for sure."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    # assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without a group's say."""
        wanted = set(partitions)
        for gone in set(self._readings) - wanted:
            del self._readings[gone]
        for tp in sorted(wanted):
            self._readings.setdefault(tp, Reading())

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read what the group gives of `topics`, or of topics whose whole name fits `pattern`.

        Args:
            topics: names.
            pattern: a regular expression. With the protocol `consumer` the group's coordinator
                evaluates it, as RE2; otherwise this client, as Python's `re`.
            listener: called when partitions are assigned or taken away.
        """
        assert self._membership is not None, "subscribe needs a group"
        self._topics = frozenset(topics)
        if pattern is not None and isinstance(self._membership, Membership):
            re.compile(pattern)  # an error is the caller's
        self._pattern = pattern
        self._listener = listener or NoListener()

    def _subscription(self) -> Subscription:
        return Subscription(topics=self._topics, pattern=self._pattern)

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions being read."""
        return tuple(self._readings)

    @property
    def membership(self) -> Membership | ConsumerMembership | None:
        """The group membership, if there is one."""
        return self._membership

    @property
    def group_metadata(self) -> GroupMetadata:
        """This member as it is now, for `TransactionalProducer.send_offsets_to_transaction`."""
        group, membership = self.settings.group, self._membership
        assert group is not None, "group_metadata needs a group"
        assert membership is not None
        if not membership.is_member:
            return GroupMetadata(group_id=group.group_id)
        return GroupMetadata(
            group_id=group.group_id,
            generation=membership.generation,
            member_id=membership.member_id,
            instance_id=group.instance_id,
        )

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at `offset`; -1 is the end, -2 the beginning."""
        reading = self._readings[tp]
        reading.position = offset
        reading.pending = None
        reading.epoch += 1

    def position(self, tp: TopicPartition) -> int | None:
        """The offset of the record that comes next; None while it is not known."""
        return self._readings[tp].position

    def high_watermark(self, tp: TopicPartition) -> int:
        """As the last fetch saw it; -1 before one."""
        return self._readings[tp].high_watermark

    def pause(self, tp: TopicPartition) -> None:
        """Return nothing of it until `resume`."""
        self._readings[tp].is_paused = True

    def resume(self, tp: TopicPartition) -> None:
        """Resume fetching the partition."""
        self._readings[tp].is_paused = False

    # reading

    async def poll(self, timeout_ms: int = 1_000) -> list[ConsumedRecord]:
        """Records that come next; none if `timeout_ms` passes first.

        Raises:
            KafkaError: an error that retries cannot fix, such as OFFSET_OUT_OF_RANGE without a
                reset.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            self._arrived.clear()
            await self._keep_group()
            records = self._take()
            if self._failure is not None and not records:
                failure, self._failure = self._failure, None
                raise failure
            await self._find_positions()
            await self._start_fetches()
            left = deadline - loop.time()
            if records or left <= 0:
                await self._maybe_commit()
                return records
            try:
                # At most a second, to notice that the group rebalances.
                async with asyncio.timeout(min(left, 1.0)):
                    await self._arrived.wait()
            except TimeoutError:
                pass

    def _take(self) -> list[ConsumedRecord]:
        """Up to `max_poll_records` of what has arrived."""
        records: list[ConsumedRecord] = []
        room = self.settings.max_poll_records
        for tp, reading in list(self._readings.items()):
            if reading.pending is None or reading.is_paused:
                continue
            try:
                done = self._take_from(reading, records, room)
            except UnreadableBatchError as error:
                self._failure = error
                reading.pending = None
                continue
            except DecodeError as error:
                detail = f"{tp[0]}-{tp[1]} at offset {reading.position}: {error}"
                self._failure = KafkaError(ErrorCode.CORRUPT_MESSAGE, detail)
                reading.pending = None
                continue
            if done:
                reading.pending = None
                # The next one in turn: a busy partition must not starve the others.
                self._readings[tp] = self._readings.pop(tp)
            if len(records) >= room:
                break
        return records

    def _take_from(self, reading: Reading, out: list[ConsumedRecord], room: int) -> bool:
        assert reading.pending is not None
        for record in reading.pending:
            out.append(record)
            reading.position = record.offset + 1
            if len(out) >= room:
                return False
        return True

    async def _start_fetches(self) -> None:
        wanting: dict[int, list[TopicPartition]] = {}
        for tp, reading in self._readings.items():
            if reading.pending is not None or reading.is_paused:
                continue
            if is_unset(reading.position):
                continue
            try:
                info = await self.cluster.leader(*tp)
            except KafkaError as error:
                self._on_error(tp, error)
                continue
            wanting.setdefault(self._read_from(reading, info.leader), []).append(tp)
        for leader, partitions in wanting.items():
            task = self._fetches.get(leader)
            if task is None or task.done():
                self._fetches[leader] = asyncio.get_running_loop().create_task(
                    self._fetch(leader, partitions)
                )

    def _read_from(self, reading: Reading, leader: int) -> int:
        """The broker to read a partition from."""
        if reading.preferred is None:
            return leader
        known = self.cluster.view.nodes
        if asyncio.get_running_loop().time() > reading.preferred_until or (
            reading.preferred not in known
        ):
            reading.preferred = None
            return leader
        return reading.preferred

    async def _fetch(self, leader: int, partitions: list[TopicPartition]) -> None:
        asked = {tp: (self._readings[tp], self._readings[tp].epoch) for tp in partitions}
        try:
            connection = await self.cluster.connection(leader, parked=True)
            highest = self.cluster.view.version_by_ids(topic for topic, _ in partitions)
            version = connection.version_for(ApiKey.FETCH, at_most=highest)
            answer = await connection.send(
                self._request(partitions, by_id=version >= _BY_TOPIC_ID),
                version=version,
                timeout_ms=self.cluster.request_timeout_ms + self.settings.fetch_wait_ms_max,
            )
            check(answer.error_code)
        except KafkaError as error:
            for topic, _ in partitions:
                self.cluster.forget_topic(topic)
            for reading, _ in asked.values():
                reading.preferred = None
            if not error.code.is_retriable:
                self._failure = error
            await asyncio.sleep(0.1)
            self._arrived.set()
            return
        self._on_answer(answer, asked, by_id=version >= _BY_TOPIC_ID)

    def _request(self, partitions: list[TopicPartition], *, by_id: bool) -> Any:
        from sparkraft.protocol.messages import k01_fetch as k01

        topics: dict[str, Any] = {}
        for name, index in partitions:
            info = self.cluster.view.topics[name]
            topic = topics.get(name)
            if topic is None:
                topic = k01.FetchTopic(topic_id=info.id) if by_id else k01.FetchTopic(topic=name)
                topics[name] = topic
            topic.partitions.append(
                k01.FetchPartition(
                    partition=index,
                    current_leader_epoch=info.partitions[index].leader_epoch,
                    fetch_offset=self._readings[name, index].position or 0,
                    partition_max_bytes=self.settings.partition_bytes_max,
                )
            )
        return k01.FetchRequest(
            max_wait_ms=self.settings.fetch_wait_ms_max,
            min_bytes=self.settings.fetch_bytes_min,
            max_bytes=self.settings.fetch_bytes_max,
            isolation_level=int(self.settings.read_committed),
            topics=list(topics.values()),
            rack_id=self.settings.client_rack,
        )

    def _on_answer(
        self, answer: Any, asked: Mapping[TopicPartition, tuple[Reading, int]], *, by_id: bool
    ) -> None:
        known = self.cluster.view.topics
        names = {known[topic].id: topic for topic, _ in asked if topic in known}
        for topic in answer.responses:
            name = names.get(topic.topic_id, "") if by_id else topic.topic
            for entry in topic.partitions:
                tp = (name, entry.partition_index)
                reading = self._readings.get(tp)
                # A rebalance or a seek since then: these records are not what comes next.
                if reading is None or asked.get(tp) != (reading, reading.epoch):
                    continue
                if entry.preferred_read_replica >= 0:
                    reading.preferred = entry.preferred_read_replica
                    now = asyncio.get_running_loop().time()
                    reading.preferred_until = now + _PREFERENCE_SECONDS
                if entry.error_code:
                    self._on_error(tp, KafkaError(code_of(entry.error_code), f"{tp[0]}-{tp[1]}"))
                    continue
                reading.high_watermark = entry.high_watermark
                if entry.records is not None and len(entry.records):
                    reading.pending = visible_records(
                        tp,
                        reading,
                        entry,
                        read_committed=self.settings.read_committed,
                        check_crcs=self.settings.check_crcs,
                    )
        self._arrived.set()

    def _on_error(self, tp: TopicPartition, error: KafkaError) -> None:
        reading = self._readings[tp]
        from_follower, reading.preferred = reading.preferred is not None, None
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if from_follower:
                return  # it may lag behind: the leader knows (KIP-392)
            if self.settings.auto_offset_reset == "none":
                self._failure = error
            else:
                reading.position = None
                reading.epoch += 1
                self._out_of_range.add(tp)
            return
        self.cluster.forget_topic(tp[0])
        if not error.code.is_retriable:
            self._failure = error

    # positions

    async def _find_positions(self) -> None:
        """Give every partition without a position one: committed, else by the reset rule."""
        lost = [tp for tp, r in self._readings.items() if is_unset(r.position)]
        if not lost:
            return
        unknown = [
            tp
            for tp in lost
            if self._readings[tp].position is None and tp not in self._out_of_range
        ]
        if unknown and self.settings.group is not None:
            found = await self._committed_of(unknown)
            if found is None:
                return  # the next poll asks as the member that this one has become
            for tp, committed in found.items():
                self._readings[tp].position = committed.offset
        await self._reset([tp for tp in lost if is_unset(self._readings[tp].position)])

    async def _committed_of(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Committed] | None:
        """Committed offsets; None if the group has moved on without this member."""
        member = self.group_metadata
        if isinstance(self._membership, Membership):
            member = GroupMetadata(group_id=member.group_id)  # checked by commits alone
        try:
            return await Groups(self.cluster).offsets(member.group_id, partitions, member=member)
        except KafkaError as error:
            if error.code in {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}:
                return None
            raise

    async def _reset(self, lost: list[TopicPartition]) -> None:
        if not lost:
            return
        rule = {"earliest": EARLIEST, "latest": LATEST}.get(self.settings.auto_offset_reset)
        wanted: dict[TopicPartition, int] = {}
        for tp in lost:
            asked = self._readings[tp].position if self._readings[tp].position is not None else rule
            if asked is None:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp[0]}-{tp[1]} has no committed offset"
                )
            wanted[tp] = asked
        isolation = _READ_COMMITTED if self.settings.read_committed else 0
        listed = await Admin(self.cluster).list_offsets(wanted, isolation_level=isolation)
        for tp, answer in listed.items():
            if isinstance(answer, KafkaError):
                raise answer
            self._readings[tp].position = answer.offset
            self._out_of_range.discard(tp)

    # groups

    async def _keep_group(self) -> None:
        if isinstance(self._membership, ConsumerMembership):
            await self._reconcile(self._membership)
            return
        if self._membership is None or not (self._topics or self._pattern):
            return
        await self._match_pattern()
        if not self._topics:
            return
        if self._membership.needs_join and self._readings:
            gone = list(self._readings)
            await self._commit_quietly()
            await self._listener.on_partitions_revoked(gone)
        if await self._membership.ensure_active():
            self._readings = {}
            self.assign(self._membership.assignment)
            await self._listener.on_partitions_assigned(list(self._readings))

    async def _reconcile(self, membership: ConsumerMembership) -> None:
        """Give up what the group takes away, then own what it gives."""
        if self._subscription().is_empty:
            return
        wanted = await membership.ensure_active()
        if wanted is None:
            return
        gone = [tp for tp in self._readings if tp not in set(wanted)]
        new = [tp for tp in wanted if tp not in self._readings]
        if membership.is_lost:
            await self._listener.on_partitions_lost(gone)
        elif gone:
            await self._commit_quietly()
            await self._listener.on_partitions_revoked(gone)
        self.assign(wanted)
        membership.acknowledge(wanted)
        if new:
            await self._listener.on_partitions_assigned(new)

    async def _match_pattern(self) -> None:
        """The topics that fit the pattern now; looked up again now and then."""
        now = asyncio.get_running_loop().time()
        if self._pattern is None or now - self._pattern_read_at < _METADATA_SECONDS:
            return
        self._pattern_read_at = now
        view = await self.cluster.retrying(self.cluster.refresh)
        pattern = re.compile(self._pattern)
        self._topics = frozenset(
            t.name for t in view.topics.values() if pattern.fullmatch(t.name) and not t.is_internal
        )

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit positions, or the given offsets; `KafkaError` of the first one refused."""
        group = self.settings.group
        assert group is not None, "commit needs a group"
        wanted = offsets if offsets is not None else self._positions()
        if not wanted:
            return
        membership = self._membership
        assert membership is not None
        for left in reversed(range(_COMMITS_MAX)):
            member = self.group_metadata
            outcome = await Groups(self.cluster).commit(
                group.group_id,
                {tp: Committed(offset=offset) for tp, offset in wanted.items()},
                member_id=member.member_id,
                generation=member.generation,
                instance_id=member.instance_id,
            )
            error = next((each for each in outcome.values() if each is not None), None)
            if error is None:
                return
            membership.on_commit_error(error)
            if not left or not await self._has_new_epoch(member, error):
                raise error

    async def _has_new_epoch(self, member: GroupMetadata, error: KafkaError) -> bool:
        """Whether a commit with a stale member epoch may be repeated: the group gave another."""
        membership = self._membership
        if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
            return False
        if not isinstance(membership, ConsumerMembership):
            return False
        return await membership.next_epoch(member.generation, self.cluster.request_timeout_ms)

    def _positions(self) -> dict[TopicPartition, int]:
        return {
            tp: r.position
            for tp, r in self._readings.items()
            if r.position is not None and r.position >= 0
        }

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Committed offsets of those partitions that have one.

        Waits for offsets of transactions that are ending (KIP-447).
        """
        group = self.settings.group
        assert group is not None, "committed needs a group"
        reader = GroupMetadata(group_id=group.group_id)
        found = await Groups(self.cluster).offsets(group.group_id, partitions, member=reader)
        return {tp: committed.offset for tp, committed in found.items()}

    async def _maybe_commit(self) -> None:
        interval = self.settings.auto_commit_interval_ms / 1000
        now = asyncio.get_running_loop().time()
        if not interval or self.settings.group is None or now - self._committed_at < interval:
            return
        self._committed_at = now
        await self._commit_quietly()

    async def _commit_quietly(self) -> None:
        """Commit; ignore a refusal: the next owner of the partition reads these records again."""
        if not self.settings.auto_commit_interval_ms:
            return
        try:
            await self.commit()
        except KafkaError:
            return

    async def close(self) -> None:
        """Stop fetching, commit if that is automatic, leave the group."""
        for task in self._fetches.values():
            task.cancel()
        self._fetches.clear()
        if self.settings.group is not None and self._readings:
            await self._commit_quietly()
        if self._membership is not None:
            await self._membership.leave()

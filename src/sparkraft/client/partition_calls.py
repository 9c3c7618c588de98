"""Calls on partitions that their leaders answer: offsets by time, deleting records (`admin`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import by_topic
from sparkraft.client.cluster import Cluster, code_of, is_worth_retrying
from sparkraft.client.values import ListedOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparkraft.base.ids import TopicPartition


class PartitionCalls:
    """The part of `Admin` that asks partition leaders."""

    cluster: Cluster

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Offsets by timestamp (ms or one of the special ones), each asked of the leader."""
        from sparkraft.protocol.messages import k02_list_offsets as k02

        def request(partitions: list[TopicPartition]) -> Any:
            return k02.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=topics_with(
                    partitions,
                    k02.ListOffsetsTopic,
                    lambda tp: k02.ListOffsetsPartition(
                        partition_index=tp[1], timestamp=wanted[tp]
                    ),
                ),
            )

        found = await self._ask_leaders(wanted, request)
        return {
            tp: entry
            if isinstance(entry, KafkaError)
            else ListedOffset(
                offset=entry.offset, timestamp=entry.timestamp, leader_epoch=entry.leader_epoch
            )
            for tp, entry in found.items()
        }

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete records below an offset (-1: all); the answer is the new log start offset."""
        from sparkraft.protocol.messages import k21_delete_records as k21

        def request(partitions: list[TopicPartition]) -> Any:
            return k21.DeleteRecordsRequest(
                timeout_ms=self.cluster.request_timeout_ms,
                topics=topics_with(
                    partitions,
                    k21.DeleteRecordsTopic,
                    lambda tp: k21.DeleteRecordsPartition(partition_index=tp[1], offset=before[tp]),
                ),
            )

        found = await self._ask_leaders(before, request)
        return {
            tp: entry if isinstance(entry, KafkaError) else entry.low_watermark
            for tp, entry in found.items()
        }

    async def _ask_leaders(
        self,
        wanted: Iterable[TopicPartition],
        request: Callable[[list[TopicPartition]], Any],
    ) -> dict[TopicPartition, Any]:
        """Ask each leader for its partitions; those with a retriable error are asked again."""
        found: dict[TopicPartition, Any] = {}
        left = set(wanted)

        async def attempt() -> None:
            failure: KafkaError | None = None
            for leader, partitions in (await self._leaders(left, found)).items():
                answer = await self.cluster.ask_node(leader, request(partitions))
                for tp, entry in _entries(answer):
                    error = refusal_of(entry)
                    found[tp] = error or entry
                    if error is not None and is_worth_retrying(error):
                        failure = error
                        self.cluster.forget_topic(tp[0])
                    else:
                        left.discard(tp)
            if failure is not None:
                raise failure

        try:
            await self.cluster.retrying(attempt)
        except KafkaError as error:
            for tp in left:
                found.setdefault(tp, error)
        return found

    async def _leaders(
        self, left: set[TopicPartition], found: dict[TopicPartition, Any]
    ) -> dict[int, list[TopicPartition]]:
        """Partitions by leader; those that don't exist are answered and taken out of `left`."""
        await self.cluster.refresh({topic for topic, _ in left})
        view = self.cluster.view
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in sorted(left):
            topic = view.topics.get(tp[0])
            info = topic.partitions.get(tp[1]) if topic else None
            if info is None:
                detail = f"there is no partition {tp[0]}-{tp[1]}"
                found[tp] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
                left.discard(tp)
            elif info.leader < 0:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp[0]}-{tp[1]} has no leader")
            else:
                by_leader.setdefault(info.leader, []).append(tp)
        return by_leader


def _entries(answer: Any) -> Iterable[tuple[TopicPartition, Any]]:
    for topic in answer.topics:
        for entry in topic.partitions:
            yield (topic.name, entry.partition_index), entry


def topics_with(
    partitions: Iterable[TopicPartition],
    topic: Callable[..., Any],
    partition: Callable[[TopicPartition], Any],
) -> list[Any]:
    """A request's topics in order, each with what `partition` makes of its partitions."""
    return [
        topic(name=name, partitions=[partition((name, index)) for index in indexes])
        for name, indexes in by_topic(partitions).items()
    ]


def refusal_of(entry: Any) -> KafkaError | None:
    """Return the error in an entry of a response; None if it is NONE."""
    if not entry.error_code:
        return None
    return KafkaError(code_of(entry.error_code), getattr(entry, "error_message", None) or "")

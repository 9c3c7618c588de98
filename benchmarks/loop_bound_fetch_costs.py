"""Costs at the bounds of a fetcher's requests and responses, and of other long responses."""

from collections.abc import Callable
from typing import Any

from benchmarks.loop_bound_costs import Costs, spent
from sparkraft.base.ids import Uuid
from sparkraft.client import wire_exchange
from sparkraft.protocol.codec import decode, decode_few, encode
from sparkraft.protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from sparkraft.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from sparkraft.protocol.messages.k03_metadata import MetadataResponse, MetadataResponseTopic
from sparkraft.protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from sparkraft.replication import fetch_session, fetcher
from sparkraft.replication.fetcher import Fetcher
from sparkraft.server.broker import fetchers, follower_client


class _Replica:
    """A log that is equal to the leader's."""

    log_start_offset = 0
    log_end_offset = 10
    high_watermark = 10
    latest_epoch = 3

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The newest epoch."""
        return epoch, self.log_end_offset

    def append(self, *_: Any, **__: Any) -> None:
        """Take everything."""

    def truncate_to(self, *_: Any, **__: Any) -> None:
        """Nothing diverges."""


def topic(number: int) -> Uuid:
    """The id of a topic."""
    return Uuid(number.to_bytes(16, "big"))


def following(count: int, *, truncates_on_fetch: bool = True) -> Fetcher:
    """A fetcher with so many topics of one partition."""
    made = Fetcher(backoff_ms=1, partition_bytes_max=1 << 20, truncates_on_fetch=truncates_on_fetch)
    for number in range(count):
        replica: Any = _Replica()
        made.follow((topic(number), 0), f"topic-{number}", leader_epoch=4, replica=replica)
    return made


def build_step() -> Costs:
    """Half of the pieces change positions, the other half name them."""
    count = fetch_session.PARTITIONS_PER_STEP
    work: Callable[[Fetcher], object] = lambda made: made.build(0)  # noqa: E731
    return {f"name {count} partitions": spent(work, lambda: following(count))}


def look_up() -> Costs:
    """A request for offsets, and the results of another one."""
    count = fetcher.LOOKED_UP_AT_ONCE

    def request(made: Fetcher) -> None:
        topics = [
            ListOffsetsTopic(
                name=each.topic, partitions=[ListOffsetsPartition(partition_index=each.partition)]
            )
            for each in made.uncertain(0)
        ]
        encode(ListOffsetsRequest(topics=topics), 7)

    def results(made: Fetcher) -> None:
        for each in made.uncertain(0):
            made.on_end_of_epoch(each, error_code=0, epoch=3, end_offset=10, now=0)

    def diverged() -> Fetcher:
        return following(2 * count, truncates_on_fetch=False)

    return {
        f"request the offsets of {count:,} partitions": spent(request, diverged),
        f"note the offsets of {count:,} partitions": spent(results, diverged),
    }


def encode_request() -> Costs:
    """A full request."""
    count = follower_client.TOPICS_ENCODED_WHOLE
    topics = [
        FetchTopic(topic_id=topic(number), partitions=[FetchPartition(partition=0)])
        for number in range(count)
    ]
    return {f"encode {count} topics": spent(lambda: encode(FetchRequest(topics=topics), 17))}


def process_response() -> Costs:
    """Partitions without records."""
    count = fetchers.PARTITIONS_BETWEEN_YIELDS
    responses = [
        FetchableTopicResponse(topic_id=topic(number), partitions=[PartitionData(records=b"")])
        for number in range(count)
    ]
    response = FetchResponse(session_id=1, responses=responses)

    def sent() -> Fetcher:
        made = following(count)
        made.build(0)
        return made

    def work(made: Fetcher) -> None:
        for key, data in made.on_response(response, 0):
            made.process_partition(key, data, 0)

    return {f"process {count} partitions": spent(work, sent)}


def decode_whole() -> Costs:
    """Topics with names of one byte."""
    count = wire_exchange.WHOLE_BYTES_MAX // 12
    topics = [MetadataResponseTopic(name="t") for _ in range(count)]
    body = encode(MetadataResponse(topics=topics), 1)[: wire_exchange.WHOLE_BYTES_MAX]
    complete = encode(MetadataResponse(topics=topics[: len(body) // 12]), 1)
    return {f"decode {len(complete):,} bytes": spent(lambda: decode(MetadataResponse, 1, complete))}


def decode_elements() -> Costs:
    """A part of a response to LeaderAndIsr."""
    count = wire_exchange.WHOLE_ELEMENTS_MAX
    topics = [
        LeaderAndIsrTopicError(
            topic_id=topic(number),
            partition_errors=[LeaderAndIsrPartitionError(partition_index=0)],
        )
        for number in range(count // 2 - 1)
    ]
    body = encode(LeaderAndIsrResponse(topics=topics), 7)
    return {
        f"decode {count:,} elements": spent(
            lambda: decode_few(LeaderAndIsrResponse, 7, body, count)
        )
    }


COSTS: dict[str, Callable[[], Costs]] = {
    "replication.fetch_session.PARTITIONS_PER_STEP": build_step,
    "replication.fetcher.LOOKED_UP_AT_ONCE": look_up,
    "server.broker.follower_client.TOPICS_ENCODED_WHOLE": encode_request,
    "server.broker.fetchers.PARTITIONS_BETWEEN_YIELDS": process_response,
    "client.wire_exchange.WHOLE_BYTES_MAX": decode_whole,
    "client.wire_exchange.WHOLE_ELEMENTS_MAX": decode_elements,
}

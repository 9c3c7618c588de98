"""Timestamps of single records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sparkraft.base.errors import KafkaError
from sparkraft.client.consumer import Consumer, ConsumerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.client.cluster import Cluster

    TopicPartition = tuple[str, int]

SECONDS_MAX = 2.0
PARTITIONS_MAX = 50
"""Partitions that are read at once; each transfers a batch."""

_PARTITION_BYTES = 16 << 10
_POLL_MS = 200


async def record_times(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the timestamp, in Unix milliseconds, of the first record at or after each offset.

    Partitions whose record does not arrive within `SECONDS_MAX`, or may not be read, are left out.
    """
    found: dict[TopicPartition, int] = {}
    wanted = set(offsets)
    settings = ConsumerSettings(
        auto_offset_reset="earliest",
        partition_bytes_max=_PARTITION_BYTES,
        fetch_bytes_max=_PARTITION_BYTES * PARTITIONS_MAX,
        fetch_wait_ms_max=_POLL_MS,
    )
    try:
        async with asyncio.timeout(SECONDS_MAX), Consumer(cluster, settings) as consumer:
            consumer.assign(wanted)
            for tp in wanted:
                consumer.seek(tp, offsets[tp])
            while wanted:
                for record in await consumer.poll(_POLL_MS):
                    tp = (record.topic, record.partition)
                    if tp in wanted:
                        found[tp] = record.timestamp
                        wanted.discard(tp)
                        consumer.pause(tp)
    except (TimeoutError, KafkaError):
        return found
    return found

"""What the cases share: the topics they speak of, batches, and one request in every version."""

from collections.abc import Callable, Iterator
from typing import Any

from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.records.compression import Codec
from sparkraft.records.record import BatchBuilder
from tests.interop.differential.world import Case, World

TOPIC, EMPTY, COMPACTED = "orders", "empty", "compacted"
GROUP = "readers"
BASE_MS = 1_700_000_000_000


def batch(
    count: int = 3,
    *,
    codec: Codec = Codec.NONE,
    first_ms: int = BASE_MS,
    keys: bool = True,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A record batch as a producer sends it."""
    builder = BatchBuilder(
        codec=codec, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]
    )
    for number in range(count):
        key = f"k{number}".encode() if keys else None
        builder.append(first_ms + number, key, f"value-{number}".encode(), [("h", b"x")])
    return builder.build()


def every_version(
    key: ApiKey,
    label: str,
    build: Callable[[World], Message],
    *,
    since: int = 0,
    until: int = 99,
    after: Callable[[World, Any], None] | None = None,
) -> Iterator[Case]:
    """The same request in each version of `key` from `since` to `until`."""
    info = API_INFO[key]
    last = info.max_version - int(info.latest_version_unstable)
    for version in range(max(info.min_version, since), min(last, until) + 1):
        yield Case(label, key, version, build, after)

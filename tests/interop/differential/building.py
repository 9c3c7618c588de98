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
    transactional: bool = False,
) -> bytes:
    """A record batch as a producer sends it."""
    builder = BatchBuilder(
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
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
    for version in versions_of(key):
        if since <= version <= until:
            yield Case(label, key, version, build, after)


def versions_of(key: ApiKey) -> range:
    """The stable versions of a key that are served."""
    info = API_INFO[key]
    return range(info.min_version, info.max_version - int(info.latest_version_unstable) + 1)


_RETRIED = {14, 15, 16, 51}
"""Coordinator loading, not available or elsewhere; the previous transaction is being completed."""


def is_final(answer: Any) -> bool:
    """Whether no error in an answer means that the client should try again."""
    if isinstance(answer, list):
        return all(map(is_final, answer))
    if not isinstance(answer, dict):
        return True
    return all(
        value not in _RETRIED if name.lower().endswith("errorcode") else is_final(value)
        for name, value in answer.items()
    )

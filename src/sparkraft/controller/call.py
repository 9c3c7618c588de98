"""The request that a decision is made on, and its circumstances."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparkraft.base.ids import Millis, Offset
from sparkraft.security.principal import ANONYMOUS, KafkaPrincipal

RequestT = TypeVar("RequestT")


def no_quota(changes: int) -> None:
    """Accept any number of partition changes."""
    del changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[RequestT]):
    """One call of an API on the active controller.

    Attributes:
        request: the decoded request message.
        version: its API version; the response may depend on it.
        now: monotonic time of the decision.
        wall_ms: wall-clock time of the decision, for what lasts longer than a process.
        next_offset: offset of the first record the decision writes; becomes a broker epoch.
        principal: the client's, also when a broker forwarded the request.
        apply_partition_change_quota: called with the number of partitions about to be created or
            deleted (KIP-599); raises `KafkaError` THROTTLING_QUOTA_EXCEEDED to reject the change.
    """

    request: RequestT
    version: int
    now: Millis
    next_offset: Offset
    wall_ms: int = 0
    principal: KafkaPrincipal = ANONYMOUS
    apply_partition_change_quota: Callable[[int], None] = no_quota

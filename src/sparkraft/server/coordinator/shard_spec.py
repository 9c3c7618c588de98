"""The parts of a shard's runtime that depend on the kind of coordinator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.coordinator.runtime import CoordinatorShard, Effect
from sparkraft.coordinator.steps import Steps
from sparkraft.server.coordinator.responses import Response

S = TypeVar("S", bound=CoordinatorShard[Any])
R = TypeVar("R")

EffectExecutor = Callable[[Any], Response[Any]]
"""Executes effects of one class; returns the result or an awaitable of it, or raises KafkaError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSpec(Generic[S, R]):
    """See the module docstring.

    Attributes:
        topic: the internal topic.
        new_shard: makes a shard without state, for a leader epoch of its partition.
        encode: a record to its key and value.
        encode_in_steps: the same in pieces; None if no record is long.
        decode: a record of a key and a value; None if its type is unknown.
        decode_in_steps: the same in pieces; None if no record is long.
        is_long: whether a record takes long to encode; None if a decision with such records always
            comes in steps.
        translate_error: of a failed append, to one that clients of this coordinator handle.
        write_timeout_ms: limit for a response to wait for commits.
        compression: codec number of the batches.
        executors: by the class of effect.
    """

    topic: str
    new_shard: Callable[[int], S]
    encode: Callable[[R], tuple[bytes, bytes | None]]
    decode: Callable[[bytes, bytes | None], R | None]
    translate_error: Callable[[ErrorCode], ErrorCode]
    write_timeout_ms: int
    compression: int
    executors: Mapping[type[Effect], EffectExecutor] = field(default_factory=dict)
    encode_in_steps: Callable[[R], Steps[tuple[bytes, bytes | None]]] | None = None
    decode_in_steps: Callable[[bytes, bytes | None], Steps[R | None]] | None = None
    is_long: Callable[[R], bool] | None = None

    def translated(self, error: KafkaError) -> KafkaError:
        """The error of a failed append as clients get it."""
        return KafkaError(self.translate_error(error.code), error.detail)

"""`--at-offset` and `--at-time`: the metadata of an earlier moment instead of the present one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.past_time import past_time
from sparkraft.client.errors import sentence_of

if TYPE_CHECKING:
    from sparkraft.cli.options import Options, Values
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.past.log import LogRange
    from sparkraft.client.past.state import PastState


class Moment(NamedTuple):
    """An offset of the metadata log or a time; the other one is -1."""

    offset: int
    at_ms: int


def add_moment(options: Options) -> None:
    """Add both options."""
    options.value(
        "--at-offset", about="as of this offset of the metadata log, not as of now", type=int
    )
    options.value("--at-time", about="as of then: 90s, 10m, 2h, 3d ago, or 2026-11-20T12:00:00Z")


def moment_of(values: Values) -> Moment | None:
    """The moment that is given; None for the present."""
    if values.at_offset is not None and values.at_time is not None:
        raise UsageError("give --at-offset or --at-time, not both")
    if values.at_offset is not None and values.at_offset < 0:
        raise UsageError("--at-offset must not be negative")
    if values.at_offset is None and values.at_time is None:
        return None
    at_offset = -1 if values.at_offset is None else values.at_offset
    return Moment(at_offset, past_time(values.at_time, "--at-time"))


async def past_state(cluster: Cluster, moment: Moment) -> tuple[PastState, LogRange]:
    """The cluster's metadata at `moment`; `CommandError` if no node has it."""
    from sparkraft.client.past.log import PastReader

    try:
        return await PastReader(cluster).image(at_offset=moment.offset, at_ms=moment.at_ms)
    except KafkaError as error:
        if error.code in {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNSUPPORTED_VERSION}:
            raise CommandError(error.detail or sentence_of(error)) from error
        raise

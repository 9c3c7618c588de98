"""Options and request shared by `explain partition`, `broker` and `topic`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.errors import CommandError
from sparkraft.cli.moment_options import Moment, add_moment, moment_of
from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import connected, print_json
from sparkraft.client.errors import sentence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkraft.client.explain.events import Json
    from sparkraft.client.history import HistoryReport

EVENTS_MAX = 10
"""Elections and ISR changes shown by default."""


def options_for(what: str, about: str) -> Options:
    options = Options(f"explain {what}", about)
    options.connection(controllers=True)
    add_moment(options)
    options.value(
        "--last", about=f"how many changes to show of each kind ({EVENTS_MAX})", type=int,
        default=EVENTS_MAX,
    )  # fmt: skip
    options.flag("--whole-log", "read all of the metadata log that is kept, however long it is")
    options.output()
    return options


async def history_report(
    values: Values, *, topics: Iterable[Any] = (), brokers: Iterable[int] = ()
) -> HistoryReport:
    """Ask the cluster for the history of topics and brokers."""
    from sparkraft.client.history import fetch_history
    from sparkraft.protocol.messages.k10002_describe_history import DescribeHistoryRequest

    moment = moment_of(values) or Moment(-1, -1)
    request = DescribeHistoryRequest(
        topics=list(topics),
        broker_ids=list(brokers),
        at_offset=moment.offset,
        at_ms=moment.at_ms,
        # ISR changes and elections share one list of events; fetch enough for both.
        events_max=max(1, values.last) * 5,
        whole_log=values.whole_log,
    )
    async with connected(values, client_id="explain") as cluster:
        try:
            return await fetch_history(cluster, request)
        except KafkaError as error:
            if error.code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE}:
                raise CommandError(error.detail or sentence_of(error)) from error
            raise


def print_document(values: Values, document: Json, lines: Callable[[Json], Iterator[str]]) -> None:
    """Print a document in the format that `--output` selects."""
    if values.output == "json":
        print_json(document)
        return
    for line in lines(document):
        print(line)

"""`explain topic`: every partition in a line, and what would stay on disks if it were deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.explain_options import history_report, options_for, print_document
from sparkraft.cli.session import run
from sparkraft.client.explain.topic import topic_document, topic_lines

if TYPE_CHECKING:
    from sparkraft.cli.options import Values


def main(argv: list[str]) -> int:
    options = options_for(
        "topic", "Show the leader of each partition of a topic, since when, and why."
    )
    options.add_argument("topic")
    return run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    from sparkraft.protocol.messages.k10002_describe_history import HistoryTopic

    report = await history_report(values, topics=[HistoryTopic(name=values.topic)])
    document = topic_document(report, values.topic, last=values.last)
    print_document(values, document, topic_lines)
    return 0

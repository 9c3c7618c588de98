"""`explain partition`: its leader, its elections and ISR changes, and the reasons for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.explain_options import history_report, options_for, print_document
from sparkraft.cli.session import run
from sparkraft.client.explain.partition import partition_document, partition_lines

if TYPE_CHECKING:
    from sparkraft.cli.options import Values


def main(argv: list[str]) -> int:
    options = options_for("partition", "Show the leader of a partition, since when, and why.")
    options.add_argument("topic")
    options.add_argument("partition", type=int)
    return run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    from sparkraft.protocol.messages.k10002_describe_history import HistoryTopic

    topic = HistoryTopic(name=values.topic, partitions=[values.partition])
    report = await history_report(values, topics=[topic])
    document = partition_document(report, report.history.partitions[0], last=values.last)
    print_document(values, document, partition_lines)
    return 0

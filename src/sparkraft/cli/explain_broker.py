"""`explain broker`: whether it serves, what it leads, what it won and lost, and where it lags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.explain_options import history_report, options_for, print_document
from sparkraft.cli.session import run
from sparkraft.client.explain.broker import broker_document, broker_lines

if TYPE_CHECKING:
    from sparkraft.cli.options import Values


def main(argv: list[str]) -> int:
    options = options_for(
        "broker", "Show the state of a broker, and the leaderships it won and lost."
    )
    options.add_argument("broker", type=int)
    return run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    report = await history_report(values, brokers=[values.broker])
    document = broker_document(report, report.history.brokers[0], last=values.last)
    print_document(values, document, broker_lines)
    return 0

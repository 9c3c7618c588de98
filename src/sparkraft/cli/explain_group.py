"""`explain group`: its members, epochs and partitions over time, and why. Not in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError
from sparkraft.cli.options import Options
from sparkraft.cli.past_time import past_time
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.explain.group import group_decisions, group_lines

if TYPE_CHECKING:
    from sparkraft.cli.options import Values


def main(argv: list[str]) -> int:
    options = Options(
        "explain group", "Show what happened to a group: members, epochs, partitions, and why."
    )
    options.connection()
    options.value("--since", about="only what is newer: 90s, 10m, 2h, 3d, or 2026-11-20T12:00:00Z")
    options.output()
    options.add_argument("group")
    values = options.parse(argv)
    return run(_main(values, since_ms=past_time(values.since, "--since")))


async def _main(values: Values, *, since_ms: int) -> int:
    async with connected(values, client_id="explain") as cluster:
        entries, silent = await group_decisions(cluster, values.group)
    entries = [one for one in entries if one["atMs"] >= since_ms]
    if values.output == "json":
        brokers = [{"node": node_id, "reason": why} for node_id, why in silent.items()]
        print_json({"group": values.group, "decisions": entries, "silent": brokers})
        return 0
    for node_id, why in silent.items():
        print(f"broker {node_id}: not available, {why}")
    if not entries:
        raise CommandError(f"no broker has noted a decision about group {values.group}")
    for line in group_lines(entries):
        print(line)
    return 0

"""`explain quorum`: controller elections with their times, votes and reasons. Not in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.cli.errors import CommandError
from sparkraft.cli.options import Options, Values
from sparkraft.cli.past_time import past_time
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.explain.quorum import epochs_of, quorum_document
from sparkraft.client.lost_directory import lost_directories
from sparkraft.client.quorum_admin import has_quorum, witnesses

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.client.lost_directory import LostDirectory
    from sparkraft.client.quorum_admin import Witness


def main(argv: list[str]) -> int:
    options = Options(
        "explain quorum", "Show which controllers were elected, when, by which votes, and why."
    )
    options.connection(controllers=True)
    options.value("--since", about="only what is newer: 90s, 10m, 2h, 3d, or 2026-11-20T12:00:00Z")
    options.output()
    values = options.parse(argv)
    return run(_main(values, since_ms=past_time(values.since, "--since")))


async def _main(values: Values, *, since_ms: int) -> int:
    async with connected(values, client_id="explain") as cluster:
        if not await has_quorum(cluster):
            raise CommandError(
                "the cluster is in ZooKeeper mode; `explain controller` shows its controllers"
            )
        seen, silent = await witnesses(cluster)
        lost = await lost_directories(cluster) if any(n.leader_id >= 0 for n in seen) else []
    if not seen:
        why = "; ".join(f"{name}: {reason}" for name, reason in silent.items())
        raise CommandError(f"no node could be asked: {why}")
    if values.output == "json":
        document = quorum_document(seen, silent, since_ms=since_ms)
        print_json(document | {"lostDirectories": [_lost_json(each, values) for each in lost]})
        return 0
    _print_nodes(seen, silent)
    for each in lost:
        print(each.explanation(_bootstrap(values)))
    for epoch in epochs_of(seen):
        if epoch.last_at < since_ms:
            continue
        print()
        for line in epoch.as_text():
            print(line)
    return 0


def _bootstrap(values: Values) -> str:
    """The option by which this command found the cluster."""
    if values.bootstrap_controller:
        return f"--bootstrap-controller {values.bootstrap_controller}"
    return f"--bootstrap-server {values.bootstrap_server or 'HOST:PORT'}"


def _lost_json(lost: LostDirectory, values: Values) -> dict[str, Any]:
    return {
        "node": lost.node_id,
        "lostDirectoryId": str(lost.lost),
        "directoryId": str(lost.current),
        "repair": list(lost.repair(_bootstrap(values))),
    }


def _print_nodes(seen: Iterable[Witness], silent: dict[str, str]) -> None:
    for witness in seen:
        role = "voter" if witness.is_voter else "observer"
        leader = "no leader" if witness.leader_id < 0 else f"leader {witness.leader_id}"
        print(
            f"node {witness.node_id}: {witness.state.lower()} ({role}), epoch {witness.epoch}, "
            f"{leader}, high watermark {witness.high_watermark}"
        )
    for name, reason in silent.items():
        print(f"{name}: not available, {reason}")

"""`explain cluster`: its health in one sentence, its nodes and the partitions with a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.explain_options import print_document
from sparkraft.cli.options import Options
from sparkraft.cli.session import connected, run
from sparkraft.client.explain.cluster import cluster_document, cluster_facts, cluster_lines
from sparkraft.client.explain.quorum import epochs_of
from sparkraft.client.quorum_admin import witnesses

if TYPE_CHECKING:
    from sparkraft.cli.options import Values


def main(argv: list[str]) -> int:
    options = Options("explain cluster", "Show in one sentence whether the cluster is healthy.")
    options.connection()
    options.output()
    return run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    async with connected(values, client_id="explain") as cluster:
        facts = await cluster_facts(cluster)
        seen, _ = await witnesses(cluster)
    print_document(values, cluster_document(facts, epochs_of(seen)), cluster_lines)
    return 0

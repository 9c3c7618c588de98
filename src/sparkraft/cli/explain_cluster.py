"""`explain cluster`: its health in one sentence, its nodes and the partitions with a problem.

`--at-offset` and `--at-time` show the same by the metadata of an earlier moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.cli.explain_options import print_document
from sparkraft.cli.moment_options import add_moment, moment_of, past_state
from sparkraft.cli.options import Options
from sparkraft.cli.session import connected, run
from sparkraft.client.explain.cluster import cluster_document, cluster_facts, cluster_lines
from sparkraft.client.explain.past_cluster import facts_of
from sparkraft.client.explain.quorum import epochs_of
from sparkraft.client.explain.zookeeper_controller import controller_document
from sparkraft.client.quorum_admin import witnesses

if TYPE_CHECKING:
    from sparkraft.cli.options import Values


def main(argv: list[str]) -> int:
    options = Options("explain cluster", "Show in one sentence whether the cluster is healthy.")
    options.connection()
    add_moment(options)
    options.output()
    return run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    moment = moment_of(values)
    async with connected(values, client_id="explain") as cluster:
        if moment is not None:
            state, available = await past_state(cluster, moment)
            document = cluster_document(facts_of(state, available.cluster_id))
        else:
            facts = await cluster_facts(cluster)
            if facts.is_zookeeper:
                document = cluster_document(facts, race=await controller_document(cluster))
            else:
                seen, _ = await witnesses(cluster)
                document = cluster_document(facts, epochs_of(seen))
    print_document(values, document, cluster_lines)
    return 0

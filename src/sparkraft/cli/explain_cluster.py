"""`explain cluster`: its health in one sentence, its nodes and the partitions with a problem.

`--at-offset` and `--at-time` show the same by the metadata of an earlier moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.explain_options import print_document
from sparkraft.cli.options import Options
from sparkraft.cli.past_time import past_time
from sparkraft.cli.session import connected, run
from sparkraft.client.errors import sentence_of
from sparkraft.client.explain.cluster import cluster_document, cluster_facts, cluster_lines
from sparkraft.client.explain.past_cluster import facts_of
from sparkraft.client.explain.quorum import epochs_of
from sparkraft.client.past.log import PastReader
from sparkraft.client.quorum_admin import witnesses

if TYPE_CHECKING:
    from sparkraft.cli.options import Values
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.explain.events import Json


def main(argv: list[str]) -> int:
    options = Options("explain cluster", "Show in one sentence whether the cluster is healthy.")
    options.connection()
    options.value(
        "--at-offset", about="as of this offset of the metadata log, not as of now", type=int
    )
    options.value("--at-time", about="as of then: 90s, 10m, 2h, 3d ago, or 2026-11-20T12:00:00Z")
    options.output()
    return run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    at_ms = past_time(values.at_time, "--at-time")
    if values.at_offset is not None and at_ms >= 0:
        raise UsageError("give --at-offset or --at-time, not both")
    async with connected(values, client_id="explain") as cluster:
        if values.at_offset is not None or at_ms >= 0:
            at_offset = -1 if values.at_offset is None else values.at_offset
            document = await _past(cluster, at_offset, at_ms)
        else:
            facts = await cluster_facts(cluster)
            seen, _ = await witnesses(cluster)
            document = cluster_document(facts, epochs_of(seen))
    print_document(values, document, cluster_lines)
    return 0


async def _past(cluster: Cluster, at_offset: int, at_ms: int) -> Json:
    try:
        state, available = await PastReader(cluster).image(at_offset=at_offset, at_ms=at_ms)
    except KafkaError as error:
        if error.code in {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNSUPPORTED_VERSION}:
            raise CommandError(error.detail or sentence_of(error)) from error
        raise
    return cluster_document(facts_of(state, available.cluster_id))

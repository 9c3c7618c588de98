"""Three nodes whose processes run the source of an earlier commit or this one, node by node."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.quorum_admin import witnesses
from sparkraft.client.values import Features
from tests.cluster.conftest import STEADY
from tests.support.clusters import Cluster, KafkaMember, Member, SparkraftMember
from tests.support.ports import wait_until
from tests.support.revisions import ROOT, MissingRevisionError, source_of

CURRENT_SOURCE = ROOT / "src"
SETTINGS = {
    **STEADY,
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    # Nodes load what the other source has written as a snapshot.
    "metadata.log.max.record.bytes.between.snapshots": "1000",
}


class Earlier(NamedTuple):
    """A commit to upgrade from.

    Attributes:
        release: of the feature levels that its clusters are formatted with.
        logs: a text that each of its nodes logs at its start, and nodes of this source do not.
    """

    commit: str
    release: str
    logs: str

    def source(self) -> Path:
        """Its source; skips the test if this clone lacks it."""
        try:
            return source_of(self.commit)
        except MissingRevisionError as error:
            pytest.skip(str(error))


class MemberOfSource(SparkraftMember):
    """A node that runs any source."""

    source = CURRENT_SOURCE
    printed_before = 0
    """Characters that earlier runs of it printed."""

    def format_command(self) -> list[str]:
        return ["env", f"PYTHONPATH={self.source}", *super().format_command()]

    def start_command(self) -> list[str]:
        return ["env", f"PYTHONPATH={self.source}", *super().start_command()]

    def launch(self) -> None:
        if self.output_path.exists():
            self.printed_before = len(self.output_path.read_text())
        super().launch()

    def assert_runs(self, logged_by_earlier: str) -> None:
        """The process was given this source, and it is what it loaded."""
        assert self.process is not None
        variables = Path(f"/proc/{self.process.pid}/environ").read_bytes().split(b"\0")
        assert f"PYTHONPATH={self.source}".encode() in variables
        printed = self.output_path.read_text()[self.printed_before :]
        assert (logged_by_earlier in printed) == (self.source != CURRENT_SOURCE), printed


class ClusterOfSources(Cluster):
    """Nodes that run this source, until they are given another one."""

    kinds: ClassVar = {"sparkraft": MemberOfSource, "kafka": KafkaMember}

    def node(self, node_id: int) -> MemberOfSource:
        node = self.nodes[node_id]
        assert isinstance(node, MemberOfSource)
        return node


class UpgradedCluster(ClusterOfSources):
    """Three nodes of an earlier commit, with the feature levels of an earlier release."""

    def __init__(
        self,
        directory: Path,
        earlier: Earlier,
        *,
        topics: tuple[str, ...],
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        """Start nothing; `topics` must exist and be in sync before a node is restarted."""
        self._earlier = earlier
        self.topics_in_sync = list(topics)
        super().__init__(
            directory, [Member(n) for n in (1, 2, 3)], overrides={**SETTINGS, **(overrides or {})}
        )
        for node in self.nodes:
            self.node(node).source = earlier.source()

    def _format_as(self, member: Member) -> list[str]:
        return [*super()._format_as(member), "--release-version", self._earlier.release]

    def assert_runs(self, node_id: int) -> None:
        self.node(node_id).assert_runs(self._earlier.logs)

    def upgrade(self, node_id: int) -> None:
        """Restart a node with this source."""
        self._restart(node_id, CURRENT_SOURCE)

    def downgrade(self, node_id: int) -> None:
        """Restart a node with the earlier source."""
        self._restart(node_id, self._earlier.source())

    def _restart(self, node_id: int, source: Path) -> None:
        """Stop a node, and start it with this source; what it knew before is kept."""
        self.until_in_sync()
        node = self.node(node_id)
        wait_until(lambda: self.snapshots(node_id), "it has a snapshot to load")
        self.stop(node_id)
        identity = (node.log_dir / "meta.properties").read_bytes()
        journal = node.log_dir / "sparkraft-elections.jsonl"
        elections = [json.loads(line) for line in journal.read_text().splitlines()]
        assert elections
        node.source = source
        self.start([node_id])
        self.assert_runs(node_id)
        assert (node.log_dir / "meta.properties").read_bytes() == identity
        kept = self.elections_of(node_id)
        assert kept[: len(elections)] == [(e["at"], e["kind"], e["epoch"]) for e in elections]

    def until_in_sync(self) -> None:
        """Return once every replica of every partition is in sync."""

        async def work(admin: Admin) -> bool:
            topics = await admin.describe_topics(self.topics_in_sync)
            return all(
                not isinstance(info, KafkaError)
                and all(len(partition.isr) == 3 for partition in info.partitions.values())
                for info in topics.values()
            )

        wait_until(lambda: self.ask(work), "all replicas are in sync")

    def elections_of(self, node_id: int) -> list[tuple[int, str, int]]:
        """Time, kind and epoch of all that the node has recorded of elections."""

        async def work(admin: Admin) -> list[tuple[int, str, int]]:
            seen, _ = await witnesses(admin.cluster)
            (found,) = (witness for witness in seen if witness.node_id == node_id)
            return [(entry.at_ms, entry.kind, entry.epoch) for entry in found.entries]

        return self.ask(work)

    def features(self, node_id: int) -> Features:
        """Feature levels, in the response of one node."""
        return self.ask(lambda admin: admin.describe_features(node_id))

    def snapshots(self, node_id: int) -> list[Path]:
        """The node's snapshots of the metadata, oldest first; not the one it was formatted with."""
        found = (self.node(node_id).log_dir / "__cluster_metadata-0").glob("*.checkpoint")
        return sorted(path for path in found if int(path.name.partition("-")[0]))

"""The documents besides those of `views`: configs, replicas, security, transactions, pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.console.config_views import ConfigViews
from sparkraft.console.pipeline_views import PipelineViews
from sparkraft.console.replica_views import ReplicaViews
from sparkraft.console.security_views import SecurityViews
from sparkraft.console.transaction_views import TransactionViews

if TYPE_CHECKING:
    from pathlib import Path

    from sparkraft.client.cluster import Cluster
    from sparkraft.console.record_text import RecordText


class MoreViews:
    """One object of each kind, over one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        text: RecordText,
        *,
        bootstrap: str,
        pipelines_folder: Path | None = None,
    ) -> None:
        """Use `cluster`, which commands name as `bootstrap`, and pipelines below the folder."""
        self.configs = ConfigViews(cluster, bootstrap=bootstrap)
        self.replicas = ReplicaViews(cluster, bootstrap=bootstrap)
        self.security = SecurityViews(cluster, bootstrap=bootstrap)
        self.transactions = TransactionViews(cluster, bootstrap=bootstrap)
        self.pipelines = PipelineViews(cluster, text, bootstrap=bootstrap, folder=pipelines_folder)

    def forget(self) -> None:
        """Show what is changed now at once."""
        self.replicas.forget()
        self.transactions.forget()

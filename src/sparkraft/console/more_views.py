"""The documents besides those of `views`: configs, replicas, security, transactions, pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.console.config_views import ConfigViews
from sparkraft.console.pipeline_views import PipelineViews
from sparkraft.console.replica_views import ReplicaViews
from sparkraft.console.security_views import SecurityViews
from sparkraft.console.transaction_views import TransactionViews

if TYPE_CHECKING:
    from sparkraft.client.cluster import Cluster


class MoreViews:
    """One object of each kind, over one cluster."""

    def __init__(self, cluster: Cluster, *, bootstrap: str) -> None:
        """Use `cluster`, which commands name as `bootstrap`."""
        self.configs = ConfigViews(cluster, bootstrap=bootstrap)
        self.replicas = ReplicaViews(cluster, bootstrap=bootstrap)
        self.security = SecurityViews(cluster, bootstrap=bootstrap)
        self.transactions = TransactionViews(cluster, bootstrap=bootstrap)
        self.pipelines = PipelineViews(cluster, bootstrap=bootstrap)

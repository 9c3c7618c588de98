"""The services that handlers on a controller listener use."""

from typing import TYPE_CHECKING

from sparkraft.server.config_pieces import ConfigPieces

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.security.mutation_quotas import MutationQuotas
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.controller.driver import ControllerDriver
    from sparkraft.server.controller.processes import ProcessWatch
    from sparkraft.server.env import Env
    from sparkraft.server.raft.driver import RaftDriver


class ControllerServices:
    """The services of a controller; made by `sparkraft.server.node.Node`."""

    def __init__(  # noqa: PLR0913 (every service, by name)
        self,
        *,
        cluster_id: str,
        node_id: int,
        config: "NodeConfig",
        env: "Env",
        raft: "RaftDriver",
        controller: "ControllerDriver",
        processes: "ProcessWatch | None",
        mutation_quotas: "MutationQuotas",
    ) -> None:
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.config = config
        self.env = env
        self.raft = raft
        self.controller = controller
        self.processes = processes
        self.mutation_quotas = mutation_quotas
        self.config_pieces = ConfigPieces()

    @property
    def clock(self) -> "Clock":
        """The node's clock."""
        return self.env.clock

    @property
    def image(self) -> "ClusterImage":
        """The latest committed image."""
        return self.controller.image

"""The state of the active controller that all its decisions share."""

from dataclasses import dataclass, field, replace

from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.journal import ControllerJournal
from sparkraft.zookeeper.controller.requests import RequestBatch

NO_CONTROLLER = -1
"""Id of the controller while none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Configs of the node that the controller's decisions depend on.

    Attributes:
        node_id: `broker.id`.
        unclean_leader_election: `unclean.leader.election.enable`, for topics without a config.
        imbalance_max: `leader.imbalance.per.broker.percentage`, as a ratio.
        features_version: of /feature, by inter.broker.protocol.version; None: /feature stays as it
            is, as in a rehearsal.
    """

    node_id: int
    unclean_leader_election: bool = False
    imbalance_max: float = 0.1
    features_version: int | None = None


@dataclass(slots=True)
class Active:
    """The cluster, the requests to be sent, and the decisions so far.

    Attributes:
        controller_id: the controller that /controller named when it was last read.
        context: the cluster; empty unless this node is the controller.
        batch: requests of the running decision.
    """

    settings: Settings
    controller_id: int = NO_CONTROLLER
    context: ControllerContext = field(default_factory=ControllerContext)
    journal: ControllerJournal = field(default_factory=ControllerJournal)
    batch: RequestBatch = field(init=False)

    def __post_init__(self) -> None:
        self.batch = RequestBatch(self.context)

    @property
    def is_active(self) -> bool:
        """Whether this node is the controller, as far as it knows."""
        return self.controller_id == self.settings.node_id != NO_CONTROLLER

    def allow_unclean_elections(self, *, allowed: bool) -> None:
        """Follow a change of the default for topics without a config."""
        self.settings = replace(self.settings, unclean_leader_election=allowed)

    def reset(self) -> None:
        """Forget the cluster and all requests that were not sent."""
        self.context = ControllerContext()
        self.batch = RequestBatch(self.context)

"""The state of the active controller that all its decisions share."""

from dataclasses import dataclass, field

from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.journal import ControllerJournal
from sparkraft.zookeeper.controller.requests import RequestBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Configs of the node that the controller's decisions depend on.

    Attributes:
        node_id: `broker.id`.
        unclean_leader_election: `unclean.leader.election.enable`, for topics without a config.
    """

    node_id: int
    unclean_leader_election: bool = False


@dataclass(slots=True)
class Active:
    """The cluster, the requests to be sent, and the decisions so far."""

    settings: Settings
    context: ControllerContext = field(default_factory=ControllerContext)
    journal: ControllerJournal = field(default_factory=ControllerJournal)
    batch: RequestBatch = field(init=False)

    def __post_init__(self) -> None:
        self.batch = RequestBatch(self.context)

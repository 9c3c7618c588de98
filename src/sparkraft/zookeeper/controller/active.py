"""The state of the active controller that all its decisions share."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sparkraft.base.ids import Uuid
from sparkraft.zookeeper.controller.context import ControllerContext
from sparkraft.zookeeper.controller.journal import MALFORMED, ControllerJournal
from sparkraft.zookeeper.controller.protocol_version import ProtocolVersion
from sparkraft.zookeeper.controller.requests import RequestBatch
from sparkraft.zookeeper.znodes.json_form import ZnodeError

NO_CONTROLLER = -1
"""Id of the controller while none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Configs of the node that the controller's decisions depend on.

    Attributes:
        node_id: `broker.id`.
        unclean_leader_election: `unclean.leader.election.enable`, for topics without a config.
        imbalance_max: `leader.imbalance.per.broker.percentage`, as a ratio.
        deletes_topics: `delete.topic.enable`.
        protocol: inter.broker.protocol.version; None in a rehearsal, in which /feature stays as it
            is.
    """

    node_id: int
    unclean_leader_election: bool = False
    imbalance_max: float = 0.1
    deletes_topics: bool = True
    protocol: ProtocolVersion | None = None

    @property
    def writes_isrs(self) -> bool:
        """Whether leaders write ISRs to ZooKeeper themselves, before AlterPartition (KIP-497)."""
        return self.protocol is not None and not self.protocol.has_alter_partition

    @property
    def has_recovery_state(self) -> bool:
        """Whether an unclean leader is marked as recovering (KIP-704)."""
        return self.protocol is None or self.protocol.has_recovery_state


@dataclass(slots=True)
class Active:
    """The cluster, the requests to be sent, and the decisions so far.

    Attributes:
        controller_id: the controller that /controller named when it was last read.
        context: the cluster; empty unless this node is the controller.
        has_taken_over: whether the failover of the controller that this node is has succeeded.
        new_topic_id: makes the id of a topic without one; None: such topics get none, as before
            inter.broker.protocol.version 2.8, and in a rehearsal.
        batch: requests of the running decision.
    """

    settings: Settings
    controller_id: int = NO_CONTROLLER
    context: ControllerContext = field(default_factory=ControllerContext)
    has_taken_over: bool = False
    journal: ControllerJournal = field(default_factory=ControllerJournal)
    new_topic_id: Callable[[], Uuid] | None = None
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

    def ignore(self, error: ZnodeError) -> None:
        """Record a malformed znode that is treated as if it did not exist."""
        self.journal.add(MALFORMED, str(error))

    def reset(self) -> None:
        """Forget the cluster and all requests that were not sent."""
        self.has_taken_over = False
        self.context = ControllerContext()
        self.batch = RequestBatch(self.context)

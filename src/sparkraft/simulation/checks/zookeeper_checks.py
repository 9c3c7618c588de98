"""Invariants of a cluster in ZooKeeper mode.

At each write that the ensemble applies:
    Z1  an election creates /controller and raises /controller_epoch by one, in one transaction
    Z2  a write under a version of /controller_epoch comes from the session that wrote the version
    Z3  a broker changes states, reassignments and deletions only under /controller_epoch
    Z5  a leader is in the ISR, and comes from the ISR before; the ISR grows only under the same
        leader and epoch, by replicas of the partition that the controller knows as live; the leader
        epoch rises by one with each leader; the controller epoch in a state is that of the writer
At each request of the controller that a broker obeys:
    Z4  it comes from the broker that was elected in its controller epoch, which never decreases,
        and is for the present registration of the receiver
When the controller answers a ControlledShutdown, and until the broker's session ends:
    Z10 the broker leads only the partitions that the answer names, of those with several replicas,
        and is in the ISR of others only as its last member; the controller neither elects it nor
        adds it to an ISR
When a broker begins to lead:
    Z6  ZooKeeper has named it the leader of the partition in this epoch
At the end:
    Z7  deleted topics have no znodes, and no logs on any broker
    Z8  one broker is the controller, and all know it; all brokers are registered; ZooKeeper and all
        brokers have the same topics, leaders and ISRs; every replica is in sync, preferred leaders
        lead, and no reassignment or deletion is in progress
    Z9  topics have the configs that they were created with

Z11, the addresses of brokers: `address_checks`.

The other checks of these runs are those of partitions, disks and clients in KRaft mode, with the
znodes in place of the metadata log (`znode_image`).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from sparkraft.metadata.image import EMPTY_IMAGE, ClusterImage
from sparkraft.metadata.partition_state import PartitionState
from sparkraft.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from sparkraft.server.broker.partition import HostedPartition
from sparkraft.server.zookeeper.control import ControllerRequests
from sparkraft.simulation.checks.address_checks import AddressChecks
from sparkraft.simulation.checks.probe import Probe, Require, current_machine
from sparkraft.simulation.checks.znode_image import (
    BROKER_IDS,
    TOPICS,
    children,
    find,
    image_of_znodes,
    read_json,
)
from sparkraft.simulation.world.znodes import Znodes
from sparkraft.zookeeper.controller import brokers
from sparkraft.zookeeper.requests import Check, Create, Delete, Operation, SetData

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine

EPOCH, CONTROLLER = "/controller_epoch", "/controller"
TOPIC_CONFIGS = "/config/topics"
QUEUES = ("/admin/delete_topics",)
ORDERS = ("/admin/reassign_partitions", "/admin/preferred_replica_election")
NOTICES = ("/log_dir_event_notification", "/isr_change_notification")
NO_EPOCH = -1
"""Broker epoch of a request for any registration."""

_DEPTH_OF_TOPIC, _DEPTH_OF_STATE = 3, 6
"""Names in the paths of a topic and of a state."""


class State(NamedTuple):
    """A partition's state, as it was written."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


class ZooKeeperChecks:
    """See the module docstring.

    Attributes:
        znodes: the tree.
        configs: of topics whose creation was acknowledged and whose deletion was not requested.
        addresses: the checker of the brokers' addresses.
    """

    def __init__(self, probe: Probe, require: Require, znodes: Znodes) -> None:
        self.znodes = znodes
        self.configs: dict[str, dict[str, str]] = {}
        self.addresses = AddressChecks(probe, require)
        self._probe = probe
        self._require = require
        self._sessions: dict[int, int] = {}
        """Version of /controller_epoch → the session that wrote it."""
        self._winners: dict[int, int] = {}
        """Controller epoch → the broker that was elected in it."""
        self._states: dict[str, State] = {}
        """Path → the state in it."""
        self._led: dict[tuple[str, int, int], int] = {}
        """Topic id, partition and leader epoch → the leader."""
        self._replicas: dict[str, dict[str, list[int]]] = {}
        """Topic → partition → replicas."""
        self._strays: set[tuple[str, int, int]] = set()
        """Topic, partition and broker of replicas that a reassignment removed. A broker that is
        away then keeps the log, as in Kafka: the responses to the deletion are not awaited."""
        self._image = (-1, EMPTY_IMAGE)
        """The last transaction when the znodes were read as an image, and the image."""
        self._leaving: dict[int, tuple[int, int]] = {}
        """Broker that has shut down → the controller epoch, and the czxid of its registration."""
        self._obeyed: dict[tuple[str, int], int] = {}
        """Broker and its process → the highest controller epoch that it has obeyed."""

    @property
    def image(self) -> ClusterImage:
        """The present znodes as an image."""
        if self._image[0] != self.znodes.zxid:
            self._image = (self.znodes.zxid, image_of_znodes(self.znodes))
        return self._image[1]

    # ---- writes

    def on_written(self, writer: str, session: int, operations: tuple[Operation, ...]) -> None:
        """Check an applied write of a machine in a session; 0: an operator's."""
        checked = {each.path: each.version for each in operations if isinstance(each, Check)}
        writes = [each for each in operations if not isinstance(each, Check)]
        elects = any(isinstance(each, SetData) and each.path == EPOCH for each in writes)
        if elects:
            self._on_election(writer, session, writes)
        elif EPOCH in checked:
            self._check_session(writer, session, writes, checked[EPOCH])
        for write in writes:
            if session and not elects:
                self._check_guarded(writer, write, is_guarded=EPOCH in checked)
            if _is_state(write.path):
                self._on_state(writer, write)
            elif write.path.startswith(f"{TOPICS}/") and write.path.count("/") == _DEPTH_OF_TOPIC:
                self._on_topic(write.path.rpartition("/")[2])
            elif write.path.startswith(f"{BROKER_IDS}/"):
                self.addresses.on_written(writer, session, write, self.znodes)

    def _on_election(self, writer: str, session: int, writes: Sequence[Operation]) -> None:
        """Check Z1."""
        stored = self.znodes.get(EPOCH)
        epoch = int(stored.data)
        self._probe.counts["elections won"] += 1
        self._probe.note(f"{writer} is elected controller in epoch {epoch}")
        controller = find(self.znodes, CONTROLLER)
        created = any(isinstance(each, Create) and each.path == CONTROLLER for each in writes)
        self._require(
            created and controller is not None and controller.owner == session,
            "Z1",
            f"{writer} writes controller epoch {epoch} without the creation of {CONTROLLER}",
        )
        last = max(self._winners, default=0)
        self._require(
            epoch == last + 1, "Z1", f"{writer} is elected in epoch {epoch}, the last was {last}"
        )
        self._sessions[stored.version] = session
        self._winners[epoch] = read_json(self.znodes, CONTROLLER)["brokerid"]

    def _check_session(
        self, writer: str, session: int, writes: Sequence[Operation], version: int
    ) -> None:
        """Check Z2."""
        elected = self._sessions.get(version)
        self._require(
            elected == session,
            "Z2",
            f"{writer} writes {[each.path for each in writes]} in session 0x{session:x} under "
            f"version {version} of {EPOCH}, which session 0x{elected or 0:x} wrote",
        )

    def _check_guarded(self, writer: str, write: Operation, *, is_guarded: bool) -> None:
        """Check Z3."""
        path = write.path
        below_topic = path.startswith(f"{TOPICS}/") and path.count("/") > TOPICS.count("/") + 1
        of_controller = (
            below_topic
            or (
                isinstance(write, Delete)
                and path.startswith((*QUEUES, *ORDERS, *NOTICES, CONTROLLER))
            )
            or (isinstance(write, Delete) and path.startswith((f"{TOPICS}/", TOPIC_CONFIGS)))
            or (isinstance(write, SetData) and path.startswith(ORDERS))
            # More partitions are written by the broker that serves the request, at a version.
            or (isinstance(write, SetData) and path.startswith(TOPICS) and write.version < 0)
        )
        self._require(
            is_guarded or not of_controller,
            "Z3",
            f"{writer} changes {path} without a check of {EPOCH}",
        )

    # ---- assignments and states

    def _on_topic(self, topic: str) -> None:
        """Note replicas that a topic had and has not any more."""
        stored = read_json(self.znodes, f"{TOPICS}/{topic}") or {}
        replicas = stored.get("partitions", {})
        if replicas:
            for index, before in self._replicas.get(topic, {}).items():
                left = set(before) - set(replicas.get(index, ()))
                self._strays |= {(topic, int(index), broker) for broker in sorted(left)}
        self._replicas[topic] = replicas

    def _on_state(self, writer: str, write: Operation) -> None:
        """Check Z5."""
        path = write.path
        if isinstance(write, Delete):
            self._states.pop(path, None)
            return
        if not isinstance(write, Create | SetData):
            return
        data = json.loads(write.data or b"")
        state = State(data["leader"], data["leader_epoch"], tuple(data["isr"]))
        before = self._states.get(path) if isinstance(write, SetData) else None
        self._states[path] = state
        topic, index = path.split("/")[3], path.split("/")[5]
        name = f"{topic}-{index}"
        self._probe.note(
            f"{name} leader={state.leader} e={state.leader_epoch} isr={list(state.isr)}"
        )
        epoch = int(self.znodes.get(EPOCH).data)
        self._require(
            data["controller_epoch"] == epoch,
            "Z5",
            f"{name} is written by controller epoch {data['controller_epoch']}, it is {epoch}",
        )
        sound = len(set(state.isr)) == len(state.isr) > 0 and state.leader in (-1, *state.isr)
        self._require(sound, "Z5", f"{name}: {state}")
        stored = read_json(self.znodes, f"{TOPICS}/{topic}") or {}
        replicas = set(stored.get("partitions", {}).get(index, ()))
        joined = set(state.isr) - set(before.isr if before else ())
        self._require(
            joined <= replicas,
            "Z5",
            f"{name}: {sorted(joined)} join the ISR, replicas are {sorted(replicas)}",
        )
        self._check_joined(writer, name, joined)
        self._check_leaving(name, epoch, before, state, joined)
        if before is not None:
            self._check_change(name, before, state, joined)
        if "topic_id" in stored and state.leader >= 0:
            self._led[stored["topic_id"], int(index), state.leader_epoch] = state.leader

    def _check_joined(self, writer: str, name: str, joined: set[int]) -> None:
        """Check that the controller knows joining replicas as live (KAFKA-14140)."""
        machine = self._probe.machine(writer)
        node: Any = None if machine is None else machine.node
        if node is None or node.zookeeper is None:
            return
        context = node.zookeeper.controller.context
        live = set(context.brokers) - context.shutting_down
        self._require(
            joined <= live,
            "Z5",
            f"{name}: {sorted(joined)} join the ISR, live for the controller are {sorted(live)}",
        )

    def _check_change(self, name: str, before: State, after: State, joined: set[int]) -> None:
        moved = after.leader != before.leader
        rose = after.leader_epoch - before.leader_epoch
        self._require(
            rose == 1 if moved else rose in (0, 1), "Z5", f"{name}: {before} becomes {after}"
        )
        self._require(
            not (moved and after.leader >= 0) or after.leader in before.isr,
            "Z5",
            f"{name}: {after.leader} leads, and was not in the ISR {list(before.isr)}",
        )
        self._require(
            not joined or (not moved and rose == 0),
            "Z5",
            f"{name}: {sorted(joined)} join the ISR with a new leader epoch: {before}, {after}",
        )

    # ---- controlled shutdowns

    def _check_answer(self, context: Any, broker: int, left: Sequence[tuple[str, int]]) -> None:
        """Check the first half of Z10, unless another controller has been elected meanwhile."""
        epoch = int(self.znodes.get(EPOCH).data)
        if epoch != context.epoch:
            return
        self._probe.counts["controlled shutdowns"] += 1
        registration = find(self.znodes, f"{BROKER_IDS}/{broker}")
        if registration is not None:
            self._leaving[broker] = (epoch, registration.czxid)
        deleted = {*children(self.znodes, QUEUES[0]), *context.topics_to_be_deleted}
        image = self.image
        for topic in image.topics_in_order():
            for index, partition in topic.in_order():
                at = (topic.name, index)
                if topic.name in deleted or at not in context.leaderships:
                    continue
                if broker not in partition.replicas or len(partition.replicas) == 1:
                    continue
                leads = partition.leader == broker
                self._require(
                    leads == (at in left)
                    and (leads or broker not in partition.isr or len(partition.isr) == 1),
                    "Z10",
                    f"broker {broker} may stop but for {sorted(left)}; {topic.name}-{index} has "
                    f"leader {partition.leader} and ISR {list(partition.isr)}",
                )

    def _check_leaving(
        self, name: str, epoch: int, before: State | None, after: State, joined: set[int]
    ) -> None:
        """Check the second half of Z10."""
        elected = {after.leader} if before is None or after.leader != before.leader else set()
        for broker in sorted((elected | joined) & self._leaving.keys()):
            registration = find(self.znodes, f"{BROKER_IDS}/{broker}")
            present = (epoch, None if registration is None else registration.czxid)
            self._require(
                present != self._leaving[broker],
                "Z10",
                f"{name}: broker {broker} has shut down, and {before} becomes {after}",
            )

    # ---- brokers

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe brokers that obey, and begin to lead, within this context."""
        begin, apply = ControllerRequests._begin, HostedPartition.apply  # noqa: SLF001 (a look)
        shut_down = brokers.shut_down

        @wraps(begin)
        def begun(requests: ControllerRequests, request: Any, name: str) -> None:
            begin(requests, request, name)
            machine = current_machine(self._probe)
            if machine is not None:
                own = requests._broker_epoch.value  # noqa: SLF001 (likewise)
                self._probe.check(lambda: self._check_obeyed(machine, request, name, own))
                if isinstance(request, UpdateMetadataRequest):
                    self._probe.check(lambda: self.addresses.on_obeyed(machine, request))

        @wraps(apply)
        def applied(hosted: HostedPartition, *arguments: Any, **more: Any) -> bool:
            changed = apply(hosted, *arguments, **more)
            machine = current_machine(self._probe)
            if machine is not None and hosted.is_leader:
                self._probe.check(lambda: self._check_leader(machine, hosted))
            return changed

        @wraps(shut_down)
        def shut(active: Any, broker: int) -> Any:
            left = yield from shut_down(active, broker)
            self._probe.check(lambda: self._check_answer(active.context, broker, left))
            return left

        with (
            patch.object(brokers, "shut_down", shut),
            patch.object(ControllerRequests, "_begin", begun),
            patch.object(HostedPartition, "apply", applied),
        ):
            yield

    def _check_obeyed(self, machine: "Machine", request: Any, name: str, own: int) -> None:
        """Check Z4."""
        epoch = request.controller_epoch
        winner = self._winners.get(epoch)
        self._require(
            winner == request.controller_id,
            "Z4",
            f"{machine.name} obeys {name} of {request.controller_id} in epoch {epoch} of {winner}",
        )
        key = (machine.name, machine.life)
        highest = self._obeyed.get(key, -1)
        self._obeyed[key] = max(highest, epoch)
        self._require(
            epoch >= highest,
            "Z4",
            f"{machine.name} obeys {name} of controller epoch {epoch} after {highest}",
        )
        self._require(
            request.broker_epoch in (NO_EPOCH, own) or request.broker_epoch > own,
            "Z4",
            f"{machine.name} obeys {name} for broker epoch {request.broker_epoch}, its is {own}",
        )

    def _check_leader(self, machine: "Machine", hosted: Any) -> None:
        """Check Z6."""
        key = (str(hosted.topic_id), hosted.index, hosted.leader_epoch)
        named = self._led.get(key)
        self._require(
            named == machine.id,
            "Z6",
            f"{machine.name} leads {hosted} in epoch {hosted.leader_epoch} of {named} in ZooKeeper",
        )

    # ---- the healed cluster

    def differences(self) -> Iterator[str]:
        """Describe what is not at rest, or not the same everywhere (Z7, Z8)."""
        yield from self._controller_differences()
        ids = [int(name) for name in children(self.znodes, BROKER_IDS)]
        wanted = sorted(machine.id for machine in self._probe.brokers)
        if ids != wanted:
            yield f"brokers {ids} are registered, not {wanted}"
        for path in (*QUEUES, *NOTICES):
            if found := children(self.znodes, path):
                yield f"{path} has {found}"
        for path in ORDERS:
            if find(self.znodes, path) is not None:
                yield f"{path} exists"
        yield from self.addresses.differences(self.znodes)
        image = self.image
        for topic in image.topics_in_order():
            yield from self._topic_differences(topic.name, image)
        for machine in self._probe.brokers:
            yield from self._broker_differences(machine, image)

    def _controller_differences(self) -> Iterator[str]:
        stored = read_json(self.znodes, CONTROLLER)
        if stored is None:
            yield f"{CONTROLLER} does not exist"
            return
        for machine in self._probe.brokers:
            node: Any = machine.live_node
            if node is None or node.zookeeper is None:
                yield f"{machine.name} is not running"
                continue
            if node.is_controller != (machine.id == stored["brokerid"]):
                yield f"{machine.name} is controller: {node.is_controller}, ZooKeeper has {stored}"
            if node.zookeeper.controller_id != stored["brokerid"]:
                known = node.zookeeper.controller_id
                yield f"{machine.name} knows controller {known}, ZooKeeper has {stored}"

    def _topic_differences(self, name: str, image: ClusterImage) -> Iterator[str]:
        topic = image.topic(name)
        assert topic is not None
        stored = read_json(self.znodes, f"{TOPICS}/{name}")
        if len(topic.partitions) != len(stored["partitions"]):
            yield f"{name} has states of {sorted(topic.partitions)} of {stored['partitions']}"
        for index, partition in topic.in_order():
            if partition.leader < 0 or set(partition.isr) != set(partition.replicas):
                yield f"{name}-{index} is not in sync: {partition}"
            elif partition.adding_replicas or partition.removing_replicas:
                yield f"{name}-{index} is being reassigned: {partition}"
            elif partition.leader != partition.replicas[0]:
                yield f"{name}-{index} is not led by its preferred replica: {partition}"

    def _broker_differences(self, machine: "Machine", image: ClusterImage) -> Iterator[str]:
        """Describe what a broker's image, replicas and logs have other than the znodes."""
        node: Any = machine.live_node
        if node is None or node.broker is None:
            return
        own = node._image()  # noqa: SLF001 (a checker looks inside)
        names, known = set(image.topics_by_name), set(own.topics_by_name)
        if names != known:
            yield f"{machine.name} has topics {sorted(known ^ names)} other than ZooKeeper"
        assigned = set()
        for topic in image.topics_in_order():
            for index, partition in topic.in_order():
                found = own.partition(topic.id, index)
                if found is None or _leadership(found) != _leadership(partition):
                    yield f"{machine.name} has {topic.name}-{index} as {found}, it is {partition}"
                if machine.id in partition.replicas:
                    assigned.add((topic.name, index))
                    yield from _replica_differences(machine, node, topic.name, index, partition)
        logs = {(log.topic, log.partition) for log in node.broker.log_manager.logs()}
        known_strays = {(topic, index) for topic, index, at in self._strays if at == machine.id}
        if extra := sorted(logs - assigned - known_strays):
            yield f"{machine.name} has logs of {extra}, which are not assigned to it"

    def check_end(self) -> None:
        """Check Z9 and Z11 on the healed cluster."""
        self.addresses.check_end(self.znodes)
        for name, configs in sorted(self.configs.items()):
            stored = read_json(self.znodes, f"{TOPIC_CONFIGS}/{name}") or {}
            found = stored.get("config")
            self._require(
                found == configs, "Z9", f"{name} was created with {configs}, it has {found}"
            )


def _is_state(path: str) -> bool:
    return (
        path.startswith(TOPICS) and path.endswith("/state") and path.count("/") == _DEPTH_OF_STATE
    )


def _leadership(partition: PartitionState) -> tuple[int, int, tuple[int, ...]]:
    return partition.leader, partition.leader_epoch, tuple(sorted(partition.isr))


def _replica_differences(
    machine: "Machine", node: Any, topic: str, index: int, partition: PartitionState
) -> Iterator[str]:
    hosted = node.broker.replica_manager.hosted(topic, index)
    if hosted is None:
        yield f"{machine.name} does not host {topic}-{index}"
    elif hosted.leader_epoch != partition.leader_epoch or hosted.is_leader != (
        partition.leader == machine.id
    ):
        yield f"{machine.name} has {hosted} in epoch {hosted.leader_epoch}, it is {partition}"

"""Invariants of a migration from ZooKeeper (KIP-866).

M1  a leader has every acknowledged record of its partition, also after a change of the ruler
M2  one ruler: requests that brokers obey with one controller epoch come from one controller, and
    a write under a version of /controller_epoch comes from the process that wrote that version
M3  writes of a KRaft controller check /controller_epoch and /migration, and begin when it has taken
    /controller; those of a broker to topics check /controller_epoch
M4  in the end ZooKeeper, the metadata log and all brokers have the same topics, leaders and ISRs
M5  a topic whose creation was acknowledged, in ZooKeeper or by the quorum, stays
M6  a partition has one leader per leader epoch, and the epoch in ZooKeeper never decreases
M7  a broker is never sent by a KRaft controller what ZooKeeper does not have yet
M8  after a roll-back no KRaft controller writes to ZooKeeper or is obeyed; ZooKeeper and all
    brokers have the same topics, leaders and ISRs
M9  after a migration was finalized no controller writes to ZooKeeper
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from sparkraft.base.ids import Uuid
from sparkraft.metadata.image import ClusterImage, ResourceType
from sparkraft.simulation.checks.probe import Probe, Require
from sparkraft.simulation.checks.znode_image import (
    children,
    image_of_znodes,
    read_json,
    state_path,
)
from sparkraft.simulation.world.znodes import Znodes
from sparkraft.simulation.world.zookeeper_servers import OPERATOR
from sparkraft.zookeeper.requests import Check, Create, Delete, Operation, SetData

EPOCH, CONTROLLER, MIGRATION = "/controller_epoch", "/controller", "/migration"
TOPICS = "/brokers/topics/"
NOTICES = "/config/changes/"


class Role(Protocol):
    """A replica of a broker."""

    state: Any
    leads: bool


class Broker(Protocol):
    """A modelled broker."""

    id: int
    name: str
    logs: dict[tuple[str, int], Any]
    roles: dict[tuple[str, int], Any]
    cache: dict[tuple[str, int], Any]

    @property
    def is_up(self) -> bool: ...


class MigrationChecks:
    """See the module docstring.

    Attributes:
        topics: topics that must exist, with their ids.
        is_rolled_back: whether an operator has rolled the migration back.
        is_finalized: whether all controllers run without the migration.
    """

    def __init__(self, probe: Probe, require: Require, znodes: Znodes) -> None:
        self.topics: dict[str, Uuid] = {}
        self.is_rolled_back = self.is_finalized = False
        self._probe = probe
        self._require = require
        self._znodes = znodes
        self._configs: dict[str, dict[str, str]] = {}
        self._holders: dict[int, str] = {}
        """Version of /controller_epoch → the process that wrote it."""
        self._rulers: dict[int, tuple[int, bool]] = {}
        """Controller epoch → id of the controller, and whether it is of the quorum."""
        self._acknowledged: dict[tuple[Uuid, int], list[int]] = {}
        self._leaders: dict[tuple[Uuid, int, int], int] = {}
        self._epochs: dict[str, tuple[int, int]] = {}
        """Path of a state → creation and leader epoch."""
        self._has_ruled: set[str] = set()
        """KRaft controllers that took /controller."""

    # ---- clients

    def on_topic(self, name: str, topic_id: Uuid, configs: dict[str, str]) -> None:
        """The creation of a topic is acknowledged."""
        self._probe.counts["topics created"] += 1
        self.topics[name] = topic_id
        self._configs[name] = configs

    def on_acknowledged(self, topic_id: Uuid, partition: int, values: list[int]) -> None:
        """Values are acknowledged."""
        self._probe.counts["records acknowledged"] += len(values)
        self._acknowledged.setdefault((topic_id, partition), []).extend(values)

    # ---- brokers

    def on_obeyed(self, broker: Broker, request: Any) -> None:
        """Check M2 and M7 for a request that a broker obeys."""
        ruler = (request.controller_id, request.is_kraft_controller)
        known = self._rulers.setdefault(request.controller_epoch, ruler)
        self._require(
            known == ruler,
            "M2",
            f"{broker.name} obeys {ruler} in epoch {request.controller_epoch} of {known}",
        )
        if not request.is_kraft_controller:
            return
        self._require(
            not self.is_rolled_back,
            "M8",
            f"{broker.name} obeys {request.controller_id} of the quorum after the roll-back",
        )
        for topic in getattr(request, "topic_states", ()):
            for part in topic.partition_states:
                if hasattr(part, "isr") and part.leader >= -1:
                    self._check_not_ahead(broker, topic.topic_name, part)

    def _check_not_ahead(self, broker: Broker, topic: str, part: Any) -> None:
        state = read_json(self._znodes, state_path(topic, part.partition_index))
        # A topic may have been deleted since.
        self._require(
            state is None or state["leader_epoch"] >= part.leader_epoch,
            "M7",
            f"{broker.name} is sent {topic}-{part.partition_index} in epoch {part.leader_epoch}, "
            f"ZooKeeper has {state}",
        )

    def on_leads(self, broker: Broker, state: Any) -> None:
        """Check M1 and M6 for a broker that begins to lead."""
        key = (state.topic_id, state.partition, state.leader_epoch)
        known = self._leaders.setdefault(key, broker.id)
        name = f"{state.topic}-{state.partition}"
        self._require(
            known == broker.id,
            "M6",
            f"{broker.id} and {known} lead {name} in epoch {state.leader_epoch}",
        )
        self._check_complete(broker, state)

    def _check_complete(self, broker: Broker, state: Any) -> None:
        if self.topics.get(state.topic) != state.topic_id:
            return
        at = (state.topic, state.partition)
        values = {entry.value for entry in broker.logs[at]}
        lost = [
            value
            for value in self._acknowledged.get((state.topic_id, state.partition), ())
            if value not in values
        ]
        self._require(
            not lost,
            "M1",
            f"{broker.name} leads {at[0]}-{at[1]} in epoch {state.leader_epoch} without "
            f"{lost[:5]} of {len(lost)} acknowledged values",
        )

    # ---- ZooKeeper

    def on_written(self, writer: str, operations: tuple[Operation, ...]) -> None:
        """Check M2, M3 and M6 for an applied write."""
        checks = {each.path: each.version for each in operations if isinstance(each, Check)}
        writes = [each for each in operations if not isinstance(each, Check)]
        if writer == OPERATOR:
            return
        self._check_over(writer, writes)
        elects = any(each.path == EPOCH for each in writes)
        if elects:
            self._holders[self._znodes.get(EPOCH).version] = writer
            if writer.startswith("n"):
                self._has_ruled.add(writer)
        if EPOCH in checks and not elects:
            holder = self._holders.get(checks[EPOCH])
            self._require(
                holder in (None, writer),
                "M2",
                f"{writer} writes {[each.path for each in writes]} under version {checks[EPOCH]} "
                f"of {EPOCH}, which {holder} wrote",
            )
        for each in writes:
            if not elects:
                self._check_guarded(writer, each, {*checks, *(other.path for other in writes)})
            self._check_epoch(each)

    def _check_over(self, writer: str, writes: Sequence[Operation]) -> None:
        """Check M8 and M9."""
        if not writer.startswith("n"):
            return
        if all(isinstance(each, Create) and each.path == MIGRATION for each in writes):
            return  # without a copy, as a controller that waits for brokers makes it
        paths = [each.path for each in writes]
        self._require(not self.is_rolled_back, "M8", f"{writer} writes {paths} after a roll-back")
        self._require(not self.is_finalized, "M9", f"{writer} writes {paths} although finalized")

    def _check_guarded(self, writer: str, write: Operation, named: set[str]) -> None:
        """Check M3."""
        path = write.path
        if writer.startswith("b"):
            guarded = EPOCH in named or not path.startswith(TOPICS)
        elif isinstance(write, Create) and (path.startswith(NOTICES) or not write.data):
            guarded = True  # notices are not guarded, and neither are empty parents, as in Kafka
        elif isinstance(write, Create) and path == MIGRATION:
            guarded = True
        elif path == CONTROLLER and isinstance(write, Delete):
            guarded = EPOCH in named
        else:
            guarded = {EPOCH, MIGRATION} <= named and writer in self._has_ruled
        self._require(guarded, "M3", f"{writer} writes {path}, and checks only {sorted(named)}")

    def _check_epoch(self, write: Operation) -> None:
        path = write.path
        if not isinstance(write, SetData | Create) or not path.endswith("/state"):
            return
        state = read_json(self._znodes, path)
        if state is None:
            return
        created = self._znodes.get(path).czxid
        before = self._epochs.get(path, (created, -1))
        self._epochs[path] = (created, state["leader_epoch"])
        self._require(
            before[0] != created or before[1] <= state["leader_epoch"],
            "M6",
            f"{path} falls from leader epoch {before[1]} to {state['leader_epoch']}",
        )

    # ---- at the end

    def differences(self, image: ClusterImage, brokers: Sequence[Broker]) -> Iterator[str]:
        """Describe each difference of ZooKeeper, or of a broker, from the metadata log."""
        names = sorted(image.topics_by_name)
        found = children(self._znodes, TOPICS.rstrip("/"))
        if found != names:
            yield f"ZooKeeper has topics {found}, the log {names}"
        deletions = children(self._znodes, "/admin/delete_topics")
        if deletions:
            yield f"ZooKeeper has pending deletions of {deletions}"
        for name in names:
            yield from self._topic_differences(image, name)
        yield from self.broker_differences(image, brokers)

    def stored_differences(self, brokers: Sequence[Broker]) -> Iterator[str]:
        """Describe deletions that have not ended, and differences of brokers from ZooKeeper."""
        deletions = children(self._znodes, "/admin/delete_topics")
        if deletions:
            yield f"ZooKeeper has pending deletions of {deletions}"
        yield from self.broker_differences(image_of_znodes(self._znodes), brokers)

    def broker_differences(self, image: ClusterImage, brokers: Sequence[Broker]) -> Iterator[str]:
        """Describe each difference of a broker from an image, and partitions that are not whole."""
        for topic in image.topics_in_order():
            for at, part in topic.in_order():
                if part.leader < 0:
                    yield f"{topic.name}-{at} has no leader, ISR {list(part.isr)}"
                for broker in brokers:
                    yield from _replica_differences(broker, (topic.name, at), part)
        for broker in brokers:
            yield from _extra(broker, set(image.topics_by_name))

    def _topic_differences(self, image: ClusterImage, name: str) -> Iterator[str]:
        topic = image.topic(name)
        assert topic is not None
        stored = read_json(self._znodes, f"{TOPICS}{name}") or {}
        wanted = {str(at): list(each.replicas) for at, each in topic.partitions.items()}
        if (stored.get("partitions"), stored.get("topic_id")) != (wanted, str(topic.id)):
            yield f"ZooKeeper has {name} as {stored}, the log {wanted} of {topic.id}"
        configs = dict(image.config(ResourceType.TOPIC, name))
        stored_configs = (read_json(self._znodes, f"/config/topics/{name}") or {}).get(
            "config"
        ) or {}
        if stored_configs != configs:
            yield f"ZooKeeper has other configs of {name} than {configs}"
        for at, part in sorted(topic.partitions.items()):
            state = read_json(self._znodes, state_path(name, at)) or {}
            have = (state.get("leader"), state.get("leader_epoch"), sorted(state.get("isr", ())))
            want = (part.leader, part.leader_epoch, sorted(part.isr))
            if have != want:
                yield f"ZooKeeper has {name}-{at} as {have}, the log {want}"

    def check_topics(self, image: ClusterImage) -> None:
        """Check M5 on the healed cluster."""
        for name, topic_id in sorted(self.topics.items()):
            found = image.topics_by_name.get(name)
            self._require(
                found == topic_id, "M5", f"{name} was created as {topic_id}, the log has {found}"
            )
            configs = dict(image.config(ResourceType.TOPIC, name))
            expected = self._configs[name]
            self._require(
                configs == expected, "M5", f"{name} was created with {expected}, it has {configs}"
            )

    def check_stored_topics(self) -> None:
        """Check M5 in ZooKeeper, after a roll-back."""
        for name, topic_id in sorted(self.topics.items()):
            found = (read_json(self._znodes, f"{TOPICS}{name}") or {}).get("topic_id")
            self._require(
                found == str(topic_id),
                "M5",
                f"{name} was created as {topic_id}, ZooKeeper has {found}",
            )
            configs = (read_json(self._znodes, f"/config/topics/{name}") or {}).get("config")
            expected = self._configs[name]
            self._require(
                configs == expected, "M5", f"{name} was created with {expected}, it has {configs}"
            )

    def check_leaders(self, brokers: Sequence[Broker]) -> None:
        """Check M1 on the healed cluster: every topic has leaders with all its values."""
        led = set()
        for broker in brokers:
            for at, role in sorted(broker.roles.items()):
                if role.leads:
                    led.add(at)
                    self._check_complete(broker, role.state)
        for name in sorted(self.topics):
            missing = [at for at in range(2) if (name, at) not in led]
            self._require(not missing, "M1", f"no broker leads {name}-{missing}")


def _replica_differences(broker: Broker, at: tuple[str, int], part: Any) -> Iterator[str]:
    where = f"{broker.name} has {at[0]}-{at[1]}"
    cached = broker.cache.get(at)
    if cached is None or cached[:2] != (part.leader, part.leader_epoch):
        yield f"{where} in its cache as {cached}, the log {part.leader, part.leader_epoch}"
    if broker.id not in part.replicas:
        return
    role = broker.roles.get(at)
    if role is None:
        yield f"{where} not as a replica"
    elif (role.state.leader, role.state.leader_epoch) != (part.leader, part.leader_epoch):
        yield f"{where} as {role.state}, the log {part.leader, part.leader_epoch}"


def _extra(broker: Broker, names: set[str]) -> Iterator[str]:
    for what, known in (("cache", broker.cache), ("roles", broker.roles)):
        extra = sorted({name for name, _ in known} - names)
        if extra:
            yield f"{broker.name} has {extra} in its {what}, the log has not"

"""Invariants of consumer groups, read from the bytes of `__consumer_offsets`.

Whenever a batch of `__consumer_offsets` is committed:
    K1  a partition is assigned to one member, or waits for its revocation
    K2  group epoch ≥ target epoch ≥ member epoch ≥ previous epoch; the first two never decrease
    K3  a target gives each partition of the subscribed topics to one member
    K4  a member is assigned topics only that it subscribes to
    K6  `uniform` moves as few partitions as a balanced assignment allows
    K7  `uniform` gives members with the same subscription numbers that differ by one at most
    K9  the group epoch increases only if a member, a subscription or a topic has changed
    K13 a group has records of one type
    K14 a conversion keeps assignments, offsets, and the epoch or generation
    K15 the whole name of a topic matches the regular expression that finds it, and the group's
        members may describe it
    R2  all records of a decision are in one batch
Every second:
    K11 the holders of partitions in memory are those of the log; also after a load of a prefix
At each response:
    K10 the member epoch in it is replicated
    R1  the offsets in it are replicated
At the end:
    K5  the group converges, and each partition has an owner (K3)
    K12 every prefix of the log, compacted or not, can be loaded

K8: `workload.group_ledger`; G1 to G8: the classic protocol
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from sparkraft.base.ids import Millis, Offset, Uuid
from sparkraft.coordinator.runtime import Instant
from sparkraft.metadata.image import ClusterImage
from sparkraft.protocol.messages import consumer_group_records as wire
from sparkraft.protocol.messages.classic_group_records import GroupMetadataKey, OffsetCommitKey
from sparkraft.protocol.messages.k08_offset_commit import OffsetCommitResponse
from sparkraft.protocol.messages.k09_offset_fetch import OffsetFetchResponse
from sparkraft.protocol.messages.k14_sync_group import SyncGroupResponse
from sparkraft.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from sparkraft.records.record import decode_records
from sparkraft.simulation.checks.committed_log import CommittedLog, hosted_of, leader_of
from sparkraft.simulation.checks.group_log import (
    FIRST_EPOCH,
    STABLE,
    GroupEvent,
    GroupView,
    Owned,
    assigned_in,
    group_events,
)
from sparkraft.simulation.checks.probe import Probe, Require
from sparkraft.simulation.checks.stored_log import StoredBatch, StoredLog
from sparkraft.simulation.checks.watched_disk import DATA, partition_of

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine

TOPIC = "__consumer_offsets"

Named = frozenset[tuple[str, int]]
"""Partitions by the names of their topics."""

CAUSES = (
    wire.ConsumerGroupMemberMetadataKey,
    wire.ConsumerGroupRegularExpressionKey,
    GroupMetadataKey,
)
"""Records in the batch of a new group epoch that are a cause of it; another is a new topic hash."""


class GroupChecks:
    """See the module docstring."""

    def __init__(
        self,
        probe: Probe,
        require: Require,
        log_of: Callable[["Machine", str], StoredLog | None],
        image: Callable[[], ClusterImage],
        may_find: Callable[[str, str, int], bool],
    ) -> None:
        """Check nothing yet.

        Args:
            probe: the world.
            require: reports violations.
            log_of: the log of a partition's directory on a machine.
            image: the committed metadata.
            may_find: whether a group's members may describe a topic, from an offset of the
                metadata on.
        """
        self.probe = probe
        self.require = require
        self.groups: dict[str, GroupView] = {}
        """Group id → its committed state."""
        self._log_of = log_of
        self._image = image
        self._may_find = may_find
        self._logs: dict[int, CommittedLog] = defaultdict(CommittedLog)
        self._history: dict[int, list[StoredBatch]] = defaultdict(list)
        self._parsed: dict[tuple[int, int, int], list[tuple[str, GroupEvent]]] = {}
        self._epochs: dict[tuple[str, str, int], set[str]] = defaultdict(set)
        """Group, member and member epoch → machines that have written it."""
        self._offsets: dict[tuple[str, str, int, int], set[str]] = defaultdict(set)
        """Group, topic, partition and offset → machines that have written it."""
        self._synced: dict[tuple[str, int, str], set[bytes]] = defaultdict(set)
        """Group, generation and classic member → assignments it has received."""

    # ---- appends and responses

    def on_batches(self, machine: "Machine", directory: str, batches: list[StoredBatch]) -> None:
        """Note what a machine has written."""
        topic, index = partition_of(directory)
        for batch in batches if topic == TOPIC else ():
            self._logs[index].add(batch)
            for group_id, event in self._events(index, batch):
                key, value = event.key, event.value
                if isinstance(key, wire.ConsumerGroupCurrentMemberAssignmentKey) and value:
                    self._epochs[group_id, key.member_id, value.member_epoch].add(machine.name)
                elif isinstance(key, OffsetCommitKey) and value:
                    at = (group_id, key.topic, key.partition, value.offset)
                    self._offsets[at].add(machine.name)

    def on_answer(self, host: str, request: Any, response: Any) -> None:
        """Check that what a client is given is replicated."""
        enough = self.probe.layout.min_insync
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            epoch = response.member_epoch
            if not response.error_code and epoch > 0:
                written = self._epochs[request.group_id, response.member_id or "", epoch]
                self.require(
                    len(written) >= enough,
                    "K10",
                    f"{host} gives {response.member_id} of {request.group_id} epoch {epoch}, "
                    f"written on {sorted(written)}",
                )
            return
        if isinstance(response, SyncGroupResponse) and not response.error_code:
            to = (request.group_id, request.generation_id, request.member_id)
            self._synced[to].add(bytes(response.assignment))
        for at in _offsets_in(request, response):
            if at[0] in self.groups:
                written = self._offsets[at]
                self.require(
                    len(written) >= enough, "R1", f"{host} returns {at}, written on {written}"
                )

    def _events(self, index: int, batch: StoredBatch) -> list[tuple[str, GroupEvent]]:
        key = (index, batch.header.base_offset, batch.header.crc)
        if key not in self._parsed:
            self._parsed[key] = list(group_events(batch))
        return self._parsed[key]

    # ---- committed records

    def every_second(self) -> None:
        """Check newly committed batches, and the memory of the coordinators."""
        for index in self._indexes():
            machine = leader_of(self.probe, (TOPIC, index))
            if machine is None:
                continue
            log = self._log_of(machine, f"{DATA}/{TOPIC}-{index}")
            hosted = hosted_of(machine, (TOPIC, index))
            if log is not None and hosted is not None:
                for batch in self._logs[index].advance(log, hosted.log.high_watermark):
                    self._on_committed(index, batch)
                self._check_memory(machine, index, log)

    def _indexes(self) -> Iterable[int]:
        image = self._image()
        topic_id = image.topics_by_name.get(TOPIC)
        return () if topic_id is None else sorted(image.topics_by_id[topic_id].partitions)

    def _on_committed(self, index: int, batch: StoredBatch) -> None:
        self._history[index].append(batch)
        events: dict[str, list[GroupEvent]] = defaultdict(list)
        for group_id, event in self._events(index, batch):
            events[group_id].append(event)
        for group_id, found in events.items():
            group = self.groups.setdefault(group_id, GroupView())
            if all(isinstance(event.key, OffsetCommitKey) for event in found):
                for event in found:
                    group.apply(event)
                continue
            before = deepcopy(group)
            for event in found:
                group.apply(event)
            self.probe.note(f"group {group_id} at {batch.header.base_offset}: {_tell(group)}")
            self.probe.counts["group records committed"] += len(found)
            where = f"{group_id} at {batch.header.base_offset}"
            self._check_group(where, group, before)
            self._check_found(where, group_id, found)
            self._check_target(where, group, before, found)
            self._check_conversion(where, group, before, found)

    def _check_group(self, where: str, group: GroupView, before: GroupView) -> None:
        holders: dict[Any, str] = {}
        for member_id, member in group.members.items():
            for partition in member.held:
                holder = holders.setdefault(partition, member_id)
                self.require(
                    holder == member_id, "K1", f"{where}: {holder} and {member_id} hold {partition}"
                )
        for pattern, topics in group.regexes.items():
            wrong = [topic for topic in sorted(topics) if not re.fullmatch(pattern, topic)]
            self.require(not wrong, "K15", f"{where}: {pattern} finds {wrong}")
        both = group.epoch is not None and group.generation is not None
        self.require(not both, "K13", f"{where}: {_tell(group)}")
        if group.epoch is None:
            return
        for member_id, member in group.members.items():
            # A group that is upgraded before its first generation is in epoch 0. A member that
            # joins with an unresolved regular expression stays in that epoch, and Kafka's
            # CurrentAssignmentBuilder changes nothing, so that no current assignment is written
            # before its next heartbeat.
            if group.target_epoch == 0 and not member.has_current:
                member.began_in_epoch_0 = True
            has_current = member.has_current or member.began_in_epoch_0
            whole = member.has_subscription and has_current
            self.require(whole, "R2", f"{where}: {member_id} is {member}")
            self.require(
                member.previous_epoch <= member.epoch <= group.target_epoch or member.epoch < 0,
                "K2",
                f"{where}: {member_id} has epochs {member.previous_epoch} and {member.epoch}, "
                f"target {group.target_epoch}",
            )
        grows = before.epoch is None or (
            group.epoch >= before.epoch and group.target_epoch >= before.target_epoch
        )
        self.require(
            group.epoch >= group.target_epoch and grows,
            "K2",
            f"{where}: epochs {group.epoch} and {group.target_epoch}, before {before.epoch} and "
            f"{before.target_epoch}",
        )

    def _check_found(self, where: str, group_id: str, events: list[GroupEvent]) -> None:
        for event in events:
            if isinstance(event.key, wire.ConsumerGroupRegularExpressionKey) and event.value:
                version = event.value.version
                for topic in event.value.topics:
                    self.require(
                        self._may_find(group_id, topic, version),
                        "K15",
                        f"{where}: {event.key.regular_expression} finds {topic}, which no member "
                        "may describe",
                    )

    def _check_target(
        self, where: str, group: GroupView, before: GroupView, events: list[GroupEvent]
    ) -> None:
        if group.epoch is None:
            return
        if before.epoch is not None and group.epoch > before.epoch:
            caused = group.metadata_hash != before.metadata_hash
            caused = caused or any(isinstance(event.key, CAUSES) for event in events)
            self.require(caused, "K9", f"{where}: epoch {group.epoch} without a cause")
        self._check_current(where, group, before, events)
        targets = sum(
            isinstance(event.key, wire.ConsumerGroupTargetAssignmentMetadataKey)
            and event.value is not None
            for event in events
        )
        # The first target of a converted group is the last assignment of its classic members,
        # whatever they subscribe to by now (Kafka's ConsumerGroup.fromClassicGroup).
        if targets > (before.generation is not None):
            self._check_subscribed(where, group)
            if group.target_epoch == group.epoch:
                self._check_assigned(where, group)
            if _is_uniform(group):
                self._check_balance(where, group, before)

    def _check_subscribed(self, where: str, group: GroupView) -> None:
        """Check the topics of a target, which is computed for all members at once."""
        for member_id, member in group.members.items():
            targets = {topic_id for topic_id, _ in group.targets.get(member_id, ())}
            self._require_subscribed(where, member_id, group.topics_of(member), targets)

    def _check_current(
        self, where: str, group: GroupView, before: GroupView, events: list[GroupEvent]
    ) -> None:
        """Check the topics of each member whose assignment changes.

        Kafka's CurrentAssignmentBuilder takes topics away that a member no longer subscribes to,
        even if they are part of its target: a successor of a static member has the target of its
        predecessor at first (GroupMetadataManager.replaceMember). Neither a static member that
        leaves for a while nor members of a converted group are reconciled in that batch.
        """
        for event in events:
            key = event.key
            if not isinstance(key, wire.ConsumerGroupCurrentMemberAssignmentKey):
                continue
            member = group.members.get(key.member_id)
            if member is None or member.epoch < 0 or key.member_id in before.classic_members:
                continue
            assigned = {topic_id for topic_id, _ in member.assigned}
            self._require_subscribed(where, key.member_id, group.topics_of(member), assigned)

    def _require_subscribed(
        self, where: str, member_id: str, subscribed: frozenset[str], topic_ids: set[bytes]
    ) -> None:
        names = self._image().topics_by_id
        for topic_id in sorted(topic_ids):
            topic = names.get(Uuid(topic_id))
            self.require(
                topic is None or topic.name in subscribed,
                "K4",
                f"{where}: {member_id} subscribes to {sorted(subscribed)}, not to the topic "
                f"{topic.name if topic is not None else ''}",
            )

    def _check_assigned(self, where: str, group: GroupView) -> None:
        """Check that a target gives each partition of the subscribed topics to one member.

        The topics exist before the group: no coordinator has an image without them.
        """
        given = [one for member_id in group.members for one in group.targets.get(member_id, ())]
        wanted = self._subscribed(group)
        self.require(
            sorted(given) == wanted,
            "K3",
            f"{where}: {len(given)} partitions in the target, {len(wanted)} subscribed",
        )

    def _subscribed(self, group: GroupView) -> list[Any]:
        """The partitions of the topics that members subscribe to."""
        image = self._image()
        topics = {one for member in group.members.values() for one in group.topics_of(member)}
        return sorted(
            (bytes(image.topics_by_name[name]), index)
            for name in topics
            if name in image.topics_by_name
            for index in image.topics_by_id[image.topics_by_name[name]].partitions
        )

    def _check_balance(self, where: str, group: GroupView, before: GroupView) -> None:
        sizes = {one: len(group.targets.get(one, ())) for one in group.members}
        if not sizes:
            return
        self.require(max(sizes.values()) - min(sizes.values()) <= 1, "K7", f"{where}: {sizes}")
        is_replaced = any(
            member.instance_id is not None and one not in before.members
            for one, member in group.members.items()
        )
        if before.epoch is None or is_replaced:
            return
        every = frozenset[Any]().union(*group.targets.values())
        quota, extras = divmod(len(every), len(group.members))
        had = {one: before.targets.get(one, frozenset()) & every for one in group.members}
        larger = sum(len(targets) > quota for targets in had.values())
        possible = sum(min(len(targets), quota) for targets in had.values()) + min(larger, extras)
        kept = sum(len(had[one] & group.targets.get(one, frozenset())) for one in had)
        self.require(kept == possible, "K6", f"{where}: {kept} partitions stay, {possible} could")

    def _check_conversion(
        self, where: str, group: GroupView, before: GroupView, events: list[GroupEvent]
    ) -> None:
        converts = (before.epoch is None) != (group.epoch is None)
        if not converts or (before.generation is None) == (group.generation is None):
            return
        self.require(group.offsets == before.offsets, "K14", f"{where}: offsets have changed")
        # A group without members is replaced by a new one of the other type.
        if before.generation is not None and before.classic_members:
            self._check_upgrade(where, group, before, before.generation, events)
        elif before.members:
            self._check_downgrade(where, group, before)

    def _check_upgrade(
        self,
        where: str,
        group: GroupView,
        before: GroupView,
        generation: int,
        events: list[GroupEvent],
    ) -> None:
        """Check that members keep what they were given (Kafka's ConsumerGroup.fromClassicGroup).

        The consumer group starts in the generation of the classic one, which is newer than the
        stored one while that is rebalanced. Then members have the assignment of the earlier
        generation, or none: GroupMetadataManager.prepareRebalance drops it if members still wait
        for the next one. The same is true of a stored assignment that no member has received,
        since its append may not be complete.
        """
        epochs = [
            event.value.epoch
            for event in events
            if isinstance(event.key, wire.ConsumerGroupMetadataKey) and event.value
        ]
        epoch = epochs[0] if epochs else -1
        kept = before.classic_members.keys() & group.members.keys()
        self.probe.counts["groups converted"] += 1
        self.require(
            epoch >= generation or not kept,
            "K14",
            f"{where}: epoch {epoch} follows generation {generation}",
        )
        # A later SyncGroup of that generation may be of the consumer group.
        group_id = where.partition(" ")[0]
        is_given = epoch == generation and any(
            assigned in map(assigned_in, self._synced[group_id, generation, member_id])
            for member_id, assigned in before.classic_members.items()
        )
        for member_id in sorted(kept):
            allowed = {self._existing(before.classic_members[member_id])}
            if not is_given:
                allowed |= {frozenset(), *map(self._existing, before.earlier_assignments)}
            held = self._named(group.members[member_id].held)
            self._require_kept(where, member_id, held, allowed)

    def _check_downgrade(self, where: str, group: GroupView, before: GroupView) -> None:
        """Check that members keep their targets (Kafka's ClassicGroup.fromConsumerGroup).

        A classic member that replaces a static consumer member takes over the target of that.
        """
        self.probe.counts["groups converted"] += 1
        self.require(
            group.generation == before.epoch,
            "K14",
            f"{where}: generation {group.generation} follows epoch {before.epoch}",
        )
        holders = {one.instance_id: name for name, one in before.members.items()}
        for member_id, assignment in group.classic_members.items():
            instance_id = group.classic_instances.get(member_id)
            holder = member_id if instance_id is None else holders.get(instance_id, member_id)
            target = self._named(before.targets.get(holder, frozenset()))
            self._require_kept(where, member_id, self._existing(assignment), {target})

    def _require_kept(self, where: str, member_id: str, kept: Named, allowed: set[Named]) -> None:
        self.require(
            kept in allowed,
            "K14",
            f"{where}: {member_id} has {sorted(kept)}, expected {[sorted(one) for one in allowed]}",
        )

    def _existing(self, assignment: Named) -> Named:
        """The partitions of topics that exist; a conversion drops the others."""
        names = self._image().topics_by_name
        return frozenset((name, index) for name, index in assignment if name in names)

    def _named(self, partitions: Iterable[Owned]) -> Named:
        """The same partitions by the names of their topics."""
        topics = self._image().topics_by_id
        return frozenset(
            (topics[Uuid(topic_id)].name, index)
            for topic_id, index in partitions
            if Uuid(topic_id) in topics
        )

    # ---- memory

    def _check_memory(self, machine: "Machine", index: int, log: StoredLog) -> None:
        node = machine.live_node
        if node is None or node.broker is None:
            return
        runtime = node.broker.groups.runtimes.get(index)
        if runtime is None or not runtime.is_serving or runtime.is_busy:
            return
        for group_id, view in self._replayed(index, log.batches).items():
            known = runtime.shard._groups.consumer(group_id)  # noqa: SLF001 (a checker)
            if view.epoch is None or known is None:
                continue
            self._check_holders(machine.name, group_id, known, view)

    def _check_holders(self, who: str, group_id: str, known: Any, view: GroupView) -> None:
        """Check the holders of partitions in a group in memory."""
        held = {
            partition: member_id
            for member_id, member in view.members.items()
            for partition in member.held
        }
        live = {
            (bytes(topic_id), partition): member_id
            for topic_id, partitions in known._holders.items()  # noqa: SLF001 (a checker)
            for partition, member_id in partitions.items()
        }
        self.require(live == held, "K11", f"{who} has {group_id} held by {live}, its log {held}")

    def _replayed(self, index: int, batches: Iterable[StoredBatch]) -> dict[str, GroupView]:
        found: dict[str, GroupView] = defaultdict(GroupView)
        for batch in batches:
            for group_id, event in self._events(index, batch):
                found[group_id].apply(event)
        return found

    # ---- at the end

    def has_converged(self, group_id: str) -> bool:
        """Whether the committed group has members, all with their target assignment."""
        self.every_second()
        group = self.groups.get(group_id)
        return (
            group is not None
            and group.epoch is not None
            and bool(group.members)
            and all(
                member.state == STABLE and member.epoch == group.epoch == group.target_epoch
                for member in group.members.values()
            )
        )

    def check_covered(self, group_id: str) -> None:
        """Check that each partition of the subscribed topics has an owner in a stable group."""
        group = self.groups[group_id]
        wanted = self._subscribed(group)
        owned = [one for member in group.members.values() for one in member.assigned]
        self.require(
            sorted(owned) == wanted,
            "K3",
            f"{group_id}: {len(owned)} partitions are assigned, {len(wanted)} subscribed; "
            f"{_tell(group)}",
        )

    def at_end(self) -> None:
        """Load a prefix of each log, whole and compacted."""
        self.every_second()
        for index in self._indexes():
            machine = leader_of(self.probe, (TOPIC, index))
            batches = self._history[index]
            if machine is None or not batches:
                continue
            dice = random.Random(f"{self.probe.seed} prefix {index}")
            for _ in range(3):
                self._check_prefix(machine, index, batches[: dice.randint(1, len(batches))], dice)

    def _check_prefix(
        self, machine: "Machine", index: int, batches: list[StoredBatch], dice: random.Random
    ) -> None:
        """Load a prefix of which compaction has removed any superseded records."""
        records = [
            record
            for batch in batches
            if not batch.header.is_control and not batch.header.is_transactional
            for record in decode_records(batch.data)
        ]
        last = {bytes(record.key or b""): record.offset for record in records}
        kept = [
            record
            for record in records
            if last[bytes(record.key or b"")] == record.offset or dice.random() < 0.5  # noqa: PLR2004
        ]
        spec = machine.node.broker.groups.new_spec()  # type: ignore[union-attr]
        shard = spec.new_shard(1)
        try:
            for record in kept:
                decoded = spec.decode(record.key or b"", record.value)
                if decoded is not None:
                    shard.replay(Offset(record.offset), decoded)
            shard.loaded(self._image(), Instant(Millis(0), Millis(0)))
        except Exception as error:
            self.require(False, "K12", f"{TOPIC}-{index} cannot be loaded: {error!r}")  # noqa: FBT003
        for group_id, view in self._replayed(index, batches).items():
            known = shard._groups.consumer(group_id)  # noqa: SLF001 (a checker)
            epoch = None if known is None else known.group_epoch
            self.require(
                epoch == _loaded_epoch(view) and (known is None or len(known) == len(view.members)),
                "K12",
                f"{group_id} is loaded in epoch {epoch}, expected {_tell(view)}",
            )
            if known is not None:
                self._check_holders(f"a load of {TOPIC}-{index}", group_id, known, view)


def _offsets_in(request: Any, response: Any) -> Iterable[tuple[str, str, int, int]]:
    """(group, topic, partition, offset) of each offset that was accepted or returned."""
    if isinstance(response, OffsetFetchResponse):
        for group in response.groups:
            for topic in group.topics:
                for one in topic.partitions:
                    if not one.error_code and one.committed_offset >= 0:
                        yield group.group_id, topic.name, one.partition_index, one.committed_offset
    elif isinstance(response, OffsetCommitResponse):
        codes = [one.error_code for topic in response.topics for one in topic.partitions]
        sent = [(topic.name, one) for topic in request.topics for one in topic.partitions]
        for code, (name, one) in zip(codes, sent, strict=True):
            if not code:
                yield request.group_id, name, one.partition_index, one.committed_offset


def _is_uniform(group: GroupView) -> bool:
    """Whether all members have one subscription and accept the default assignor."""
    members = list(group.members.values())
    return all(
        group.topics_of(member) == group.topics_of(members[0])
        and member.assignor in {None, "uniform"}
        for member in members
    )


def _loaded_epoch(group: GroupView) -> int | None:
    """The epoch of a loaded group: members may join before their expression finds topics."""
    is_new = group.epoch is None and (group.members or group.regexes)
    return FIRST_EPOCH if is_new else group.epoch


def _tell(group: GroupView) -> str:
    if group.epoch is None:
        return f"generation {group.generation} of {sorted(group.classic_members)}"
    members = ", ".join(
        f"{one}@{member.epoch} has {len(member.assigned)}, revokes {len(member.pending)}"
        for one, member in sorted(group.members.items())
    )
    return f"epoch {group.epoch}, target {group.target_epoch}: {members}"

"""Elections of leaders and reassignments of replicas that an editor starts."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, zip_longest
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client import reassignment_plans as plans
from sparkraft.client import reassignments
from sparkraft.client.errors import PlanError, sentence_of
from sparkraft.client.leadership import PREFERRED, UNCLEAN
from sparkraft.client.reassignment_plans import name_of
from sparkraft.console.change import (
    Difference,
    Plan,
    check_confirmed,
    number_from,
    optional_number_of,
    text_of,
)
from sparkraft.console.topic_changes import topic_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkraft.base.ids import TopicPartition
    from sparkraft.client.cluster import Node, PartitionInfo
    from sparkraft.client.leadership import LeadershipAdmin

REPLICAS_MAX = 100
"""Of a partition in a request."""

_INT64_MAX = (1 << 63) - 1

_SHELL_CHARS_MAX = 100_000
"""Linux takes no longer argument than 128 KiB."""


_THROTTLES_ARE_SET = "throttles are set: remove them on the screen Moves"


def _piped(plan: dict[str, Any], command: str) -> str | None:
    """A command that reads a plan; None if the plan is too long for a shell."""
    text = plans.one_line(plan)
    return f"printf %s {quote(text)} | {command}" if len(text) < _SHELL_CHARS_MAX else None


def _check(outcome: Mapping[TopicPartition, KafkaError | None], *fine: ErrorCode) -> None:
    """Raise PlanError for the partitions that were refused."""
    refused = [
        f"{name_of(tp)}: {sentence_of(error)}"
        for tp, error in sorted(outcome.items())
        if error is not None and error.code not in fine
    ]
    if refused:
        more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""  # noqa: PLR2004 (shown)
        done = len(outcome) - len(refused)
        rest = f"; the other {done} are done" if done else ""
        raise PlanError("; ".join(refused[:5]) + more + rest)


def _scope(topic: str, partition: int | None) -> str:
    return f"topic {topic!r}" if partition is None else f"partition {partition} of {topic!r}"


def _ids(ids: list[int] | tuple[int, ...]) -> str:
    return ", ".join(map(str, ids))


# ---- elections


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """`{"election": "preferred" | "unclean", "topic", "partition"}`; null is every partition.

    An unclean election may lose records: it needs `confirm`, the name of the topic.
    """

    is_unclean: bool
    topic: str
    partition: int | None
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        kind = text_of(document, "election")
        if kind not in {"preferred", "unclean"}:
            raise ValueError(f"election must be preferred or unclean, not {kind[:60]!r}")
        return cls(
            is_unclean=kind == "unclean",
            topic=text_of(document, "topic"),
            partition=optional_number_of(document, "partition", least=0),
            document=document,
        )

    @property
    def wish(self) -> str:
        return (
            f"hold an election ({'unclean' if self.is_unclean else 'preferred'}) "
            f"for {_scope(self.topic, self.partition)}"
        )

    async def _partitions(self, admin: LeadershipAdmin) -> list[PartitionInfo]:
        """The partitions that need this election."""
        info = await topic_of(admin, self.topic)
        if self.partition is not None and self.partition not in info.partitions:
            raise PlanError(f"{self.topic}-{self.partition} does not exist")
        needs = _needs_unclean if self.is_unclean else _needs_preferred
        found = [
            each
            for index, each in sorted(info.partitions.items())
            if self.partition in (None, index) and needs(each)
        ]
        if not found and self.is_unclean:
            raise PlanError("no partition without a leader has a live replica")
        if not found:
            raise PlanError("every preferred replica leads or is not in sync")
        return found

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        partitions = await self._partitions(admin)
        kind = "unclean" if self.is_unclean else "preferred"
        rows = [
            Difference(
                what=f"leader of {self.topic}-{each.index}",
                before=str(each.leader) if each.leader >= 0 else None,
                after=f"one of {_ids(_live(each))}" if self.is_unclean else str(each.replicas[0]),
            )
            for each in partitions
        ]
        warnings = (
            ["Records that only the replicas that are down have are lost, also committed ones."]
            if self.is_unclean
            else []
        )
        return Plan(
            sentence=f"An election ({kind}) is held for {len(rows)} of the partitions.",
            differences=rows,
            warnings=warnings,
            confirm=self.topic if self.is_unclean else None,
            command=self._command(servers, kind, [each.index for each in partitions]),
        )

    def _command(self, servers: str, kind: str, indexes: list[int]) -> str | None:
        command = f"sparkraft leader-election --bootstrap-server {servers} --election-type {kind}"
        if len(indexes) == 1:
            return f"{command} --topic {quote(self.topic)} --partition {indexes[0]}"
        listed = [{"topic": self.topic, "partition": index} for index in indexes]
        return _piped({"partitions": listed}, f"{command} --path-to-json-file /dev/stdin")

    async def apply(self, admin: LeadershipAdmin) -> str:
        if self.is_unclean:
            check_confirmed(self.document, self.topic)
        wanted = [(self.topic, each.index) for each in await self._partitions(admin)]
        outcome = await admin.elect_leaders(UNCLEAN if self.is_unclean else PREFERRED, wanted)
        _check(outcome, ErrorCode.ELECTION_NOT_NEEDED)
        kind = "unclean" if self.is_unclean else "preferred"
        return f"held an election ({kind}) for {len(wanted)} partitions of topic {self.topic!r}"


def _live(partition: PartitionInfo) -> list[int]:
    return [replica for replica in partition.replicas if replica not in partition.offline]


def _needs_unclean(partition: PartitionInfo) -> bool:
    return partition.leader < 0 and bool(_live(partition))


def _needs_preferred(partition: PartitionInfo) -> bool:
    preferred = partition.replicas[0]
    return partition.leader != preferred and preferred in partition.isr


# ---- reassignments


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign:
    """`{"topic", "partition", "replicas": [1, 2], "throttle"}`: move replicas to other brokers.

    Without a partition, the topic's partitions are spread over the brokers in turn, racks taking
    turns too, with as many replicas as each has. `throttle` limits the moves in bytes per second.
    """

    topic: str
    partition: int | None
    brokers: list[int]
    throttle: int | None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        listed = document["replicas"]
        if not isinstance(listed, list) or not 0 < len(listed) <= REPLICAS_MAX:
            raise ValueError(f"replicas must be a list of 1 to {REPLICAS_MAX} brokers")
        return cls(
            topic=text_of(document, "topic"),
            partition=optional_number_of(document, "partition", least=0),
            brokers=[number_from(each, "a broker", least=0) for each in listed],
            throttle=optional_number_of(document, "throttle", least=1, most=_INT64_MAX),
        )

    @property
    def wish(self) -> str:
        return f"reassign {_scope(self.topic, self.partition)} to brokers {_ids(self.brokers)}"

    async def _plan(
        self, admin: LeadershipAdmin
    ) -> tuple[plans.Plan, dict[TopicPartition, list[int]], list[Node]]:
        """The replicas wanted and present, of the partitions that change, and the brokers."""
        current = await reassignments.current_replicas(admin, [self.topic])
        nodes = list((await admin.describe_cluster()).nodes)
        if self.partition is None:
            wanted = _spread(current, self.brokers, nodes)
        else:
            wanted = {(self.topic, self.partition): self.brokers}
        found = plans.Plan(wanted, {})
        plans.check_plan(found)
        plans.check_known(found, {node.id for node in nodes})
        plans.check_existing(found, current)
        changed = {tp: ids for tp, ids in wanted.items() if ids != current[tp]}
        if not changed:
            raise PlanError("the replicas are on these brokers already")
        return plans.Plan(changed, {}), {tp: current[tp] for tp in changed}, nodes

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        wanted, current, nodes = await self._plan(admin)
        rows = [
            Difference(what=f"replicas of {name_of(tp)}", before=_ids(current[tp]), after=_ids(ids))
            for tp, ids in sorted(wanted.replicas.items())
        ]
        warnings = _rack_warnings(wanted.replicas, nodes)
        if self.throttle is not None:
            warnings.append("Remove the throttle on the screen Moves when all have moved.")
        throttle = "" if self.throttle is None else f" --throttle {self.throttle}"
        command = (
            f"sparkraft reassign-partitions --bootstrap-server {servers} --execute "
            f"--additional --reassignment-json-file /dev/stdin{throttle}"
        )
        return Plan(
            sentence=f"{len(rows)} partitions move to other brokers.",
            differences=rows,
            warnings=warnings,
            command=_piped(plans.as_plan_json(wanted.replicas, {}), command),
        )

    async def apply(self, admin: LeadershipAdmin) -> str:
        wanted, current, _ = await self._plan(admin)
        if self.throttle is not None:
            moves = plans.moves_of(await admin.reassignments(), wanted.replicas, current)
            await reassignments.alter(admin, plans.topic_throttles(moves))
            with _throttled():
                await reassignments.alter(admin, plans.broker_throttles(moves, self.throttle))
                _check(await admin.reassign(wanted.replicas))
        else:
            _check(await admin.reassign(wanted.replicas))
        return f"started to reassign {len(wanted.replicas)} partitions of topic {self.topic!r}"


@contextmanager
def _throttled() -> Iterator[None]:
    """Add to the reason of a failure that throttles are set: they stay until they are removed."""
    try:
        yield
    except PlanError as error:
        raise PlanError(f"{error}; {_THROTTLES_ARE_SET}") from error
    except KafkaError as error:
        detail = error.detail or "the cluster refused the reassignment"
        raise KafkaError(error.code, f"{detail}; {_THROTTLES_ARE_SET}") from error


def _spread(
    current: Mapping[TopicPartition, list[int]], brokers: list[int], nodes: list[Node]
) -> dict[TopicPartition, list[int]]:
    """Each partition on the next brokers in turn; neighbors are in different racks if possible."""
    racks: dict[str | None, list[int]] = {}
    known = {node.id: node.rack for node in nodes}
    for broker in brokers:
        racks.setdefault(known.get(broker), []).append(broker)
    turns = [each for each in chain(*zip_longest(*racks.values())) if each is not None]
    most = max(map(len, current.values()))
    if most > len(turns):
        raise PlanError(f"{most} replicas need {most} brokers")
    return {
        tp: [turns[(tp[1] + at) % len(turns)] for at in range(len(replicas))]
        for tp, replicas in current.items()
    }


def _rack_warnings(wanted: Mapping[TopicPartition, list[int]], nodes: list[Node]) -> list[str]:
    racks = {node.id: node.rack for node in nodes if node.rack is not None}
    shared = [
        tp
        for tp, ids in sorted(wanted.items())
        if len({racks.get(each, each) for each in ids}) < len(ids)
    ]
    if not shared:
        return []
    return [f"{len(shared)} partitions have two replicas in one rack, {name_of(shared[0])} first."]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReassignment:
    """`{"topic", "partition"}`: the replicas return to the brokers before; null is all."""

    topic: str
    partition: int | None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            topic=text_of(document, "topic"),
            partition=optional_number_of(document, "partition", least=0),
        )

    @property
    def wish(self) -> str:
        return f"cancel the reassignment of {_scope(self.topic, self.partition)}"

    async def _ongoing(self, admin: LeadershipAdmin) -> dict[TopicPartition, Any]:
        found = {
            tp: each
            for tp, each in (await admin.reassignments()).items()
            if tp[0] == self.topic and self.partition in (None, tp[1])
        }
        if not found:
            raise PlanError("nothing of it is being reassigned")
        return found

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        ongoing = await self._ongoing(admin)
        before = {tp: [b for b in r.replicas if b not in r.adding] for tp, r in ongoing.items()}
        rows = [
            Difference(
                what=f"replicas of {name_of(tp)}",
                before=_ids(ongoing[tp].replicas),
                after=_ids(before[tp]),
            )
            for tp in sorted(ongoing)
        ]
        command = (
            f"sparkraft reassign-partitions --bootstrap-server {servers} --cancel "
            "--preserve-throttles --reassignment-json-file /dev/stdin"
        )
        return Plan(
            sentence=f"The reassignment of {len(rows)} partitions is canceled.",
            differences=rows,
            command=_piped(plans.as_plan_json(before, {}), command),
        )

    async def apply(self, admin: LeadershipAdmin) -> str:
        ongoing = await self._ongoing(admin)
        _check(await admin.reassign(dict.fromkeys(ongoing)), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return f"canceled the reassignment of {len(ongoing)} partitions of topic {self.topic!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveThrottles:
    """`{}`: of all brokers and topics, once nothing is being reassigned."""

    @classmethod
    def parse(cls, _: Mapping[str, Any]) -> Self:
        return cls()

    @property
    def wish(self) -> str:
        return "remove the throttles of reassignments"

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        found = await reassignments.throttles(admin)
        if not found:
            raise PlanError("no throttle is set")
        await self._check_idle(admin)
        rows = [
            Difference(what=f"{config} of {kind.name.lower()} {name}", before=value, after=None)
            for (kind, name), entries in sorted(found.items())
            for config, value in entries
        ]
        lines = [
            f"sparkraft configs --bootstrap-server {servers} --alter "
            f"--entity-type {kind.name.lower()}s --entity-name {quote(name)} "
            f"--delete-config {','.join(config for config, _ in entries)}"
            for (kind, name), entries in sorted(found.items())
        ]
        return Plan(
            sentence="The throttles of reassignments are removed.",
            differences=rows,
            command=" && ".join(lines),
        )

    async def _check_idle(self, admin: LeadershipAdmin) -> None:
        if ongoing := await admin.reassignments():
            raise PlanError(f"{len(ongoing)} partitions are still being reassigned")

    async def apply(self, admin: LeadershipAdmin) -> str:
        await self._check_idle(admin)
        found = await reassignments.throttles(admin)
        await reassignments.alter(
            admin,
            {resource: [(config, None) for config, _ in each] for resource, each in found.items()},
        )
        return "removed the throttles of reassignments"

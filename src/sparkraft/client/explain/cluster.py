"""The whole cluster: one sentence on its health, its nodes, and the partitions with a problem.

The sentence names the most severe problem: no broker, partitions without a leader, no controller,
partitions below min.insync.replicas, under-replicated partitions, offline log directories, lost
voters, fenced brokers. Notices follow unless the problem is critical: leaders that are not the
preferred ones, and groups without members that have records left to read.

In ZooKeeper mode the controller is the broker that Metadata names; its epoch, and the reason of its
election, are in the journals of the brokers (`explain.zookeeper_controller`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.errors import sentence_of
from sparkraft.client.explain.health_facts import HealthFacts, health_facts
from sparkraft.client.explain.times import time_text
from sparkraft.client.quorum_admin import QUORUM_MS_MAX, has_quorum
from sparkraft.client.values import ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparkraft.client.cluster import Cluster, Node, PartitionInfo, TopicInfo
    from sparkraft.client.explain.events import Json
    from sparkraft.client.explain.quorum import Epoch
    from sparkraft.client.values import QuorumInfo, QuorumReplica

PROBLEMS_MAX = 100
"""Partitions listed per kind of problem; the counts include the others."""

NAMES_MAX = 3
"""Partitions or nodes named in a sentence."""

IMBALANCE_MAX = 0.1
"""Share of the partitions that prefer a broker and are led by others: Kafka's default of
leader.imbalance.per.broker.percentage."""

MIN_ISR_TOPICS_MAX = 200
"""Topics whose min.insync.replicas is requested: those with partitions that lack replicas."""

NO_CONTROLLER = "no broker is registered as the controller in ZooKeeper"

VOTER_SILENT_MS = 10_000
"""A voter counts as lost if it fetched this much earlier than another replica of the log.

Five times the default of controller.quorum.fetch.timeout.ms. A new leader reports -1 for voters
that have not fetched from it yet; their time counts from the start of its leadership.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """An offset of the metadata log; `at_ms` and `leader_id` are -1 if unknown."""

    offset: int
    epoch: int
    at_ms: int
    leader_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Responses of the cluster; `quorum` is None without a controller, and `problem` the reason."""

    cluster_id: str | None = None
    brokers: tuple[Node, ...] = ()
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    quorum: QuorumInfo | None = None
    problem: str = ""
    unreachable: str = ""
    """The reason why no broker responded; empty if one did."""
    min_isr: Mapping[str, int] = field(default_factory=dict)
    """Topic → min.insync.replicas, of the topics with partitions that lack replicas."""
    as_of: AsOf | None = None
    """The moment, if it is not the present; the state of the quorum is then unknown."""
    led_since_ms: int | None = None
    """When the quorum's leader was elected or first seen, by its own clock; None if unknown."""
    is_zookeeper: bool = False
    """Whether the brokers are in ZooKeeper mode; `quorum` is then None."""
    zookeeper_controller: int = -1
    """The broker in /controller, in ZooKeeper mode; -1 without one."""
    health: HealthFacts = field(default_factory=HealthFacts)
    """Offline log directories, and groups without members."""

    @property
    def controller_id(self) -> int:
        """The active controller; -1 without one."""
        return self.zookeeper_controller if self.quorum is None else self.quorum.leader_id

    @property
    def leader_clock_ms(self) -> int:
        """The newest time in the quorum's description, by the leader's clock; -1 without one."""
        quorum = self.quorum
        replicas = () if quorum is None else (*quorum.voters, *quorum.observers)
        return max((replica.last_fetch_ms for replica in replicas), default=-1)


async def cluster_facts(cluster: Cluster, health: HealthFacts | None = None) -> ClusterFacts:
    """Request everything that `cluster_document` needs; errors become part of the result.

    Args:
        cluster: the cluster.
        health: facts that are known already; None: they are requested, too.
    """
    admin = Admin(cluster)
    try:
        is_zookeeper = not await has_quorum(cluster)
        view = await cluster.refresh()
        described = await admin.describe_cluster(include_fenced=await _knows_fenced(cluster))
    except KafkaError as error:
        return ClusterFacts(unreachable=sentence_of(error))
    quorum, problem = (None, NO_CONTROLLER) if is_zookeeper else await _quorum(admin)
    topics = dict(view.topics)
    return ClusterFacts(
        cluster_id=view.cluster_id,
        brokers=tuple(sorted(described.nodes, key=lambda node: node.id)),
        topics=topics,
        quorum=quorum,
        problem=problem,
        is_zookeeper=is_zookeeper,
        zookeeper_controller=described.controller_id if is_zookeeper else -1,
        min_isr=await _min_isr(admin, topics),
        health=await health_facts(cluster) if health is None else health,
    )


async def _knows_fenced(cluster: Cluster) -> bool:
    """Whether DescribeCluster lists fenced brokers: from v2 on (KIP-1073)."""
    from sparkraft.protocol.api_keys import ApiKey

    connection = await cluster.any_connection()
    return connection.version_for(ApiKey.DESCRIBE_CLUSTER) >= 2  # noqa: PLR2004 (KIP-1073)


async def _quorum(admin: Admin) -> tuple[QuorumInfo | None, str]:
    try:
        async with asyncio.timeout(QUORUM_MS_MAX / 1000):
            return await admin.describe_quorum(), ""
    except TimeoutError:
        return None, f"no controller responded within {QUORUM_MS_MAX} ms"
    except KafkaError as error:
        return None, sentence_of(error)


async def _min_isr(admin: Admin, topics: Mapping[str, TopicInfo]) -> dict[str, int]:
    short = [
        topic.name
        for topic in topics.values()
        if any(len(p.isr) < len(p.replicas) for p in topic.partitions.values())
    ]
    if not short:
        return {}
    resources = [(ResourceType.TOPIC, name) for name in sorted(short)[:MIN_ISR_TOPICS_MAX]]
    try:
        async with asyncio.timeout(QUORUM_MS_MAX / 1000):
            found = await admin.describe_configs(resources, synonyms=False)
    except (KafkaError, TimeoutError):
        return {}  # The partitions are then shown as under-replicated.
    return {
        name: int(entry.value)
        for (_, name), entries in found.items()
        if not isinstance(entries, KafkaError)
        for entry in entries
        if entry.name == "min.insync.replicas" and entry.value is not None
    }


# ---- the document


@dataclass(slots=True)
class _Problems:
    """Partitions by problem, in order of names; a partition may have several."""

    offline: list[Json] = field(default_factory=list)
    below_min_isr: list[Json] = field(default_factory=list)
    under_replicated: list[Json] = field(default_factory=list)


def cluster_document(
    facts: ClusterFacts, epochs: Sequence[Epoch] = (), *, race: Json | None = None
) -> Json:
    """Everything about the cluster.

    Args:
        facts: of `cluster_facts`.
        epochs: of `explain.quorum.epochs_of`; they give the time and reason of the last election.
        race: of `explain.zookeeper_controller`, which has them in ZooKeeper mode.
    """
    facts = replace(facts, led_since_ms=_led_since_ms(facts, epochs))
    problems = _problems(facts)
    controller = _controller(facts.quorum, epochs) or _zookeeper_controller(facts, race)
    partitions = [p for topic in facts.topics.values() for p in topic.partitions.values()]
    return {
        "clusterId": facts.cluster_id,
        "mode": "zookeeper" if facts.is_zookeeper else "kraft",
        "asOf": _as_of(facts.as_of),
        "health": _health(facts, problems, controller),
        "controller": controller,
        "brokers": [_broker(node, facts, partitions) for node in facts.brokers],
        "voters": [] if facts.quorum is None else _replicas(facts, facts.quorum.voters),
        "observers": [] if facts.quorum is None else _replicas(facts, facts.quorum.observers),
        "topicCount": len(facts.topics),
        "partitionCount": len(partitions),
        "offlineCount": len(problems.offline),
        "belowMinIsrCount": len(problems.below_min_isr),
        "underReplicatedCount": len(problems.under_replicated),
        "notPreferredCount": sum(p.leader >= 0 and p.leader != p.replicas[0] for p in partitions),
        "offline": problems.offline[:PROBLEMS_MAX],
        "belowMinIsr": problems.below_min_isr[:PROBLEMS_MAX],
        "underReplicated": problems.under_replicated[:PROBLEMS_MAX],
        "offlineLogDirs": [
            {"broker": broker, "path": path}
            for broker, paths in sorted(facts.health.offline_dirs.items())
            for path in paths
        ][:PROBLEMS_MAX],
        "idleGroups": [
            {"group": group, "lag": lag} for group, lag in _idle_groups(facts)[:PROBLEMS_MAX]
        ],
    }


def _as_of(as_of: AsOf | None) -> Json | None:
    if as_of is None:
        return None
    return {
        "offset": as_of.offset,
        "epoch": as_of.epoch,
        "time": time_text(as_of.at_ms) if as_of.at_ms >= 0 else None,
        "controller": as_of.leader_id if as_of.leader_id >= 0 else None,
    }


def _problems(facts: ClusterFacts) -> _Problems:
    found = _Problems()
    live = {node.id for node in facts.brokers if not node.is_fenced}
    for name in sorted(facts.topics):
        for index in sorted(facts.topics[name].partitions):
            partition = facts.topics[name].partitions[index]
            if partition.leader >= 0 and len(partition.isr) >= len(partition.replicas):
                continue
            entry = _partition(name, partition, live)
            if partition.leader < 0:
                found.offline.append(entry)
            if len(partition.isr) < facts.min_isr.get(name, 0):
                found.below_min_isr.append(entry)
            if len(partition.isr) < len(partition.replicas):
                found.under_replicated.append(entry)
    return found


def _partition(name: str, partition: PartitionInfo, live: set[int]) -> Json:
    return {
        "topic": name,
        "partition": partition.index,
        "leader": partition.leader if partition.leader >= 0 else None,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "down": [replica for replica in partition.replicas if replica not in live],
    }


def _broker(node: Node, facts: ClusterFacts, partitions: Sequence[PartitionInfo]) -> Json:
    replicas = [p for p in partitions if node.id in p.replicas]
    return {
        "id": node.id,
        "address": f"{node.host}:{node.port}",
        "rack": node.rack,
        "isFenced": node.is_fenced,
        "isController": facts.controller_id == node.id,
        "leads": sum(p.leader == node.id for p in replicas),
        "preferredLeaderOf": sum(p.replicas[0] == node.id for p in replicas),
        "replicas": len(replicas),
        "outOfSync": sum(node.id not in p.isr for p in replicas),
    }


def _controller(quorum: QuorumInfo | None, epochs: Sequence[Epoch]) -> Json | None:
    if quorum is None:
        return None
    found: Json = {
        "id": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "highWatermark": quorum.high_watermark,
        "since": None,
        "grantedBy": None,
        "reason": None,
    }
    for epoch in epochs:
        if epoch.epoch == quorum.leader_epoch and epoch.leader == quorum.leader_id:
            found |= _election(epoch, epochs)
    return found


def _zookeeper_controller(facts: ClusterFacts, race: Json | None) -> Json | None:
    if facts.zookeeper_controller < 0:
        return None
    is_known = race is not None and race["controller"] == facts.zookeeper_controller
    known: Json = race if race is not None and is_known else {}
    since, before = known.get("sinceMs"), known.get("before")
    return {
        "id": facts.zookeeper_controller,
        "epoch": known.get("epoch"),
        "highWatermark": None,
        "since": None if since is None else time_text(since),
        "grantedBy": None,
        "reason": before and f"broker {before['broker']} resigned: {before['text']}",
    }


def _election(epoch: Epoch, epochs: Sequence[Epoch]) -> Json:
    """When and why the leader of an epoch was elected, as far as nodes recorded it."""
    won = [step for step in epoch.steps if step["state"] == "leader"]
    return {
        "since": time_text(won[0]["at"]) if won else None,
        "grantedBy": next((list(voters) for _, voters in sorted(epoch.logged)), None),
        "reason": _occasion(won[0], epochs) if won else None,
    }


def _occasion(won: Json, epochs: Sequence[Epoch]) -> str | None:
    """Why the elected node stood for election.

    It becomes prospective in the epoch before (KIP-996), or at once a candidate in its own.
    """
    own = [s for e in epochs for s in e.steps if s["node"] == won["node"] and s["at"] <= won["at"]]
    own.sort(key=lambda step: step["at"])
    for state in ("prospective", "candidate"):
        found = [step["reason"] for step in own if step["state"] == state]
        if found:
            return str(found[-1])
    return None


def _led_since_ms(facts: ClusterFacts, epochs: Sequence[Epoch]) -> int | None:
    """When the leader won its epoch, from its journal if it has one."""
    quorum = facts.quorum
    if quorum is None:
        return None
    won = [
        step["at"]
        for epoch in epochs
        if epoch.epoch == quorum.leader_epoch
        for step in epoch.steps
        if step["state"] == "leader" and step["node"] == quorum.leader_id
    ]
    return won[0] if won else facts.led_since_ms


def _replicas(facts: ClusterFacts, replicas: Iterable[QuorumReplica]) -> list[Json]:
    """The replicas of the metadata log; `lag` is in records behind the leader's log end."""
    quorum = facts.quorum
    assert quorum is not None
    silent = _silent_voters(facts)
    ends = {replica.id: replica.log_end_offset for replica in quorum.voters}
    leader_end = ends.get(quorum.leader_id, quorum.high_watermark)
    return [
        {
            "id": replica.id,
            "isLeader": replica.id == quorum.leader_id,
            "logEndOffset": replica.log_end_offset,
            "lag": max(0, leader_end - replica.log_end_offset)
            if replica.log_end_offset >= 0
            else None,
            "isSilent": replica.id in silent,
        }
        for replica in sorted(replicas, key=lambda each: each.id)
    ]


def _silent_voters(facts: ClusterFacts) -> list[int]:
    """Voters without a fetch for `VOTER_SILENT_MS`; all times are of the leader's clock."""
    quorum = facts.quorum
    assert quorum is not None
    now = facts.leader_clock_ms
    fetched = {
        voter.id: voter.last_fetch_ms if voter.last_fetch_ms >= 0 else facts.led_since_ms
        for voter in quorum.voters
        if voter.id != quorum.leader_id
    }
    return [
        node_id for node_id, at in fetched.items() if at is not None and now - at > VOTER_SILENT_MS
    ]


# ---- the sentence


def _health(facts: ClusterFacts, problems: _Problems, controller: Json | None) -> Json:
    level, sentence = _worst(facts, problems) or ("ok", _all_well(facts, controller))
    if level != "critical":
        sentence = " ".join([sentence, *_notices(facts)])
    return {"level": level, "sentence": sentence}


def _worst(facts: ClusterFacts, problems: _Problems) -> tuple[str, str] | None:
    if facts.unreachable:
        return "critical", f"No broker responds: {facts.unreachable}."
    leaderless = facts.quorum is None and facts.zookeeper_controller < 0 and facts.as_of is None
    if problems.offline or leaderless:
        offline = [_offline_sentence(problems.offline)] if problems.offline else []
        stuck = [_leaderless_sentence(facts)] if leaderless else []
        return "critical", " ".join([*offline, *stuck])
    if problems.below_min_isr:
        few = _partitions(problems.below_min_isr, "has", "have")
        return "critical", (
            f"{few} fewer replicas in sync than min.insync.replicas, so acks=all fails: "
            f"{_names(problems.below_min_isr)}."
        )
    degraded = " ".join(_degraded(facts, problems))
    return ("warning", degraded) if degraded else None


def _leaderless_sentence(facts: ClusterFacts) -> str:
    return f"No controller is active, so no topic, config or leader can change: {facts.problem}."


def _degraded(facts: ClusterFacts, problems: _Problems) -> Iterator[str]:
    """Problems that clients do not notice yet, the most severe first."""
    if problems.under_replicated:
        few = _partitions(problems.under_replicated, "is", "are")
        yield f"{few} under-replicated: {_names(problems.under_replicated)}."
    offline_dirs = [
        f"{path} of broker {broker}"
        for broker, paths in sorted(facts.health.offline_dirs.items())
        for path in paths
    ]
    if offline_dirs:
        noun = "Log directory" if len(offline_dirs) == 1 else "Log directories"
        yield f"{noun} offline: {_first_of(offline_dirs)}."
    silent = [] if facts.quorum is None else _silent_voters(facts)
    if silent and facts.quorum is not None:
        left = len(facts.quorum.voters) - len(silent)
        yield (
            f"{_numbered('Voter', silent)} of the quorum stopped fetching: {left} of "
            f"{len(facts.quorum.voters)} voters are left."
        )
    fenced = [node.id for node in facts.brokers if node.is_fenced]
    if fenced:
        yield f"{_numbered('Broker', fenced)} {_is(fenced)} fenced."


def _notices(facts: ClusterFacts) -> Iterator[str]:
    """Facts that are not a problem, and may become one."""
    unbalanced = [
        f"broker {broker} leads {led} of {preferred}"
        for broker, led, preferred in _led_by_preferred(facts)
        if preferred - led > IMBALANCE_MAX * preferred
    ]
    if unbalanced:
        yield (
            "Leaders are not the preferred ones: "
            f"{_first_of(unbalanced)} partitions that prefer it."
        )
    idle = _idle_groups(facts)
    if idle:
        named = [f"{group} ({_count(lag, 'record')} to read)" for group, lag in idle]
        yield f"{'Group' if len(idle) == 1 else 'Groups'} without members: {_first_of(named)}."


def _led_by_preferred(facts: ClusterFacts) -> Iterator[tuple[int, int, int]]:
    """Each live broker, how many of the partitions that prefer it it leads, and how many do."""
    led: Counter[int] = Counter()
    preferred: Counter[int] = Counter()
    for topic in facts.topics.values():
        for partition in topic.partitions.values():
            preferred[partition.replicas[0]] += 1
            led[partition.replicas[0]] += partition.leader == partition.replicas[0]
    for node in facts.brokers:
        if not node.is_fenced:
            yield node.id, led[node.id], preferred[node.id]


def _idle_groups(facts: ClusterFacts) -> list[tuple[str, int]]:
    """Groups without members and their lag, the largest first."""
    return sorted(facts.health.idle_groups.items(), key=lambda each: (-each[1], each[0]))


def _first_of(names: Sequence[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _all_well(facts: ClusterFacts, controller: Json | None) -> str:
    partitions = sum(len(topic.partitions) for topic in facts.topics.values())
    counts = ", ".join(
        [
            _count(len(facts.brokers), "broker"),
            _count(len(facts.topics), "topic"),
            _count(partitions, "partition"),
        ]
    )
    if controller is None:
        return f"All was well: {counts}."
    since = "" if controller["since"] is None else f" since {_second_text(controller)}"
    votes = controller["grantedBy"]
    by = "" if not votes else f", elected by {', '.join(map(str, votes))}"
    return f"All is well: {counts}; controller {controller['id']}{since}{by}."


def _second_text(controller: Json) -> str:
    date, _, clock = controller["since"].partition("T")
    return f"{date} {clock[:8]} UTC"


def _offline_sentence(offline: Sequence[Json]) -> str:
    few = _partitions(offline, "has", "have")
    first = offline[0]
    down = [replica for replica in first["isr"] if replica in first["down"]]
    why = ""
    if down:
        only = "the only replica" if len(first["isr"]) == 1 else "the last replicas"
        why = f" ({_numbered('broker', down)} {_is(down)} down, {only} of the first in sync)"
    return f"{few} no leader: {_names(offline)}{why}."


def _partitions(entries: Sequence[Json], singular: str, plural: str) -> str:
    return f"{_count(len(entries), 'partition')} {singular if len(entries) == 1 else plural}"


def _names(entries: Sequence[Json]) -> str:
    names = [f"{entry['topic']}-{entry['partition']}" for entry in entries[:NAMES_MAX]]
    more = len(entries) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _numbered(noun: str, ids: Sequence[int]) -> str:
    return f"{noun}{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"


def _is(ids: Sequence[int]) -> str:
    return "is" if len(ids) == 1 else "are"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# ---- lines


def cluster_lines(document: Json) -> Iterator[str]:
    """The document as text."""
    yield document["health"]["sentence"]
    yield ""
    if document["asOf"] is not None:
        yield _as_of_line(document["asOf"])
    controller = document["controller"]
    if controller is not None:
        yield _controller_line(controller)
        if controller["reason"]:
            yield f"    elected because: {controller['reason']}"
    for voter in (*document["voters"], *document["observers"]):
        yield _replica_line(voter, is_voter=voter in document["voters"])
    for broker in document["brokers"]:
        yield _broker_line(broker)
    yield (
        f"{_count(document['topicCount'], 'topic')}, "
        f"{_count(document['partitionCount'], 'partition')}: {document['offlineCount']} without a "
        f"leader, {document['belowMinIsrCount']} below min.insync.replicas, "
        f"{document['underReplicatedCount']} under-replicated, "
        f"{document['notPreferredCount']} not led by the preferred replica"
    )


def _controller_line(controller: Json) -> str:
    known = [
        f"{name} {value}"
        for name, value in (
            ("epoch", controller["epoch"]),
            ("high watermark", controller["highWatermark"]),
        )
        if value is not None
    ]
    return ", ".join([f"controller {controller['id']}", *known])


def _as_of_line(as_of: Json) -> str:
    time = "" if as_of["time"] is None else f", {as_of['time'][:23].replace('T', ' ')} UTC"
    controller = "" if as_of["controller"] is None else f", controller {as_of['controller']}"
    return f"as of offset {as_of['offset']}{time}{controller}, epoch {as_of['epoch']}"


def _replica_line(replica: Json, *, is_voter: bool) -> str:
    lag: Any = "unknown" if replica["lag"] is None else replica["lag"]
    silent = ", stopped fetching" if replica["isSilent"] else ""
    return f"{'voter' if is_voter else 'observer'} {replica['id']}: lag {lag}{silent}"


def _broker_line(broker: Json) -> str:
    fenced = ", fenced" if broker["isFenced"] else ""
    return (
        f"broker {broker['id']} at {broker['address']}{fenced}: leads {broker['leads']} of "
        f"{broker['replicas']} partitions, out of sync with {broker['outOfSync']}"
    )

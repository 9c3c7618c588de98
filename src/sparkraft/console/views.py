"""Documents of single topics, partitions, brokers and groups, requested when a page shows them.

Each contains the document of the command that its `command` names, and the lines that it prints. A
cluster of Apache Kafka has no history: `historyProblem` is then the reason, and the document
describes the present state only.
"""

from __future__ import annotations

import time
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.errors import sentence_of
from sparkraft.client.explain.broker import broker_document, broker_lines
from sparkraft.client.explain.group import group_decisions, group_lines
from sparkraft.client.explain.partition import partition_document, partition_lines
from sparkraft.client.explain.topic import topic_document, topic_lines
from sparkraft.client.group_lag import committed_lags, group_lags, lag_json
from sparkraft.client.groups import Groups
from sparkraft.client.history import fetch_history
from sparkraft.client.quorum_admin import NO_JOURNAL
from sparkraft.client.values import EARLIEST, LATEST, ConfigSource, ResourceType
from sparkraft.console.lag_history import LagHistory
from sparkraft.console.past_histories import PastHistories
from sparkraft.console.recent import PastAnswers, RecentAnswers
from sparkraft.console.record_times import PARTITIONS_MAX, record_times
from sparkraft.console.unserved import UnservedRequest
from sparkraft.protocol.messages.k10002_describe_history import (
    DescribeHistoryRequest,
    HistoryTopic,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

    from sparkraft.client.cluster import Cluster, Node, TopicInfo
    from sparkraft.client.groups import GroupInfo, ListedGroup
    from sparkraft.client.history import HistoryReport
    from sparkraft.console.timeline import Timeline

Json = dict[str, Any]

History = tuple["HistoryReport | None", str]
"""A history, or None and the reason why no node has one."""

Decisions = tuple[list[Json], dict[int, str]]
"""Decisions about a group, and the brokers without a response, with the reasons."""

CHANGES_SHOWN = 50
"""Elections and ISR changes of a partition or broker."""

PARTITION_CHANGES_SHOWN = 3
"""Of each partition, if all partitions of a topic are shown."""

PARTITIONS_WITH_HISTORY_MAX = 500
"""Of a topic whose screen shows changes; each partition's own screen always does."""

GROUPS_WITH_LAG_MAX = 50
"""In the list of groups: each is a request to its coordinator."""

PARTITIONS_WITH_LAG_MAX = 1_000
"""Of all groups in the list; half of those whose lag is remembered."""

MEMBERS_MAX = 1_000


class ClusterViews:
    """See the module docstring; a request raises the `KafkaError` of the cluster."""

    def __init__(self, cluster: Cluster, timeline: Timeline, *, bootstrap: str) -> None:
        """Use `cluster`, which commands name as `bootstrap`, and `timeline` for its epochs."""
        self._cluster = cluster
        self._timeline = timeline
        self._bootstrap = bootstrap
        self._recent = RecentAnswers()
        self._past = PastAnswers()
        self._lags = LagHistory()
        self._histories = UnservedRequest[History](lambda found: NO_JOURNAL in found[1])
        self._journals = UnservedRequest[Decisions](self._has_no_journal)
        self._pasts = PastHistories(timeline, self._history)

    async def topics(self) -> Json:
        """All topics, a line each."""
        return await self._recent.get("topics", self._topics)

    async def topic(self, name: str) -> Json:
        """A topic: its partitions with offsets, and the configs that differ from the default."""
        return await self._recent.get(("topic", name), lambda: self._topic(name))

    async def partition(self, topic: str, partition: int, *, at_offset: int = -1) -> Json:
        """A partition, now or as of an offset of the metadata log."""
        key = ("partition", topic, partition, at_offset)

        def make() -> Awaitable[Json]:
            return self._partition(topic, partition, at_offset)

        return await self._recent.get(key, lambda: self._kept(key, at_offset, make))

    async def broker(self, broker_id: int, *, at_offset: int = -1) -> Json:
        """A broker: its changes of state, and the leaderships it won and lost."""
        key = ("broker", broker_id, at_offset)

        def make() -> Awaitable[Json]:
            return self._broker(broker_id, at_offset)

        return await self._recent.get(key, lambda: self._kept(key, at_offset, make))

    async def groups(self, name: str = "") -> Json:
        """All groups with their states, and the lag of the first ones whose name has `name`."""
        key = ("groups", name.lower())
        return await self._recent.get(key, lambda: self._groups(name.lower()))

    async def group(self, group_id: str) -> Json:
        """A group: members, lag, and the decisions about it."""
        return await self._recent.get(("group", group_id), lambda: self._group(group_id))

    def forget(self) -> None:
        """Show what is changed now at once."""
        self._recent.forget()

    async def _kept(
        self, key: Hashable, at_offset: int, make: Callable[[], Awaitable[Json]]
    ) -> Json:
        """The document of an earlier moment once: a node replays much of its log for it."""
        if at_offset < 0:
            return await make()
        try:
            epoch = await self._timeline.as_of(at_offset, lambda state: state.epoch)
        except KafkaError:
            return await make()  # Without an epoch, another log may have the same offset.
        place = (self._timeline.cluster_id, epoch, key)
        return await self._past.get(place, make, is_final=lambda found: not found.get("silent"))

    # ---- requests

    def _command(self, words: str) -> str:
        return f"sparkraft {words} --bootstrap-server {self._bootstrap}"

    async def _topics(self) -> Json:
        view = await self._cluster.retrying(self._cluster.refresh)
        topics = [topic_row(view.topics[name]) for name in sorted(view.topics)]
        return {"topics": topics, "command": self._command("topics --describe")}

    async def _topic(self, name: str) -> Json:
        info = await self._described(name)
        if len(info.partitions) > PARTITIONS_WITH_HISTORY_MAX:
            report, problem = None, f"it has more than {PARTITIONS_WITH_HISTORY_MAX} partitions"
        else:
            report, problem = await self._topic_history(HistoryTopic(name=name))
        document: Json = (
            topic_now(info)
            if report is None
            else topic_document(report, name, last=PARTITION_CHANGES_SHOWN)
        )
        return {
            **document,
            "historyProblem": problem,
            "lines": [] if report is None else list(topic_lines(document)),
            "offsets": await self._offsets(info),
            "configs": await self._configs(name),
            "command": self._command(
                f"topics --describe --topic {name}" if report is None else f"explain topic {name}"
            ),
        }

    async def _partition(self, topic: str, partition: int, at_offset: int) -> Json:
        report, problem = await self._partition_history(topic, partition, at_offset)
        if report is None:
            if at_offset >= 0:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, problem)
            info = await self._described(topic)
            if partition not in info.partitions:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition} does not exist"
                )
            now = {"topic": topic, **topic_now(info)["partitions"][partition]}
            command = self._command(f"topics --describe --topic {topic}")
            return {**now, "historyProblem": problem, "lines": [], "command": command}
        at = "" if at_offset < 0 else f" --at-offset {at_offset}"
        command = self._command(f"explain partition {topic} {partition}{at}")
        document = partition_document(report, report.history.partitions[0], last=CHANGES_SHOWN)
        lines = list(partition_lines(document))
        return {**document, "historyProblem": "", "lines": lines, "command": command}

    async def _broker(self, broker_id: int, at_offset: int) -> Json:
        report, problem = await self._broker_history(broker_id, at_offset)
        if report is None:
            if at_offset >= 0:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, problem)
            view = await self._cluster.retrying(self._cluster.refresh)
            now = broker_now(broker_id, view.nodes.get(broker_id), view.topics)
            command = self._command("topics --describe")
            return {**now, "historyProblem": problem, "lines": [], "command": command}
        at = "" if at_offset < 0 else f" --at-offset {at_offset}"
        command = self._command(f"explain broker {broker_id}{at}")
        document = broker_document(report, report.history.brokers[0], last=CHANGES_SHOWN)
        lines = list(broker_lines(document))
        return {**document, "historyProblem": "", "lines": lines, "command": command}

    async def _groups(self, name: str) -> Json:
        groups = await Groups(self._cluster).list()
        fitting = [each.id for each in groups if name in each.id.lower() and _has_offsets(each)]
        lags = await self._lags_of(fitting[:GROUPS_WITH_LAG_MAX])
        return {
            "groups": [{**_listed(each), "lag": lags.get(each.id)} for each in groups],
            "withLagMax": GROUPS_WITH_LAG_MAX,
            "command": self._command("groups --list"),
            "lagCommand": self._command("consumer-groups --describe --all-groups"),
        }

    async def _lags_of(self, group_ids: Sequence[str]) -> dict[str, Json]:
        """The lag of the groups that have committed offsets."""
        found = await committed_lags(
            self._cluster, group_ids, partitions_max=PARTITIONS_WITH_LAG_MAX
        )
        at_ms = time.time_ns() // 1_000_000
        lags: dict[str, Json] = {}
        for group_id, rows in found.items():
            self._lags.add(group_id, rows, at_ms)
            partitions = [
                {"lag": row.lag, **self._lags.partition(group_id, row, at_ms)} for row in rows
            ]
            if rows:
                lags[group_id] = self._lags.whole(partitions)
        return lags

    async def _group(self, group_id: str) -> Json:
        decisions, silent = await self._journals.get(
            lambda: group_decisions(self._cluster, group_id)
        )
        try:
            group = await Groups(self._cluster).describe(group_id)
        except KafkaError as error:
            if not decisions:
                raise
            described: Json = {"problem": sentence_of(error)}
        else:
            described = {**_group_json(group), **await self._lag(group), "problem": ""}
        return {
            "group": group_id,
            **described,
            "decisions": decisions,
            "silent": [{"node": node_id, "reason": why} for node_id, why in silent.items()],
            "lines": list(group_lines(decisions)),
            "command": self._command(
                f"explain group {quote(group_id)}"
                if decisions
                else f"consumer-groups --describe --group {quote(group_id)}"
            ),
        }

    def _has_no_journal(self, found: Decisions) -> bool:
        """Whether all brokers are Apache Kafka's, which keep no journal."""
        reasons = list(found[1].values())
        return len(reasons) == len(self._cluster.view.nodes) and set(reasons) == {NO_JOURNAL}

    async def _lag(self, group: GroupInfo) -> Json:
        """The partitions of a group with lag in records and time, and the lag of the whole."""
        rows = await group_lags(self._cluster, group)
        at_ms = time.time_ns() // 1_000_000
        self._lags.add(group.id, rows, at_ms)
        asked = dict(islice(self._lags.unknown_times(group.id, rows).items(), PARTITIONS_MAX))
        if asked:
            self._lags.add_times(asked, await record_times(self._cluster, asked))
        offsets = [{**lag_json(row), **self._lags.partition(group.id, row, at_ms)} for row in rows]
        return {"offsets": offsets, "lag": self._lags.group(group.id, offsets)}

    async def _described(self, topic: str) -> TopicInfo:
        found = (await Admin(self._cluster).describe_topics([topic]))[topic]
        if isinstance(found, KafkaError):
            raise found
        return found

    async def _partition_history(self, topic: str, partition: int, at_offset: int) -> History:
        if at_offset >= 0:
            # ISR changes and elections share one list of events.
            shown = 2 * CHANGES_SHOWN
            found = await self._pasts.partition(topic, partition, at_offset, shown=shown)
            if found is not None:
                return found, ""
        wanted = HistoryTopic(name=topic, partitions=[partition])
        return await self._topic_history(wanted, at_offset=at_offset)

    async def _broker_history(self, broker_id: int, at_offset: int) -> History:
        if at_offset >= 0:
            found = await self._pasts.broker(broker_id, at_offset, shown=CHANGES_SHOWN)
            if found is not None:
                return found, ""
        request = DescribeHistoryRequest(
            broker_ids=[broker_id], events_max=CHANGES_SHOWN, at_offset=at_offset
        )
        return await self._history(request)

    async def _topic_history(self, topic: HistoryTopic, *, at_offset: int = -1) -> History:
        """The history of a topic, or the reason why no node has one."""
        request = DescribeHistoryRequest(
            topics=[topic],
            at_offset=at_offset,
            # ISR changes and elections share one list of events.
            events_max=CHANGES_SHOWN * 2 if topic.partitions else PARTITION_CHANGES_SHOWN * 5,
        )
        return await self._history(request)

    async def _history(self, request: Any) -> History:
        return await self._histories.get(lambda: self._history_now(request))

    async def _history_now(self, request: Any) -> History:
        try:
            return await fetch_history(self._cluster, request), ""
        except KafkaError as error:
            if error.code is not ErrorCode.NETWORK_EXCEPTION:
                raise
            return None, sentence_of(error)

    async def _offsets(self, info: TopicInfo) -> list[Json]:
        """First and last offset of each partition that has a leader."""
        led = [(info.name, p.index) for p in info.partitions.values() if p.leader >= 0]
        admin = Admin(self._cluster)
        first = await admin.list_offsets(dict.fromkeys(led, EARLIEST))
        last = await admin.list_offsets(dict.fromkeys(led, LATEST))
        return [
            {"partition": tp[1], "first": start.offset, "end": end.offset}
            for tp in sorted(led)
            if not isinstance(start := first[tp], KafkaError)
            and not isinstance(end := last[tp], KafkaError)
        ]

    async def _configs(self, topic: str) -> list[Json]:
        resource = (ResourceType.TOPIC, topic)
        found = (await Admin(self._cluster).describe_configs([resource]))[resource]
        if isinstance(found, KafkaError):
            return []
        return [
            {"name": each.name, "value": each.value, "source": each.source.name}
            for each in sorted(found, key=lambda each: each.name)
            if each.source is not ConfigSource.DEFAULT_CONFIG and not each.is_sensitive
        ]


def _has_offsets(group: ListedGroup) -> bool:
    """Whether the group commits offsets; a share group does not."""
    return group.kind.lower() != "share"


def _listed(group: ListedGroup) -> Json:
    return {
        "group": group.id,
        "state": group.state,
        "type": group.kind,
        "protocol": group.protocol_type,
    }


def topic_row(info: TopicInfo) -> Json:
    """A topic in the list of all topics."""
    partitions = info.partitions.values()
    return {
        "topic": info.name,
        "isInternal": info.is_internal,
        "partitions": len(partitions),
        "replicas": max((len(p.replicas) for p in partitions), default=0),
        "underReplicated": sum(len(p.isr) < len(p.replicas) for p in partitions),
        "offline": sum(p.leader < 0 for p in partitions),
    }


def topic_now(info: TopicInfo) -> Json:
    """The present state in the shape of `topic_document`."""
    return {
        "topic": info.name,
        "topicId": str(info.id),
        "partitions": [
            {
                "partition": p.index,
                "exists": True,
                "leader": p.leader if p.leader >= 0 else None,
                "leaderEpoch": p.leader_epoch,
                "since": None,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "elr": list(p.elr or ()),
                "offline": list(p.offline),
                "reassignment": None,
                "elections": [],
                "isrChanges": [],
            }
            for p in sorted(info.partitions.values(), key=lambda each: each.index)
        ],
    }


def broker_now(broker_id: int, node: Node | None, topics: Mapping[str, TopicInfo]) -> Json:
    """The present state of a broker in the shape of `broker_document`.

    Args:
        broker_id: its id.
        node: its entry in Metadata, which has no fenced brokers.
        topics: all topics by name.
    """
    own = [
        (f"{name}-{index}", partition)
        for name, topic in sorted(topics.items())
        for index, partition in sorted(topic.partitions.items())
        if broker_id in partition.replicas
    ]
    behind = [name for name, partition in own if broker_id not in partition.isr]
    return {
        "broker": broker_id,
        "state": "serving" if node is not None else "fenced or not registered",
        "brokerEpoch": None,
        "rack": None if node is None else node.rack,
        "leads": sum(partition.leader == broker_id for _, partition in own),
        "preferredLeaderOf": sum(partition.replicas[0] == broker_id for _, partition in own),
        "replicas": len(own),
        "inSync": len(own) - len(behind),
        "outOfSync": behind,
        "changes": [],
        "elections": [],
    }


def _group_json(group: GroupInfo) -> Json:
    return {
        "state": group.state,
        "type": group.kind,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "groupEpoch": group.group_epoch,
        "targetEpoch": group.target_epoch,
        "members": [
            {
                "id": member.id,
                "instanceId": member.instance_id,
                "clientId": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "partitions": len(member.assignment),
            }
            for member in group.members[:MEMBERS_MAX]
        ],
    }

"""Documents of earlier moments, by the timeline of the metadata log.

Each has the shape of the document of the present (`views`, `watch`), so the same screens draw both.
Offsets of records, groups and elections of the quorum are not in the metadata log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.explain.cluster import cluster_document
from sparkraft.client.explain.past_cluster import INTERNAL, facts_of, topic_info
from sparkraft.client.explain.times import time_text
from sparkraft.client.past.changes import acl_text, resource_text
from sparkraft.client.past.compare import compared, differences
from sparkraft.client.past.moves import reassignments_of, throttles_of
from sparkraft.console.moment_text import MomentError
from sparkraft.console.moments import offset_of
from sparkraft.console.past_settings import PastSettings
from sparkraft.console.replica_views import reassignments_json
from sparkraft.console.views import topic_now

if TYPE_CHECKING:
    from sparkraft.client.past.changes import Change
    from sparkraft.client.past.log import LogRecord
    from sparkraft.client.past.state import PastState, PastTopic
    from sparkraft.console.timeline import Timeline

Json = dict[str, Any]

CHANGES_SHOWN = 50

COMPARED_SHOWN = 200
"""Differences of two moments that a page lists; the others are counted."""

TOPIC = 2


class PastViews:
    """See the module docstring; a request raises KafkaError for a moment that is not known."""

    def __init__(self, timeline: Timeline, *, bootstrap: str) -> None:
        """Use `timeline`, of the cluster that commands name as `bootstrap`."""
        self._timeline = timeline
        self._bootstrap = bootstrap
        self.settings = PastSettings(timeline, bootstrap=bootstrap)

    async def timeline(self) -> Json:
        """How far the log is indexed, and how many changes it has."""
        timeline = self._timeline
        timeline.follow()
        index = timeline.index
        count = len(index.offsets)
        return {
            "problem": timeline.problem,
            "isComplete": timeline.is_complete,
            "nextOffset": timeline.next_offset,
            "highWatermark": timeline.high_watermark,
            "count": count,
            "firstChange": timeline.first_change,
            "bucketSize": index.bucket_size,
            "buckets": list(index.buckets),
            "lastOffset": index.offsets[-1] if count else -1,
        }

    async def moment(self, *, change: int = -1, at_ms: int = -1, at_offset: int = -1) -> Json:
        """A change by its number, or the last one up to a time or an offset."""
        timeline = self._timeline
        if at_ms >= 0 or change >= len(timeline.index.offsets):
            await timeline.up_to_date()
        else:
            await timeline.reach(at_offset)
        return await timeline.run(lambda: self._moment(change, at_ms, at_offset))

    async def moment_named(self, text: str) -> Json:
        """The last change up to a moment as a reader types it, or the problem with the text."""
        await self._timeline.up_to_date()
        return await self._timeline.run(lambda: self._moment_named(text))

    async def cluster(self, at_offset: int) -> Json:
        """The overview as of an offset."""
        timeline = self._timeline
        document = await timeline.as_of(
            at_offset, lambda state: cluster_document(facts_of(state, timeline.cluster_id))
        )
        return {**document, "command": self._command(f"explain cluster --at-offset {at_offset}")}

    async def topics(self, at_offset: int) -> Json:
        """All topics as of an offset."""
        rows = await self._timeline.as_of(at_offset, self._topic_rows)
        return {"topics": rows, "command": self._command(f"metadata-log --to {at_offset}")}

    async def topic(self, name: str, at_offset: int) -> Json:
        """A topic as of an offset."""
        document = await self._timeline.as_of(at_offset, lambda state: self._topic(state, name))
        command = self._command(f"explain topic {name} --at-offset {at_offset}")
        return {**document, "command": command}

    async def reassignments(self, at_offset: int) -> Json:
        """The reassignments as of an offset, and the throttles that were set."""
        document = await self._timeline.as_of(at_offset, _reassignments)
        command = self._command(f"reassign-partitions --list --at-offset {at_offset}")
        return {**document, "command": command}

    async def changes(self, at_offset: int, *, first: str = "", last: str = "") -> Json:
        """The last changes up to an offset, what differs from now, and what is set then.

        With `first`, also a comparison of two moments as a reader types them; without `last`, the
        second one is now. Without a metadata log to read, only the `problem`.
        """
        await self._timeline.up_to_date()
        if self._timeline.problem and len(self._timeline.index.offsets) == 0:
            return {"problem": self._timeline.problem}
        if at_offset < 0:
            at_offset = max(-1, self._timeline.next_offset - 1)
        document = await self._timeline.run(lambda: self._changes(at_offset))
        if first.strip():
            comparison = await self._timeline.run(lambda: self._comparison(first, last))
            document = {**document, "comparison": comparison}
        return document

    # ---- in a thread

    def _command(self, words: str) -> str:
        return f"sparkraft {words} --bootstrap-server {self._bootstrap}"

    def _topic_rows(self, state: PastState) -> list[Json]:
        return [past_topic_row(topic) for topic in state.topics_in_order()]

    def _topic(self, state: PastState, name: str) -> Json:
        topic = state.topic(name)
        if topic is None:
            wrong = f"topic {name} does not exist at offset {state.offset}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wrong)
        configs = state.configs.get((TOPIC, name), {})
        return {
            **topic_now(topic_info(topic)),
            "historyProblem": "",
            "lines": [],
            "offsets": [],
            "configs": [
                {"name": key, "value": configs[key], "source": "DYNAMIC_TOPIC_CONFIG"}
                for key in sorted(configs)
            ],
        }

    def _moment(self, change: int, at_ms: int, at_offset: int) -> Json:
        index = self._timeline.index
        if at_ms >= 0:
            change = index.last_at_time(at_ms)
        elif at_offset >= 0:
            change = index.last_at_or_before(at_offset)
        change = max(change, self._timeline.first_change)
        found = self._timeline.changes(change, 1)
        if not found:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"change {change} is not known")
        return {"change": change, **_change_json(*found[0])}

    def _moment_named(self, text: str) -> Json:
        try:
            at_offset = offset_of(self._timeline, text)
        except MomentError as error:
            return {"problem": str(error)}
        return {"problem": "", **self._moment(-1, -1, at_offset)}

    def _comparison(self, first: str, last: str) -> Json:
        timeline = self._timeline
        try:
            states = [self._state_named(first), self._state_named(last)]
        except MomentError as error:
            return {"problem": str(error)}
        before, after = sorted(states, key=lambda state: state.offset)
        found = compared(before, after, count_max=COMPARED_SHOWN)
        listed = f"metadata-log --from {before.offset + 1} --to {after.offset}"
        return {
            "problem": "",
            "from": _place_json(before),
            "to": _place_json(after),
            "changeCount": timeline.index.last_at_or_before(after.offset)
            - timeline.index.last_at_or_before(before.offset),
            "differences": [{"kind": each.kind, "text": each.text} for each in found.listed],
            "others": found.others,
            "isCut": found.is_cut,
            "command": self._command(listed) if before.offset < after.offset else None,
        }

    def _state_named(self, text: str) -> PastState:
        """The cluster at a moment as a reader types it, or now; not to be changed."""
        if text.strip() in {"", "now"}:
            return self._timeline.latest
        return self._timeline.state_kept(offset_of(self._timeline, text))

    def _changes(self, at_offset: int) -> Json:
        timeline = self._timeline
        last = timeline.index.last_at_or_before(at_offset)
        first = max(timeline.first_change, last + 1 - CHANGES_SHOWN)
        listed = timeline.changes(first, last + 1 - first) if last >= first else []
        state = timeline.state_at(at_offset)
        found, is_cut = differences(state, timeline.latest)
        acls = sorted(state.acls.values())
        return {
            "problem": "",
            **_place_json(state),
            "changes": [_change_json(*each) for each in reversed(listed)],
            "differences": [{"kind": each.kind, "text": each.text} for each in found],
            "moreDifferences": is_cut,
            "features": dict(sorted(state.features.items())),
            "configs": [
                {"resource": resource_text(*key), "name": name, "value": state.configs[key][name]}
                for key in sorted(state.configs)
                for name in sorted(state.configs[key])
            ],
            "acls": [acl_text(acl) for acl in acls],
            "command": self._command(f"metadata-log --to {at_offset}"),
        }


def _reassignments(state: PastState) -> Json:
    return reassignments_json(reassignments_of(state), throttles_of(state), sizes=None)


def past_topic_row(topic: PastTopic) -> Json:
    """`topic_row` of an earlier moment, without objects between: a step makes one of each topic."""
    partitions = topic.partitions.values()
    return {
        "topic": topic.name,
        "isInternal": topic.name in INTERNAL,
        "partitions": len(partitions),
        "replicas": max((len(p.replicas) for p in partitions), default=0),
        "underReplicated": sum(len(p.isr) < len(p.replicas) for p in partitions),
        "offline": sum(p.leader < 0 for p in partitions),
    }


def _place_json(state: PastState) -> Json:
    return {
        "offset": state.offset,
        "time": time_text(state.at_ms) if state.at_ms >= 0 else None,
        "epoch": state.epoch,
    }


def _change_json(each: LogRecord, change: Change) -> Json:
    return {
        "offset": each.offset,
        "time": time_text(each.at_ms) if each.at_ms >= 0 else None,
        "epoch": each.epoch,
        "kind": change.kind,
        "text": change.text,
    }

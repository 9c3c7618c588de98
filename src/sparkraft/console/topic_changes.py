"""Topics that an editor creates, enlarges or deletes, and records that an editor deletes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from sparkraft.base.errors import KafkaError
from sparkraft.client.errors import PlanError
from sparkraft.client.values import EARLIEST, LATEST, NewTopic
from sparkraft.console.change import (
    Difference,
    Plan,
    check_confirmed,
    number_of,
    optional_number_of,
    raise_refusal,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.client.cluster import TopicInfo
    from sparkraft.client.leadership import LeadershipAdmin

CONFIGS_MAX = 100
"""Of a new topic."""

_INT16_MAX = 0x7FFF
_INT64_MAX = (1 << 63) - 1


async def topic_of(admin: LeadershipAdmin, name: str) -> TopicInfo:
    """Describe a topic; KafkaError if it does not exist."""
    found = (await admin.describe_topics([name]))[name]
    if isinstance(found, KafkaError):
        raise found
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """`{"topic", "partitions", "replicationFactor", "configs": {name: value}}`."""

    new: NewTopic

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Read the document; the numbers may be absent: the cluster's defaults then count."""
        configs = document.get("configs") or {}
        if not isinstance(configs, dict) or len(configs) > CONFIGS_MAX:
            raise ValueError(f"configs must be an object of at most {CONFIGS_MAX}")
        partitions = optional_number_of(document, "partitions", least=1)
        factor = optional_number_of(document, "replicationFactor", least=1, most=_INT16_MAX)
        new = NewTopic(
            name=text_of(document, "topic"),
            partitions=partitions or -1,
            replication_factor=factor or -1,
            configs={str(name): str(value) for name, value in configs.items()},
        )
        return cls(new=new)

    @property
    def wish(self) -> str:
        return f"create topic {self.new.name!r}"

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        made = (await admin.create_topics([self.new], validate_only=True))[self.new.name]
        if isinstance(made, KafkaError):
            raise made
        numbers = {"partitions": made.partitions, "replication factor": made.replication_factor}
        rows = [
            Difference(what=name, before=None, after=str(number))
            for name, number in numbers.items()
            if number > 0
        ]
        rows += [
            Difference(what=name, before=None, after=value)
            for name, value in sorted(self.new.configs.items())
        ]
        return Plan(
            sentence=f"Topic {self.new.name} is created.",
            differences=rows,
            command=self._command(servers),
        )

    def _command(self, servers: str) -> str:
        new = self.new
        words = [
            f"sparkraft topics --bootstrap-server {servers} --create --topic {quote(new.name)}"
        ]
        if new.partitions > 0:
            words.append(f"--partitions {new.partitions}")
        if new.replication_factor > 0:
            words.append(f"--replication-factor {new.replication_factor}")
        words += [
            f"--config {quote(f'{name}={value}')}" for name, value in sorted(new.configs.items())
        ]
        return " ".join(words)

    async def apply(self, admin: LeadershipAdmin) -> str:
        raise_refusal((await admin.create_topics([self.new])).values())
        return f"created topic {self.new.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """`{"topic", "partitions"}`: the number that the topic has afterwards."""

    topic: str
    partitions: int

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            topic=text_of(document, "topic"),
            partitions=number_of(document, "partitions", least=1),
        )

    @property
    def wish(self) -> str:
        return f"set the partitions of topic {self.topic!r} to {self.partitions}"

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        counts = {self.topic: self.partitions}
        raise_refusal((await admin.create_partitions(counts, validate_only=True)).values())
        before = len((await topic_of(admin, self.topic)).partitions)
        row = Difference(what="partitions", before=str(before), after=str(self.partitions))
        return Plan(
            sentence=f"Topic {self.topic} gets {self.partitions - before} more.",
            differences=[row],
            warnings=[
                "Producers that choose partitions by key send a key to another partition than "
                "before. Partitions cannot be removed."
            ],
            command=f"sparkraft topics --bootstrap-server {servers} --alter "
            f"--topic {quote(self.topic)} --partitions {self.partitions}",
        )

    async def apply(self, admin: LeadershipAdmin) -> str:
        raise_refusal((await admin.create_partitions({self.topic: self.partitions})).values())
        return f"set the partitions of topic {self.topic!r} to {self.partitions}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """`{"topic", "confirm"}`; the name must be repeated."""

    topic: str
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        return cls(topic=text_of(document, "topic"), document=document)

    @property
    def wish(self) -> str:
        return f"delete topic {self.topic!r}"

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        info = await topic_of(admin, self.topic)
        records = await _record_count(admin, info)
        rows = [
            Difference(what="partitions", before=str(len(info.partitions)), after=None),
            Difference(what="records", before=f"about {records:,}", after=None),
        ]
        return Plan(
            sentence=f"Topic {self.topic} is deleted with all its records.",
            differences=rows,
            warnings=["This cannot be undone."],
            confirm=self.topic,
            command=f"sparkraft topics --bootstrap-server {servers} --delete "
            f"--topic {quote(_exactly(self.topic))}",
        )

    async def apply(self, admin: LeadershipAdmin) -> str:
        check_confirmed(self.document, self.topic)
        raise_refusal((await admin.delete_topics([self.topic])).values())
        return f"deleted topic {self.topic!r}"


def _exactly(topic: str) -> str:
    """A regular expression for one topic: names contain no other special character than dots."""
    return topic.replace(".", r"\.")


async def _record_count(admin: LeadershipAdmin, info: TopicInfo) -> int:
    """Offsets between the ends of the partitions that have a leader."""
    led = [(info.name, p.index) for p in info.partitions.values() if p.leader >= 0]
    first = await admin.list_offsets(dict.fromkeys(led, EARLIEST))
    last = await admin.list_offsets(dict.fromkeys(led, LATEST))
    return sum(
        end.offset - start.offset
        for tp in led
        if not isinstance(start := first[tp], KafkaError)
        and not isinstance(end := last[tp], KafkaError)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecords:
    """`{"topic", "partition", "offset", "confirm"}`: those of a partition below an offset."""

    topic: str
    partition: int
    offset: int
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            topic=text_of(document, "topic"),
            partition=number_of(document, "partition", least=0),
            offset=number_of(document, "offset", least=0, most=_INT64_MAX),
            document=document,
        )

    @property
    def wish(self) -> str:
        return (
            f"delete the records of partition {self.partition} of topic {self.topic!r} "
            f"below offset {self.offset}"
        )

    async def plan(self, admin: LeadershipAdmin, servers: str) -> Plan:
        tp = (self.topic, self.partition)
        first = (await admin.list_offsets({tp: EARLIEST}))[tp]
        last = (await admin.list_offsets({tp: LATEST}))[tp]
        if isinstance(first, KafkaError):
            raise first
        if isinstance(last, KafkaError):
            raise last
        if not first.offset < self.offset <= last.offset:
            raise PlanError(
                f"the offset must be above {first.offset}, the first one, and at most {last.offset}"
            )
        row = Difference(what="first offset", before=str(first.offset), after=str(self.offset))
        return Plan(
            sentence=f"{self.offset - first.offset:,} offsets of {self.topic}-{self.partition} "
            "are deleted.",
            differences=[row],
            warnings=["This cannot be undone."],
            confirm=self.topic,
            command=self._command(servers),
        )

    def _command(self, servers: str) -> str:
        entry = {"topic": self.topic, "partition": self.partition, "offset": self.offset}
        plan = json.dumps({"version": 1, "partitions": [entry]})
        return (
            f"printf %s {quote(plan)} | sparkraft delete-records --bootstrap-server {servers} "
            "--offset-json-file /dev/stdin"
        )

    async def apply(self, admin: LeadershipAdmin) -> str:
        check_confirmed(self.document, self.topic)
        raise_refusal(
            (await admin.delete_records({(self.topic, self.partition): self.offset})).values()
        )
        return f"deleted the records of {self.topic}-{self.partition} below offset {self.offset}"

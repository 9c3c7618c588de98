"""Topics: created, described, deleted; and the cluster that tells of them."""

from collections.abc import Iterator
from typing import Any

from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages import (
    k03_metadata as k03,
)
from sparkraft.protocol.messages import (
    k19_create_topics as k19,
)
from sparkraft.protocol.messages import (
    k20_delete_topics as k20,
)
from sparkraft.protocol.messages import (
    k60_describe_cluster as k60,
)
from sparkraft.protocol.messages import (
    k75_describe_topic_partitions as k75,
)
from tests.interop.differential.building import COMPACTED, EMPTY, TOPIC, every_version
from tests.interop.differential.world import Case, World


def creatable(name: str, partitions: int = 1, **more: Any) -> k19.CreatableTopic:
    """A topic to create, replication factor 1 where nothing else is said."""
    return k19.CreatableTopic(
        name=name, num_partitions=partitions, **{"replication_factor": 1, **more}
    )


def remember_ids(world: World, response: Any) -> None:
    """Keep the ids of topics that were created or described."""
    for topic in response.topics:
        name = getattr(topic, "name", None)
        if name and any(topic.topic_id):
            world.topic_ids[name] = topic.topic_id


def creations() -> Iterator[Case]:
    """Topics that are created, and many that must not be."""
    key = ApiKey.CREATE_TOPICS

    def config(name: str, value: str | None) -> k19.CreatableTopicConfig:
        return k19.CreatableTopicConfig(name=name, value=value)

    def request(*topics: k19.CreatableTopic, validate_only: bool = False) -> Any:
        return lambda _: k19.CreateTopicsRequest(
            topics=list(topics), timeout_ms=10_000, validate_only=validate_only
        )

    yield Case("three topics", key, 7, request(
        creatable(TOPIC, 3), creatable(EMPTY, 1),
        creatable(COMPACTED, 1, configs=[config("cleanup.policy", "compact")]),
    ), remember_ids)  # fmt: skip
    assignment = k19.CreatableReplicaAssignment
    bad = {
        "exists": creatable(TOPIC),
        "empty name": creatable(""),
        "dot": creatable("."),
        "two dots": creatable(".."),
        "bad letters": creatable("so so"),
        "slash": creatable("a/b"),
        "too long": creatable("x" * 250),
        "no partitions": creatable("p0", 0),
        "negative partitions": creatable("p-2", -2),
        "factor 2 of 1 broker": creatable("r2", replication_factor=2),
        "factor 0": creatable("r0", replication_factor=0),
        "factor -2": creatable("r-2", replication_factor=-2),
        "unknown config": creatable("c1", configs=[config("no.such.config", "1")]),
        "malformed config": creatable("c2", configs=[config("retention.ms", "soon")]),
        "config out of range": creatable("c3", configs=[config("segment.bytes", "3")]),
        "config not in list": creatable("c4", configs=[config("cleanup.policy", "shred")]),
        "null config": creatable("c5", configs=[config("retention.ms", None)]),
        "assigned to nobody": creatable("a1", -1, replication_factor=-1,
            assignments=[assignment(partition_index=0, broker_ids=[9])]),
        "assignment with a gap": creatable("a2", -1, replication_factor=-1,
            assignments=[assignment(partition_index=1, broker_ids=[1])]),
        "assignment twice": creatable("a3", -1, replication_factor=-1,
            assignments=[assignment(partition_index=0, broker_ids=[1, 1])]),
        "assignment and count": creatable("a4", 2,
            assignments=[assignment(partition_index=0, broker_ids=[1])]),
    }  # fmt: skip
    for label, topic in bad.items():
        yield Case(label, key, 7, request(topic))
    yield Case("same name twice", key, 7, request(creatable("twin"), creatable("twin")))
    yield Case("colliding names", key, 7, request(creatable("a.b"), creatable("a_b")))
    yield Case("nothing", key, 7, request())
    info = API_INFO[key]
    for version in range(info.min_version, info.max_version + 1):
        name = f"made-by-v{version}"
        yield Case("validate only", key, version, request(creatable(name), validate_only=True))
        yield Case("good", key, version, request(
            creatable(name, 2, configs=[config("retention.ms", "86400000")])), remember_ids)  # fmt: skip
        yield Case("again", key, version, request(creatable(name)))
    yield Case("defaults", key, 7, request(creatable("by-default", -1, replication_factor=-1)),
               remember_ids)  # fmt: skip
    yield Case("own assignment", key, 7, request(creatable("assigned", -1, replication_factor=-1,
        assignments=[assignment(partition_index=i, broker_ids=[1]) for i in range(2)])),
        remember_ids)  # fmt: skip


def metadata() -> Iterator[Case]:
    """Topics by name and by id, all of them, none, and unknown ones."""
    key = ApiKey.METADATA
    yield Case(
        "settled",
        key,
        12,
        lambda _: k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name="assigned")]),
        until=lambda answer: answer["topics"][0]["errorCode"] == 0,
    )

    def by_name(*names: str, auto: bool = False) -> Any:
        return lambda _: k03.MetadataRequest(
            topics=[k03.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=auto,
        )

    yield from every_version(key, "by name", by_name(TOPIC, "made-by-v5"))
    yield from every_version(key, "unknown name", by_name("nowhere"), since=4)
    yield from every_version(key, "invalid name", by_name("so so", auto=True), since=4)
    yield from every_version(
        key,
        "no topics",
        lambda _: k03.MetadataRequest(topics=[], allow_auto_topic_creation=False),
        since=1,
    )
    yield from every_version(key, "all topics", lambda _: k03.MetadataRequest(topics=None), since=1)
    yield from every_version(
        key, "authorised operations", lambda _: k03.MetadataRequest(
            topics=[k03.MetadataRequestTopic(name=TOPIC)],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ), since=8,
    )  # fmt: skip
    yield from every_version(
        key, "by id", lambda w: k03.MetadataRequest(topics=[
            k03.MetadataRequestTopic(topic_id=w.topic_id(TOPIC), name=None),
            k03.MetadataRequestTopic(topic_id=w.topic_id("?"), name=None),
        ]), since=12,
    )  # fmt: skip
    describe = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    request, named = k75.DescribeTopicPartitionsRequest, k75.TopicRequest
    yield Case(
        "two topics",
        describe,
        0,
        lambda _: request(topics=[named(name=TOPIC), named(name="nowhere")]),
    )
    yield Case("all", describe, 0, lambda _: request(topics=[]))
    yield Case(
        "limit and cursor",
        describe,
        0,
        lambda _: request(topics=[named(name=TOPIC)], response_partition_limit=1),
    )
    yield Case("from a cursor", describe, 0, lambda _: request(
        topics=[named(name=TOPIC)], cursor=k75.Cursor(topic_name=TOPIC, partition_index=1)))  # fmt: skip
    cluster = ApiKey.DESCRIBE_CLUSTER
    yield from every_version(cluster, "brokers", lambda _: k60.DescribeClusterRequest())
    yield from every_version(cluster, "operations", lambda _: k60.DescribeClusterRequest(
        include_cluster_authorized_operations=True))  # fmt: skip
    yield from every_version(cluster, "controllers", lambda _: k60.DescribeClusterRequest(
        endpoint_type=2), since=1)  # fmt: skip
    yield from every_version(cluster, "fenced too", lambda _: k60.DescribeClusterRequest(
        include_fenced_brokers=True), since=2)  # fmt: skip


def deletions() -> Iterator[Case]:
    """Topics go, by name and by id."""
    key = ApiKey.DELETE_TOPICS

    def named(*names: str) -> Any:
        return lambda _: k20.DeleteTopicsRequest(timeout_ms=10_000, topic_names=list(names),
            topics=[k20.DeleteTopicState(name=name) for name in names])  # fmt: skip

    for version in range(1, 7):
        yield Case("by name", key, version, named(f"made-by-v{min(version + 1, 7)}"))
    yield Case("unknown", key, 6, named("nowhere"))
    yield Case("twice", key, 6, named(COMPACTED, COMPACTED))
    yield Case("by id", key, 6, lambda w: k20.DeleteTopicsRequest(timeout_ms=10_000, topics=[
        k20.DeleteTopicState(name=None, topic_id=w.topic_id("assigned")), k20.DeleteTopicState(name=None, topic_id=w.topic_id("?"))]))  # fmt: skip
    yield Case("by both", key, 6, lambda w: k20.DeleteTopicsRequest(timeout_ms=10_000, topics=[
        k20.DeleteTopicState(name=TOPIC, topic_id=w.topic_id(TOPIC))]))  # fmt: skip
    gone = {f"made-by-v{version}" for version in range(2, 8)} | {"assigned"}
    yield Case(
        "afterwards",
        ApiKey.METADATA,
        12,
        lambda _: k03.MetadataRequest(topics=None),
        until=lambda answer: not gone & {topic["name"] for topic in answer["topics"]},
    )

"""What tools ask: configs, partitions, features, the quorum, leaders, reassignments."""

from collections.abc import Callable, Iterator
from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import (
    k29_describe_acls as k29,
)
from sparkraft.protocol.messages import (
    k32_describe_configs as k32,
)
from sparkraft.protocol.messages import (
    k33_alter_configs as k33,
)
from sparkraft.protocol.messages import (
    k35_describe_log_dirs as k35,
)
from sparkraft.protocol.messages import (
    k37_create_partitions as k37,
)
from sparkraft.protocol.messages import (
    k43_elect_leaders as k43,
)
from sparkraft.protocol.messages import (
    k44_incremental_alter_configs as k44,
)
from sparkraft.protocol.messages import (
    k45_alter_partition_reassignments as k45,
)
from sparkraft.protocol.messages import (
    k46_list_partition_reassignments as k46,
)
from sparkraft.protocol.messages import (
    k48_describe_client_quotas as k48,
)
from sparkraft.protocol.messages import (
    k49_alter_client_quotas as k49,
)
from sparkraft.protocol.messages import (
    k50_describe_user_scram_credentials as k50,
)
from sparkraft.protocol.messages import (
    k51_alter_user_scram_credentials as k51,
)
from sparkraft.protocol.messages import (
    k55_describe_quorum as k55,
)
from sparkraft.protocol.messages import (
    k57_update_features as k57,
)
from sparkraft.protocol.messages import (
    k64_unregister_broker as k64,
)
from sparkraft.protocol.messages import (
    k66_list_transactions as k66,
)
from sparkraft.protocol.messages import (
    k74_list_config_resources as k74,
)
from tests.interop.differential.building import COMPACTED, EMPTY, GROUP, TOPIC, every_version
from tests.interop.differential.world import Case, World

_QUOTAS: list[tuple[str, dict[str, str | None], str, float]] = [
    ("a user", {"user": "u"}, "producer_byte_rate", 5.0),
    ("a default", {"client-id": None}, "request_percentage", 0.5),
    ("an address", {"ip": "10.0.0.1"}, "connection_creation_rate", 5.0),
    ("no entity", {}, "producer_byte_rate", 5.0),
    ("an empty name", {"user": ""}, "producer_byte_rate", 5.0),
    ("an unknown type", {"group": "g"}, "producer_byte_rate", 5.0),
    ("an address and a user", {"ip": "10.0.0.1", "user": "u"}, "producer_byte_rate", 5.0),
    ("a key of addresses", {"user": "u"}, "connection_creation_rate", 5.0),
    ("not positive", {"user": "u"}, "producer_byte_rate", 0.0),
    ("a fraction", {"user": "u"}, "producer_byte_rate", 5.5),
    ("too large", {"ip": None}, "connection_creation_rate", 5e9),
]


def scram_users() -> Iterator[Case]:
    """Credentials set, described and deleted; one user a request, since Kafka's order is by hash."""
    alter, describe = ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS

    def added(*names: str, mechanism: int = 1, iterations: int = 4096) -> Any:
        credential = {"mechanism": mechanism, "iterations": iterations, "salt": b"salt"}
        return k51.AlterUserScramCredentialsRequest(
            upsertions=[
                k51.ScramCredentialUpsertion(name=name, salted_password=bytes(32), **credential)
                for name in names
            ]
        )

    def deleted(name: str, mechanism: int = 1) -> Any:
        deletion = k51.ScramCredentialDeletion(name=name, mechanism=mechanism)
        return k51.AlterUserScramCredentialsRequest(deletions=[deletion])

    def described(*names: str) -> Any:
        users = [k50.UserName(name=name) for name in names]
        return k50.DescribeUserScramCredentialsRequest(users=users)

    for label, request in {
        "nothing": k51.AlterUserScramCredentialsRequest(),
        "added": added("alice"),
        "a second mechanism": added("alice", mechanism=2, iterations=16384),
        "no name": added(""),
        "unknown mechanism": added("bob", mechanism=3),
        "mechanism 0": added("bob", mechanism=0),
        "too few iterations": added("bob", iterations=4095),
        "too many iterations": added("bob", iterations=16385),
        "twice": added("bob", "bob"),
        "three times": added("bob", "bob", "bob"),
        "not there": deleted("bob"),
        "another mechanism deleted": deleted("bob", 2),
        "unknown mechanism deleted": deleted("alice", 9),
        "no name deleted": deleted(""),
    }.items():
        yield Case(label, alter, 0, lambda _, request=request: request)
    # Kafka's broker has the new credentials a moment after its controller said yes.
    yield Case(
        "alice has two",
        describe,
        0,
        lambda _: described("alice"),
        until=has_credentials("alice", 2),
    )
    for label, names in {
        "all": (),
        "one": ("alice",),
        "unknown": ("bob",),
        "one twice": ("alice", "alice"),
    }.items():
        yield Case(label, describe, 0, lambda _, names=names: described(*names))
    yield Case("deleted", alter, 0, lambda _: deleted("alice", 2))
    yield Case(
        "one left", describe, 0, lambda _: described("alice"), until=has_credentials("alice", 1)
    )


def has_credentials(user: str, count: int) -> Callable[[Any], bool]:
    """Whether an answer has `count` credentials of `user`."""
    return lambda answer: (
        [len(r["credentialInfos"]) for r in answer["results"] if r["user"] == user] == [count]
    )


def administration() -> Iterator[Case]:
    """Configs, partitions, features, the quorum, and what tools ask on the side."""
    key = ApiKey.DESCRIBE_CONFIGS

    def described(kind: int, name: str, *keys: str, **more: bool) -> Any:
        return lambda _: k32.DescribeConfigsRequest(resources=[k32.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)], **more)  # fmt: skip

    yield from every_version(key, "a topic", described(2, TOPIC))
    yield from every_version(
        key,
        "some keys",
        described(
            2, COMPACTED, "cleanup.policy", "retention.ms", "no.such.key", include_synonyms=True
        ),
    )
    yield from every_version(key, "the broker", described(4, "1"))
    yield from every_version(key, "another broker", described(4, "9"))
    yield from every_version(key, "all brokers", described(4, ""))
    yield from every_version(key, "synonyms", described(2, TOPIC, include_synonyms=True))
    yield from every_version(key, "unknown topic", described(2, "nowhere"))
    yield from every_version(key, "invalid topic", described(2, "so so"))
    yield from every_version(key, "unknown kind", described(77, "x"))
    yield from every_version(key, "a group", described(32, GROUP, include_synonyms=True))
    yield from every_version(key, "client metrics", described(16, "metrics"))
    yield from every_version(key, "levels of another broker", described(8, "2"))
    yield from every_version(key, "levels of no broker", described(8, ""))

    def alter(
        topic: str, changes: list[tuple[str, int, str | None]], *, kind: int = 2, only: bool = False
    ) -> Any:
        return lambda _: k44.IncrementalAlterConfigsRequest(validate_only=only, resources=[k44.AlterConfigsResource(
            resource_type=kind, resource_name=topic,
            configs=[k44.AlterableConfig(name=n, config_operation=op, value=v) for n, op, v in changes])])  # fmt: skip

    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    for label, build in {
        "set": alter(EMPTY, [("retention.ms", 0, "1000000")]), "validate": alter(EMPTY, [("retention.ms", 0, "5")], only=True),
        "append": alter(EMPTY, [("cleanup.policy", 2, "compact")]), "subtract": alter(EMPTY, [("cleanup.policy", 3, "delete")]),
        "delete": alter(EMPTY, [("cleanup.policy", 1, None), ("retention.ms", 1, None)]),
        "append to a number": alter(EMPTY, [("retention.ms", 2, "5")]), "bad value": alter(EMPTY, [("retention.ms", 0, "soon")]),
        "unknown config": alter(EMPTY, [("no.such", 0, "1")]), "unknown topic": alter("nowhere", [("retention.ms", 0, "5")]),
        "bad operation": alter(EMPTY, [("retention.ms", 9, "5")]), "null value": alter(EMPTY, [("retention.ms", 0, None)]),
        "twice": alter(EMPTY, [("retention.ms", 0, "5"), ("retention.ms", 0, "6")]),
        "broker dynamic": alter("1", [("log.cleaner.threads", 0, "2")], kind=4),
        "cluster default": alter("", [("message.max.bytes", 0, "1048600")], kind=4),
        "broker read-only": alter("1", [("node.id", 0, "2")], kind=4),
        "unknown broker": alter("abc", [("log.cleaner.threads", 0, "2")], kind=4),
        "another broker": alter("2", [("log.cleaner.threads", 0, "2")], kind=4),
        "three times the threads": alter("", [("num.replica.fetchers", 0, "3")], kind=4),
        "no log directory": alter("1", [("cordoned.log.dirs", 0, "/nowhere")], kind=4),
        "no log directory, added": alter("1", [("cordoned.log.dirs", 2, "/nowhere")], kind=4),
        "unknown kind": alter("x", [("a", 0, "1")], kind=77),
        "level": alter("1", [("state.change.logger", 0, "DEBUG")], kind=8),
        "level, deleted": alter("1", [("state.change.logger", 1, None)], kind=8),
        "no level": alter("1", [("root", 0, "OFF")], kind=8),
        "level without a value": alter("1", [("root", 0, None)], kind=8),
        "level in small letters": alter("1", [("root", 0, "info")], kind=8),
        "level, appended": alter("1", [("root", 2, "INFO")], kind=8),
        "level, subtracted": alter("1", [("root", 3, "INFO")], kind=8),
        "level of no logger": alter("1", [("no.such", 0, "INFO")], kind=8),
        "level of the root, deleted": alter("1", [("root", 1, None)], kind=8),
        "level of another broker": alter("2", [("root", 0, "INFO")], kind=8),
        "level of a broker without number": alter("x", [("root", 0, "INFO")], kind=8),
        "level, only checked": alter("1", [("root", 0, "INFO")], kind=8, only=True),
        "level, twice": alter("1", [("root", 0, "INFO"), ("root", 0, "INFO")], kind=8),
        "client metrics": alter("some", [("metrics", 0, "a.,b."), ("interval.ms", 0, "100")], kind=16, only=True),
        "client metrics too often": alter("some", [("interval.ms", 0, "99")], kind=16, only=True),
        "client metrics too seldom": alter("some", [("interval.ms", 0, "3600001")], kind=16, only=True),
        "client metrics at times": alter("some", [("interval.ms", 0, "often")], kind=16, only=True),
        "client metrics of a pattern": alter("some", [("match", 0, "client_id=a.*,client_source_port=1")], kind=16, only=True),
        "client metrics without a pattern": alter("some", [("match", 0, "client_id")], kind=16, only=True),
        "client metrics of two patterns": alter("some", [("match", 0, "client_id=a=b")], kind=16, only=True),
        "client metrics of a bad pattern": alter("some", [("match", 0, "client_id=(")], kind=16, only=True),
        "client metrics of a host": alter("some", [("match", 0, "host=a")], kind=16, only=True),
        "client metrics with a level": alter("some", [("level", 0, "a")], kind=16, only=True),
        "client metrics without a name": alter("", [("metrics", 0, "a")], kind=16, only=True),
    }.items():  # fmt: skip
        yield from every_version(key, label, build)
    yield Case("level of the root", key, 1, alter("1", [("root", 0, "INFO")], kind=8))
    yield from every_version(
        ApiKey.DESCRIBE_CONFIGS, "level of the root", described(8, "1", "root")
    )
    # Kafka's broker has the new values a moment after its controller said yes.
    changed = {"log.cleaner.threads": "2", "message.max.bytes": "1048600"}
    yield Case(
        "followed",
        ApiKey.DESCRIBE_CONFIGS,
        4,
        described(4, "1", *changed),
        until=lambda answer: (
            {c["name"]: c["value"] for c in answer["results"][0]["configs"]} == changed
        ),
    )
    yield from every_version(
        ApiKey.DESCRIBE_CONFIGS,
        "the broker, changed",
        described(4, "1", *changed, include_synonyms=True),
    )
    legacy = k33.AlterConfigsRequest

    def replace(topic: str, configs: list[tuple[str, str | None]], only: bool = False) -> Any:
        return lambda _: legacy(validate_only=only, resources=[k33.AlterConfigsResource(resource_type=2, resource_name=topic,
            configs=[k33.AlterableConfig(name=n, value=v) for n, v in configs])])  # fmt: skip

    for label, build in {"replace": replace(EMPTY, [("segment.ms", "1000000")]), "to nothing": replace(EMPTY, []),
                         "bad": replace(EMPTY, [("segment.ms", "x")]), "unknown topic": replace("nowhere", [])}.items():  # fmt: skip
        yield from every_version(ApiKey.ALTER_CONFIGS, label, build)

    def grow(
        topic: str, count: int, *, assigned: list[list[int]] | None = None, only: bool = False
    ) -> Any:
        lists = (
            None
            if assigned is None
            else [k37.CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
        )
        return lambda _: k37.CreatePartitionsRequest(timeout_ms=10_000, validate_only=only,
            topics=[k37.CreatePartitionsTopic(name=topic, count=count, assignments=lists)])  # fmt: skip

    for version in range(4):
        yield Case("one more", ApiKey.CREATE_PARTITIONS, version, grow("by-default", 2 + version))
    for label, build in {"fewer": grow(TOPIC, 1), "as many": grow(TOPIC, 3), "none": grow(TOPIC, 0), "unknown": grow("nowhere", 9),
                         "to nobody": grow(TOPIC, 4, assigned=[[9]]), "too many lists": grow(TOPIC, 4, assigned=[[1], [1]]),
                         "only validate": grow(TOPIC, 5, only=True)}.items():  # fmt: skip
        yield from every_version(ApiKey.CREATE_PARTITIONS, label, build)

    # Logs of new partitions are made once the broker has heard of them.
    yield Case(
        "grown",
        ApiKey.DESCRIBE_LOG_DIRS,
        4,
        lambda _: k35.DescribeLogDirsRequest(topics=None),
        until=lambda answer: (
            ("by-default", 5)
            in {(t["name"], len(t["partitions"])) for r in answer["results"] for t in r["topics"]}
        ),
    )
    yield from every_version(
        ApiKey.DESCRIBE_LOG_DIRS, "all", lambda _: k35.DescribeLogDirsRequest(topics=None)
    )
    yield from every_version(ApiKey.DESCRIBE_LOG_DIRS, "one", lambda _: k35.DescribeLogDirsRequest(
        topics=[k35.DescribableLogDirTopic(topic=TOPIC, partitions=[0])]))  # fmt: skip
    acl = k29.DescribeAclsRequest
    yield from every_version(ApiKey.DESCRIBE_ACLS, "any", lambda _: acl(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1))  # fmt: skip
    yield from every_version(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, "all", lambda _: k48.DescribeClientQuotasRequest()
    )
    yield from every_version(ApiKey.DESCRIBE_CLIENT_QUOTAS, "of users", lambda _: k48.DescribeClientQuotasRequest(
        components=[k48.ComponentData(entity_type="user", match_type=2)]))  # fmt: skip
    for name, entity, key, value in _QUOTAS:
        request = k49.AlterClientQuotasRequest(
            entries=[
                k49.AlterClientQuotasRequestEntryData(
                    entity=[k49.EntityData(entity_type=k, entity_name=entity[k]) for k in entity],
                    ops=[k49.OpData(key=key, value=value)],
                )
            ],
            validate_only=True,
        )
        yield from every_version(ApiKey.ALTER_CLIENT_QUOTAS, name, lambda _, r=request: r)
    yield Case(
        "none under way",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        lambda _: k46.ListPartitionReassignmentsRequest(topics=None),
    )
    yield from every_version(
        ApiKey.LIST_TRANSACTIONS, "all", lambda _: k66.ListTransactionsRequest()
    )
    yield from every_version(
        ApiKey.LIST_TRANSACTIONS,
        "odd filter",
        lambda _: k66.ListTransactionsRequest(state_filters=["Odd"]),
    )
    yield from every_version(
        ApiKey.LIST_CONFIG_RESOURCES, "all", lambda _: k74.ListConfigResourcesRequest()
    )
    yield from every_version(
        ApiKey.LIST_CONFIG_RESOURCES,
        "topics",
        lambda _: k74.ListConfigResourcesRequest(resource_types=[2]),
        since=1,
    )
    yield from every_version(ApiKey.DESCRIBE_QUORUM, "cluster metadata", lambda _: k55.DescribeQuorumRequest(
        topics=[k55.DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[k55.DescribeQuorumRequestPartitionData(partition_index=0)])]))  # fmt: skip
    yield from every_version(ApiKey.DESCRIBE_QUORUM, "another topic", lambda _: k55.DescribeQuorumRequest(
        topics=[k55.DescribeQuorumRequestTopicData(topic_name=TOPIC, partitions=[k55.DescribeQuorumRequestPartitionData(partition_index=0)])]))  # fmt: skip

    def feature(name: str, level: int, kind: int = 1, only: bool = True) -> Any:
        return lambda _: k57.UpdateFeaturesRequest(timeout_ms=10_000, validate_only=only, feature_updates=[
            k57.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)])  # fmt: skip

    for label, build in {"same level": feature("metadata.version", 30), "unknown feature": feature("no.such", 1),
                         "too high": feature("metadata.version", 99), "down by upgrade": feature("group.version", 0),
                         "safe downgrade": feature("share.version", 0, 2)}.items():  # fmt: skip
        yield from every_version(ApiKey.UPDATE_FEATURES, label, build, since=1)


def leadership() -> Iterator[Case]:
    """Elections and moves of partitions that are fine, needless or impossible."""

    def elect(kind: int, *partitions: tuple[str, int]) -> Any:
        topics = [k43.TopicPartitions(topic=name, partitions=[index]) for name, index in partitions]
        return lambda _: k43.ElectLeadersRequest(
            election_type=kind, timeout_ms=10_000, topic_partitions=topics or None
        )

    for label, build in {"preferred, needless": elect(0, (TOPIC, 0)), "unknown topic": elect(0, ("nowhere", 0)),
                         "unknown partition": elect(0, (TOPIC, 99)), "negative partition": elect(0, (TOPIC, -1)),
                         "all": elect(0)}.items():  # fmt: skip
        yield from every_version(ApiKey.ELECT_LEADERS, label, build)
    for label, build in {"unclean, needless": elect(1, (TOPIC, 0)), "all uncleanly": elect(1), "no such kind": elect(7, (TOPIC, 0))}.items():  # fmt: skip
        yield from every_version(ApiKey.ELECT_LEADERS, label, build, since=1)

    def move(topic: str, *moves: tuple[int, list[int] | None]) -> Any:
        wanted = [k45.ReassignablePartition(partition_index=i, replicas=ids) for i, ids in moves]
        return lambda _: k45.AlterPartitionReassignmentsRequest(
            timeout_ms=10_000, topics=[k45.ReassignableTopic(name=topic, partitions=wanted)]
        )

    for label, build in {"where it is": move(TOPIC, (0, [1])), "to nobody": move(TOPIC, (0, [])), "to a stranger": move(TOPIC, (0, [9])),
                         "to a stranger too": move(TOPIC, (0, [1, 9])), "twice to one": move(TOPIC, (0, [1, 1])), "to a negative": move(TOPIC, (0, [-1])),
                         "nothing to cancel": move(TOPIC, (0, None)), "no such topic": move("nowhere", (0, [1])), "no such partition": move(TOPIC, (99, [1])),
                         "asked twice": move(TOPIC, (0, [1]), (0, None)), "some fine": move(TOPIC, (0, [1]), (1, [9])), "no partitions": move(TOPIC)}.items():  # fmt: skip
        yield from every_version(ApiKey.ALTER_PARTITION_REASSIGNMENTS, label, build)
    strict = move(TOPIC, (0, [1]))

    def forbid(world: World) -> Any:
        request = strict(world)
        request.allow_replication_factor_change = False
        return request

    yield Case("the same size", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, forbid)
    named = [k46.ListPartitionReassignmentsTopics(name=n, partition_indexes=[0, 99]) for n in (TOPIC, "nowhere")]  # fmt: skip
    yield Case("by name", ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, lambda _: k46.ListPartitionReassignmentsRequest(topics=named))  # fmt: skip
    for broker in (9, -1):
        yield Case(f"broker {broker}", ApiKey.UNREGISTER_BROKER, 0, lambda _, n=broker: k64.UnregisterBrokerRequest(broker_id=n))  # fmt: skip

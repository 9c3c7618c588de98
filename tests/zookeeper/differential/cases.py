"""The requests to a broker in ZooKeeper mode: those to a node of KRaft mode, and what they lack.

Kafka 3.9 has no versions of Kafka 4: a case in such a version is sent in the last one of 3.9,
unless it is sent in an older one anyway.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import k04_leader_and_isr as k04
from sparkraft.protocol.messages import k05_stop_replica as k05
from sparkraft.protocol.messages import k06_update_metadata as k06
from sparkraft.protocol.messages import k07_controlled_shutdown as k07
from sparkraft.protocol.messages import k30_create_acls as k30
from sparkraft.protocol.messages import k31_delete_acls as k31
from sparkraft.protocol.messages import k34_alter_replica_log_dirs as k34
from sparkraft.protocol.messages import k38_create_delegation_token as k38
from sparkraft.protocol.messages import k39_renew_delegation_token as k39
from sparkraft.protocol.messages import k40_expire_delegation_token as k40
from sparkraft.protocol.messages import k41_describe_delegation_token as k41
from sparkraft.protocol.messages import k48_describe_client_quotas as k48
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from sparkraft.protocol.messages import k56_alter_partition as k56
from sparkraft.protocol.messages import k57_update_features as k57
from sparkraft.protocol.messages import k67_allocate_producer_ids as k67
from sparkraft.server.api.registry import served_apis
from tests.interop.differential.admin_cases import administration, leadership, scram_users
from tests.interop.differential.building import TOPIC
from tests.interop.differential.cases import broken_frames, handshakes
from tests.interop.differential.consumer_group_cases import consumer_groups
from tests.interop.differential.failover_cases import failovers
from tests.interop.differential.group_cases import groups
from tests.interop.differential.nonsense_cases import absurd_transactions
from tests.interop.differential.nonsense_group_cases import absurd_groups
from tests.interop.differential.record_cases import produces, reads
from tests.interop.differential.topic_cases import creations, deletions, metadata
from tests.interop.differential.transaction_cases import transactions
from tests.interop.differential.transactional_produce_cases import transactional_produces
from tests.interop.differential.world import Case
from tests.zookeeper.kafka_versions import KAFKA_3_9

STRANGER = 99
"""Id of a broker that is not registered."""

SERVED = {
    api.key: range(api.version_range()[0], KAFKA_3_9[api.key][-1] + 1)
    for api in served_apis(controller_listener=False, zookeeper=True)
    if api.key in KAFKA_3_9
}
"""Key → versions that Kafka 3.9 and ours serve."""


def _every(key: ApiKey, label: str, message: Message) -> Iterator[Case]:
    """The same request in each version that both serve."""
    for version in SERVED[key]:
        yield Case(label, key, version, lambda _: message)


def access_lists() -> Iterator[Case]:
    """Access control entries, without an authorizer."""
    rule = {"resource_type": 2, "resource_name": "t", "operation": 3, "permission_type": 3}
    creation = k30.AclCreation(**rule, principal="User:a", host="*")
    yield from _every(ApiKey.CREATE_ACLS, "one", k30.CreateAclsRequest(creations=[creation]))
    yield from _every(ApiKey.CREATE_ACLS, "none", k30.CreateAclsRequest())
    anything = k31.DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)
    yield from _every(ApiKey.DELETE_ACLS, "all", k31.DeleteAclsRequest(filters=[anything]))


def tokens() -> Iterator[Case]:
    """Delegation tokens, without a secret."""
    create = k38.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    yield from _every(ApiKey.CREATE_DELEGATION_TOKEN, "one", create)
    renew = k39.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1)
    yield from _every(ApiKey.RENEW_DELEGATION_TOKEN, "unknown", renew)
    expire = k40.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1)
    yield from _every(ApiKey.EXPIRE_DELEGATION_TOKEN, "unknown", expire)
    for label, owners in {"all": None, "of nobody": []}.items():
        request = k41.DescribeDelegationTokenRequest(owners=owners)
        yield from _every(ApiKey.DESCRIBE_DELEGATION_TOKEN, label, request)


def log_directories() -> Iterator[Case]:
    """Replicas are to move to directories that do not exist."""
    topics = [k34.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in (TOPIC, "nowhere")]
    request = k34.AlterReplicaLogDirsRequest(
        dirs=[k34.AlterReplicaLogDir(path="/nowhere", topics=topics)]
    )
    yield from _every(ApiKey.ALTER_REPLICA_LOG_DIRS, "no directory", request)
    empty = k34.AlterReplicaLogDirsRequest()
    yield from _every(ApiKey.ALTER_REPLICA_LOG_DIRS, "nothing", empty)


_QUOTAS: dict[str, tuple[dict[str, str | None], str, float | None]] = {
    "a user": ({"user": "u"}, "producer_byte_rate", 1024.0),
    "a user's client": ({"user": "u", "client-id": "c"}, "consumer_byte_rate", 2048.0),
    "all clients": ({"client-id": None}, "consumer_byte_rate", 1e12),
    "a name with blanks": ({"user": "CN=a b,O=*"}, "controller_mutation_rate", 3.5),
    "an address": ({"ip": "10.0.0.1"}, "connection_creation_rate", 10.0),
    "a host": ({"ip": "no.such.host.invalid"}, "connection_creation_rate", 10.0),
    "no such key": ({"user": "u"}, "no_such_key", 1.0),
    "removed": ({"user": "u"}, "producer_byte_rate", None),
    "removed twice": ({"user": "u"}, "producer_byte_rate", None),
}


def quotas() -> Iterator[Case]:
    """Quotas that are set, described and removed."""
    for label, (entity, key, value) in _QUOTAS.items():
        operation = k49.OpData(key=key, value=value or 0.0, remove=value is None)
        parts = [k49.EntityData(entity_type=kind, entity_name=entity[kind]) for kind in entity]
        entry = k49.AlterClientQuotasRequestEntryData(entity=parts, ops=[operation])
        request = k49.AlterClientQuotasRequest(entries=[entry])
        yield from _every(ApiKey.ALTER_CLIENT_QUOTAS, label, request)
    settled = k48.DescribeClientQuotasRequest(
        components=[k48.ComponentData(entity_type="user", match_type=0, match="u")], strict=True
    )
    # Kafka reads quotas from ZooKeeper; our image follows a moment later.
    yield Case(
        "settled",
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        lambda _: settled,
        until=lambda answer: answer["entries"] == [],
    )
    for strict in (False, True):
        for label, components in {
            "of a user": [("user", 0, "u")],
            "of all users": [("user", 2, None)],
            "of default clients": [("client-id", 1, None)],
            "of an address": [("ip", 0, "10.0.0.1")],
            "of users and addresses": [("user", 2, None), ("ip", 2, None)],
            "of an unknown type": [("group", 2, None)],
            "everything": [],
        }.items():
            parts_of = [
                k48.ComponentData(entity_type=kind, match_type=how, match=name)
                for kind, how, name in components
            ]
            described = k48.DescribeClientQuotasRequest(components=parts_of, strict=strict)
            what = f"{label}, {'strictly' if strict else 'also others'}"
            yield from _every(ApiKey.DESCRIBE_CLIENT_QUOTAS, what, described)


def features() -> Iterator[Case]:
    """Features, of which Kafka 3.9 has none in this mode."""
    for label, (level, allows) in {
        "raised": (1, False),
        "deleted": (0, True),
        "deleted without leave": (0, False),
    }.items():
        update = k57.FeatureUpdateKey(
            feature="no.such", max_version_level=level, allow_downgrade=allows, upgrade_type=1
        )
        request = k57.UpdateFeaturesRequest(feature_updates=[update])
        for version in SERVED[ApiKey.UPDATE_FEATURES]:
            yield Case(label, ApiKey.UPDATE_FEATURES, version, lambda _, r=request: r)
    yield from _every(ApiKey.UPDATE_FEATURES, "nothing", k57.UpdateFeaturesRequest())


def of_brokers() -> Iterator[Case]:
    """Requests of brokers to the controller, for strangers and old registrations."""
    for broker, epoch in ((STRANGER, -1), (STRANGER, 1), (1, 0)):
        which = f"broker {broker} in epoch {epoch}"
        stops = k07.ControlledShutdownRequest(broker_id=broker, broker_epoch=epoch)
        for version in SERVED[ApiKey.CONTROLLED_SHUTDOWN]:
            if broker == STRANGER or version >= 2:  # else the only broker would be shut down
                yield Case(which, ApiKey.CONTROLLED_SHUTDOWN, version, lambda _, r=stops: r)
        ids = k67.AllocateProducerIdsRequest(broker_id=broker, broker_epoch=epoch)
        yield from _every(ApiKey.ALLOCATE_PRODUCER_IDS, which, ids)
        partition = k56.AlterPartitionRequestPartitionData(partition_index=0, new_isr=[1])
        topic = k56.AlterPartitionRequestTopicData(topic_name=TOPIC, partitions=[partition])
        isr = k56.AlterPartitionRequest(broker_id=broker, broker_epoch=epoch, topics=[topic])
        yield from _every(ApiKey.ALTER_PARTITION, which, isr)


def of_old_controllers() -> Iterator[Case]:
    """Requests of a former controller, and for an earlier registration."""
    for label, (controller_epoch, broker_epoch) in {
        "of an old controller": (0, -1),
        "for an earlier registration": (1, 0),
    }.items():
        sender = {
            "controller_id": STRANGER,
            "controller_epoch": controller_epoch,
            "broker_epoch": broker_epoch,
        }
        for key, message, epochs_from in (
            (ApiKey.LEADER_AND_ISR, k04.LeaderAndIsrRequest(**sender), 2),
            (ApiKey.STOP_REPLICA, k05.StopReplicaRequest(**sender), 1),
            (ApiKey.UPDATE_METADATA, k06.UpdateMetadataRequest(**sender), 5),
        ):
            for version in SERVED[key]:
                if broker_epoch < 0 or version >= epochs_from:
                    yield Case(label, key, version, lambda _, r=message: r)


def fitting(cases: list[Case]) -> Iterator[Case]:
    """Those in versions that both serve; others in the last one, unless they are in it anyway."""
    present = {(case.key, case.label) for case in cases if _is_served(case)}
    for case in cases:
        if _is_served(case):
            yield case
        elif case.key in SERVED and (case.key, case.label) not in present:
            yield replace(case, version=SERVED[case.key][-1])


def _is_served(case: Case) -> bool:
    return case.key in SERVED and case.version in SERVED[case.key]


def is_comparable(case: Case) -> bool:
    """Whether both kinds are in the same state after it.

    While a transaction is open in a partition, Kafka 3.9 verifies nothing, and appends what is of a
    later epoch; the markers of the transaction are then of an earlier one, and refused for good.
    Kafka 4 and ours compare the epochs. Kafka 3.9 also creates topics without any live broker,
    deletes a topic that a request names twice, and adds partitions to transactions in versions that
    are reserved for brokers.
    """
    of_producers = case.key in (ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT)
    never_ends = of_producers and "wrong epoch" in case.label
    is_waited_for = case.key is ApiKey.CONSUMER_GROUP_HEARTBEAT and case.until is not None
    return not (never_ends or is_waited_for or (case.key, case.label) in _STATES_DIFFER)


_STATES_DIFFER = {
    (ApiKey.CREATE_TOPICS, "assigned to nobody"),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "at level 0"),
    (ApiKey.DESCRIBE_TRANSACTIONS, "after level 0"),
    (ApiKey.DELETE_TOPICS, "twice"),
}
"""Labels of cases; `is_comparable` has the reasons."""


def zookeeper_cases() -> list[Case]:
    """The whole conversation, in order; transaction.version is 0."""
    parts = (
        handshakes, creations, metadata, produces, reads, groups, partial(transactions, 0),
        partial(transactional_produces, 0), consumer_groups, administration, scram_users,
        leadership, access_lists, tokens, log_directories, quotas, features, of_brokers,
        of_old_controllers,
        deletions, broken_frames, absurd_transactions, absurd_groups, partial(failovers, 0),
    )  # fmt: skip
    return list(fitting([case for part in parts for case in part() if is_comparable(case)]))

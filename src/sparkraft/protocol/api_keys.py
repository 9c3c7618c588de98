"""Which requests Kafka 4.3 has, and a few of our own: their keys, versions and listeners.

Keys 4 to 7 are those of Kafka 3.9's ZooKeeper mode, on listener "zookeeper"; no KRaft node serves
them.

Our own have keys from `OWN_KEYS_FROM` on, far above Kafka's, and are never advertised in
ApiVersions: no Kafka client or node may stumble over them.

Invariant: importing this module loads no message; `request_class` and `response_class` do.
Not here: which of them we serve (`sparkraft.server.api.registry`).
"""

from enum import IntEnum
from importlib import import_module
from typing import Final, NamedTuple, cast

from sparkraft.protocol.declare import Message

OWN_KEYS_FROM: Final = 10_000
"""Keys from here on are ours; Kafka's grow by a few a year."""


class ApiKey(IntEnum):
    """Kafka's API keys (Kafka 4 removed 4 to 7 with ZooKeeper), and ours."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    DESCRIBE_ELECTIONS = 10_000
    RESIGN_CONTROLLER = 10_001
    DESCRIBE_HISTORY = 10_002
    DESCRIBE_ISR_CHANGES = 10_003
    DESCRIBE_GROUP_DECISIONS = 10_004
    DESCRIBE_IMAGE = 10_005
    DESCRIBE_METADATA_LOG = 10_006
    DESCRIBE_CONTROLLER_DECISIONS = 10_007


class ApiInfo(NamedTuple):
    """One API key.

    Args:
        name: Kafka's name, such as "OffsetForLeaderEpoch".
        flexible_from: first version with tagged fields, None if there is none.
        listeners: "broker", "controller" or both; "zookeeper" for keys of ZooKeeper mode.
        latest_version_unstable: whether Kafka hides `max_version` unless
            `unstable.api.versions.enable` is set.
        module: the module that declares its messages, below `sparkraft.protocol.messages`.
    """

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    flexible_from: int | None
    listeners: frozenset[str]
    latest_version_unstable: bool
    module: str

    @property
    def is_own(self) -> bool:
        """Whether it is ours and not Kafka's."""
        return self.key >= OWN_KEYS_FROM

    @property
    def is_kafka_4(self) -> bool:
        """Whether Kafka 4.3 has it: neither ours nor of ZooKeeper mode."""
        return not self.is_own and "zookeeper" not in self.listeners

    @property
    def kafka_4_min_version(self) -> int:
        """The lowest version that Kafka 4.3 has; lower ones are for ZooKeeper mode only."""
        return _KAFKA_4_MIN.get(self.key, self.min_version)

    def request_class(self) -> type[Message]:
        """The request's class; loads its module."""
        return self._load(self.name + "Request")

    def response_class(self) -> type[Message]:
        """The response's class; loads its module."""
        return self._load(self.name + "Response")

    def _load(self, name: str) -> type[Message]:
        module = import_module(f"sparkraft.protocol.messages.{self.module}")
        return cast("type[Message]", getattr(module, name))


_KAFKA_4_MIN = {ApiKey.WRITE_TXN_MARKERS: 1, ApiKey.ALTER_PARTITION: 2}
"""Keys of which brokers in ZooKeeper mode use versions that Kafka 4 has removed."""

_BROKER = frozenset({"broker"})
_CONTROLLER = frozenset({"controller"})
_BOTH = frozenset({"broker", "controller"})
_ZOOKEEPER = frozenset({"zookeeper"})

_TABLE: Final = (
    (ApiKey.PRODUCE, "Produce", 3, 13, 9, _BROKER, False, "k00_produce"),
    (ApiKey.FETCH, "Fetch", 4, 18, 12, _BOTH, False, "k01_fetch"),
    (ApiKey.LIST_OFFSETS, "ListOffsets", 1, 11, 6, _BROKER, False, "k02_list_offsets"),
    (ApiKey.METADATA, "Metadata", 0, 13, 9, _BROKER, False, "k03_metadata"),
    (ApiKey.LEADER_AND_ISR, "LeaderAndIsr", 0, 7, 4, _ZOOKEEPER, False, "k04_leader_and_isr"),
    (ApiKey.STOP_REPLICA, "StopReplica", 0, 4, 2, _ZOOKEEPER, False, "k05_stop_replica"),
    (ApiKey.UPDATE_METADATA, "UpdateMetadata", 0, 8, 6, _ZOOKEEPER, False, "k06_update_metadata"),
    (
        ApiKey.CONTROLLED_SHUTDOWN,
        "ControlledShutdown",
        0,
        3,
        3,
        _ZOOKEEPER,
        False,
        "k07_controlled_shutdown",
    ),
    (ApiKey.OFFSET_COMMIT, "OffsetCommit", 2, 10, 8, _BROKER, False, "k08_offset_commit"),
    (ApiKey.OFFSET_FETCH, "OffsetFetch", 1, 10, 6, _BROKER, False, "k09_offset_fetch"),
    (ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, 3, _BROKER, False, "k10_find_coordinator"),
    (ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, 6, _BROKER, False, "k11_join_group"),
    (ApiKey.HEARTBEAT, "Heartbeat", 0, 4, 4, _BROKER, False, "k12_heartbeat"),
    (ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, 4, _BROKER, False, "k13_leave_group"),
    (ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, 4, _BROKER, False, "k14_sync_group"),
    (ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 5, _BROKER, False, "k15_describe_groups"),
    (ApiKey.LIST_GROUPS, "ListGroups", 0, 5, 3, _BROKER, False, "k16_list_groups"),
    (ApiKey.SASL_HANDSHAKE, "SaslHandshake", 0, 1, None, _BOTH, False, "k17_sasl_handshake"),
    (ApiKey.API_VERSIONS, "ApiVersions", 0, 4, 3, _BOTH, False, "k18_api_versions"),
    (ApiKey.CREATE_TOPICS, "CreateTopics", 2, 7, 5, _BOTH, False, "k19_create_topics"),
    (ApiKey.DELETE_TOPICS, "DeleteTopics", 1, 6, 4, _BOTH, False, "k20_delete_topics"),
    (ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, 2, _BROKER, False, "k21_delete_records"),
    (ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 6, 2, _BROKER, True, "k22_init_producer_id"),
    (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        "OffsetForLeaderEpoch",
        2,
        4,
        4,
        _BROKER,
        False,
        "k23_offset_for_leader_epoch",
    ),
    (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        "AddPartitionsToTxn",
        0,
        5,
        3,
        _BROKER,
        False,
        "k24_add_partitions_to_txn",
    ),
    (
        ApiKey.ADD_OFFSETS_TO_TXN,
        "AddOffsetsToTxn",
        0,
        4,
        3,
        _BROKER,
        False,
        "k25_add_offsets_to_txn",
    ),
    (ApiKey.END_TXN, "EndTxn", 0, 5, 3, _BROKER, False, "k26_end_txn"),
    (ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 0, 2, 1, _BROKER, False, "k27_write_txn_markers"),
    (ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 3, _BROKER, False, "k28_txn_offset_commit"),
    (ApiKey.DESCRIBE_ACLS, "DescribeAcls", 1, 3, 2, _BOTH, False, "k29_describe_acls"),
    (ApiKey.CREATE_ACLS, "CreateAcls", 1, 3, 2, _BOTH, False, "k30_create_acls"),
    (ApiKey.DELETE_ACLS, "DeleteAcls", 1, 3, 2, _BOTH, False, "k31_delete_acls"),
    (ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 4, _BOTH, False, "k32_describe_configs"),
    (ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, 2, _BOTH, False, "k33_alter_configs"),
    (
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        "AlterReplicaLogDirs",
        1,
        2,
        2,
        _BROKER,
        False,
        "k34_alter_replica_log_dirs",
    ),
    (ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 5, 2, _BROKER, False, "k35_describe_log_dirs"),
    (ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2, _BOTH, False, "k36_sasl_authenticate"),
    (ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 2, _BOTH, False, "k37_create_partitions"),
    (
        ApiKey.CREATE_DELEGATION_TOKEN,
        "CreateDelegationToken",
        1,
        3,
        2,
        _BOTH,
        False,
        "k38_create_delegation_token",
    ),
    (
        ApiKey.RENEW_DELEGATION_TOKEN,
        "RenewDelegationToken",
        1,
        2,
        2,
        _BOTH,
        False,
        "k39_renew_delegation_token",
    ),
    (
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        "ExpireDelegationToken",
        1,
        2,
        2,
        _BOTH,
        False,
        "k40_expire_delegation_token",
    ),
    (
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        "DescribeDelegationToken",
        1,
        3,
        2,
        _BOTH,
        False,
        "k41_describe_delegation_token",
    ),
    (ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, 2, _BROKER, False, "k42_delete_groups"),
    (ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, 2, _BOTH, False, "k43_elect_leaders"),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "IncrementalAlterConfigs",
        0,
        1,
        1,
        _BOTH,
        False,
        "k44_incremental_alter_configs",
    ),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        "AlterPartitionReassignments",
        0,
        1,
        0,
        _BOTH,
        False,
        "k45_alter_partition_reassignments",
    ),
    (
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        "ListPartitionReassignments",
        0,
        0,
        0,
        _BOTH,
        False,
        "k46_list_partition_reassignments",
    ),
    (ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0, None, _BROKER, False, "k47_offset_delete"),
    (
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas",
        0,
        1,
        1,
        _BROKER,
        False,
        "k48_describe_client_quotas",
    ),
    (
        ApiKey.ALTER_CLIENT_QUOTAS,
        "AlterClientQuotas",
        0,
        1,
        1,
        _BOTH,
        False,
        "k49_alter_client_quotas",
    ),
    (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "DescribeUserScramCredentials",
        0,
        0,
        0,
        _BOTH,
        False,
        "k50_describe_user_scram_credentials",
    ),
    (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        "AlterUserScramCredentials",
        0,
        0,
        0,
        _BOTH,
        False,
        "k51_alter_user_scram_credentials",
    ),
    (ApiKey.VOTE, "Vote", 0, 2, 0, _CONTROLLER, False, "k52_vote"),
    (
        ApiKey.BEGIN_QUORUM_EPOCH,
        "BeginQuorumEpoch",
        0,
        1,
        1,
        _CONTROLLER,
        False,
        "k53_begin_quorum_epoch",
    ),
    (
        ApiKey.END_QUORUM_EPOCH,
        "EndQuorumEpoch",
        0,
        1,
        1,
        _CONTROLLER,
        False,
        "k54_end_quorum_epoch",
    ),
    (ApiKey.DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0, _BOTH, False, "k55_describe_quorum"),
    (ApiKey.ALTER_PARTITION, "AlterPartition", 0, 3, 0, _CONTROLLER, False, "k56_alter_partition"),
    (ApiKey.UPDATE_FEATURES, "UpdateFeatures", 0, 2, 0, _BOTH, False, "k57_update_features"),
    (ApiKey.ENVELOPE, "Envelope", 0, 0, 0, _CONTROLLER, False, "k58_envelope"),
    (ApiKey.FETCH_SNAPSHOT, "FetchSnapshot", 0, 1, 0, _CONTROLLER, False, "k59_fetch_snapshot"),
    (ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0, _BOTH, False, "k60_describe_cluster"),
    (
        ApiKey.DESCRIBE_PRODUCERS,
        "DescribeProducers",
        0,
        0,
        0,
        _BROKER,
        False,
        "k61_describe_producers",
    ),
    (
        ApiKey.BROKER_REGISTRATION,
        "BrokerRegistration",
        0,
        4,
        0,
        _CONTROLLER,
        False,
        "k62_broker_registration",
    ),
    (
        ApiKey.BROKER_HEARTBEAT,
        "BrokerHeartbeat",
        0,
        2,
        0,
        _CONTROLLER,
        False,
        "k63_broker_heartbeat",
    ),
    (ApiKey.UNREGISTER_BROKER, "UnregisterBroker", 0, 0, 0, _BOTH, False, "k64_unregister_broker"),
    (
        ApiKey.DESCRIBE_TRANSACTIONS,
        "DescribeTransactions",
        0,
        0,
        0,
        _BROKER,
        False,
        "k65_describe_transactions",
    ),
    (
        ApiKey.LIST_TRANSACTIONS,
        "ListTransactions",
        0,
        2,
        0,
        _BROKER,
        False,
        "k66_list_transactions",
    ),
    (
        ApiKey.ALLOCATE_PRODUCER_IDS,
        "AllocateProducerIds",
        0,
        0,
        0,
        _CONTROLLER,
        False,
        "k67_allocate_producer_ids",
    ),
    (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat",
        0,
        1,
        0,
        _BROKER,
        False,
        "k68_consumer_group_heartbeat",
    ),
    (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        "ConsumerGroupDescribe",
        0,
        1,
        0,
        _BROKER,
        False,
        "k69_consumer_group_describe",
    ),
    (
        ApiKey.CONTROLLER_REGISTRATION,
        "ControllerRegistration",
        0,
        0,
        0,
        _CONTROLLER,
        False,
        "k70_controller_registration",
    ),
    (
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        "GetTelemetrySubscriptions",
        0,
        0,
        0,
        _BROKER,
        False,
        "k71_get_telemetry_subscriptions",
    ),
    (ApiKey.PUSH_TELEMETRY, "PushTelemetry", 0, 0, 0, _BROKER, False, "k72_push_telemetry"),
    (
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        "AssignReplicasToDirs",
        0,
        0,
        0,
        _CONTROLLER,
        False,
        "k73_assign_replicas_to_dirs",
    ),
    (
        ApiKey.LIST_CONFIG_RESOURCES,
        "ListConfigResources",
        0,
        1,
        0,
        _BROKER,
        False,
        "k74_list_config_resources",
    ),
    (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        "DescribeTopicPartitions",
        0,
        0,
        0,
        _BROKER,
        False,
        "k75_describe_topic_partitions",
    ),
    (
        ApiKey.SHARE_GROUP_HEARTBEAT,
        "ShareGroupHeartbeat",
        1,
        1,
        0,
        _BROKER,
        False,
        "k76_share_group_heartbeat",
    ),
    (
        ApiKey.SHARE_GROUP_DESCRIBE,
        "ShareGroupDescribe",
        1,
        1,
        0,
        _BROKER,
        False,
        "k77_share_group_describe",
    ),
    (ApiKey.SHARE_FETCH, "ShareFetch", 1, 2, 0, _BROKER, False, "k78_share_fetch"),
    (
        ApiKey.SHARE_ACKNOWLEDGE,
        "ShareAcknowledge",
        1,
        2,
        0,
        _BROKER,
        False,
        "k79_share_acknowledge",
    ),
    (ApiKey.ADD_RAFT_VOTER, "AddRaftVoter", 0, 1, 0, _BOTH, False, "k80_add_raft_voter"),
    (ApiKey.REMOVE_RAFT_VOTER, "RemoveRaftVoter", 0, 0, 0, _BOTH, False, "k81_remove_raft_voter"),
    (
        ApiKey.UPDATE_RAFT_VOTER,
        "UpdateRaftVoter",
        0,
        0,
        0,
        _CONTROLLER,
        False,
        "k82_update_raft_voter",
    ),
    (
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        "InitializeShareGroupState",
        0,
        0,
        0,
        _BROKER,
        False,
        "k83_initialize_share_group_state",
    ),
    (
        ApiKey.READ_SHARE_GROUP_STATE,
        "ReadShareGroupState",
        0,
        0,
        0,
        _BROKER,
        False,
        "k84_read_share_group_state",
    ),
    (
        ApiKey.WRITE_SHARE_GROUP_STATE,
        "WriteShareGroupState",
        0,
        1,
        0,
        _BROKER,
        False,
        "k85_write_share_group_state",
    ),
    (
        ApiKey.DELETE_SHARE_GROUP_STATE,
        "DeleteShareGroupState",
        0,
        0,
        0,
        _BROKER,
        False,
        "k86_delete_share_group_state",
    ),
    (
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        "ReadShareGroupStateSummary",
        0,
        1,
        0,
        _BROKER,
        False,
        "k87_read_share_group_state_summary",
    ),
    (
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        "StreamsGroupHeartbeat",
        0,
        0,
        0,
        _BROKER,
        False,
        "k88_streams_group_heartbeat",
    ),
    (
        ApiKey.STREAMS_GROUP_DESCRIBE,
        "StreamsGroupDescribe",
        0,
        0,
        0,
        _BROKER,
        False,
        "k89_streams_group_describe",
    ),
    (
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        "DescribeShareGroupOffsets",
        0,
        1,
        0,
        _BROKER,
        False,
        "k90_describe_share_group_offsets",
    ),
    (
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        "AlterShareGroupOffsets",
        0,
        0,
        0,
        _BROKER,
        False,
        "k91_alter_share_group_offsets",
    ),
    (
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        "DeleteShareGroupOffsets",
        0,
        0,
        0,
        _BROKER,
        False,
        "k92_delete_share_group_offsets",
    ),
    (
        ApiKey.DESCRIBE_ELECTIONS,
        "DescribeElections",
        0,
        0,
        0,
        _BOTH,
        False,
        "k10000_describe_elections",
    ),
    (
        ApiKey.RESIGN_CONTROLLER,
        "ResignController",
        0,
        0,
        0,
        _BOTH,
        False,
        "k10001_resign_controller",
    ),
    (
        ApiKey.DESCRIBE_HISTORY,
        "DescribeHistory",
        0,
        0,
        0,
        _BOTH,
        False,
        "k10002_describe_history",
    ),
    (
        ApiKey.DESCRIBE_ISR_CHANGES,
        "DescribeIsrChanges",
        0,
        0,
        0,
        _BROKER,
        False,
        "k10003_describe_isr_changes",
    ),
    (
        ApiKey.DESCRIBE_GROUP_DECISIONS,
        "DescribeGroupDecisions",
        0,
        0,
        0,
        _BROKER,
        False,
        "k10004_describe_group_decisions",
    ),
    (
        ApiKey.DESCRIBE_IMAGE,
        "DescribeImage",
        0,
        0,
        0,
        _BOTH,
        False,
        "k10005_describe_image",
    ),
    (
        ApiKey.DESCRIBE_METADATA_LOG,
        "DescribeMetadataLog",
        0,
        0,
        0,
        _BOTH,
        False,
        "k10006_describe_metadata_log",
    ),
    (
        ApiKey.DESCRIBE_CONTROLLER_DECISIONS,
        "DescribeControllerDecisions",
        0,
        0,
        0,
        _ZOOKEEPER,
        False,
        "k10007_describe_controller_decisions",
    ),
)

API_INFO: Final[dict[ApiKey, ApiInfo]] = {row[0]: ApiInfo(*row) for row in _TABLE}
"""Every API key of Kafka 4.3, and ours."""

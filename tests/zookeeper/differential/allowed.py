"""Where our answers in ZooKeeper mode may differ from those of Kafka 3.9, and why.

A line under test reads `API vN: case | path: Kafka …, we …`. Configs have their names in the path.
"""

import re

from tests.interop.differential.allowed import Allowed

_LATER = (
    "group.consumer.assignors", "group.coordinator.append.linger.ms",
    "group.coordinator.rebalance.protocols", "group.coordinator.threads",
    "group.share.partition.max.record.locks", "metric.reporters",
    "num.recovery.threads.per.data.dir", "process.roles",
    "remote.log.manager.copier.thread.pool.size", "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.thread.pool.size", "remote.log.reader.threads",
    "sasl.oauthbearer.expected.audience",
)  # fmt: skip
"""Keys of brokers with another default, or another way to change them, in Kafka 4.3."""

_LATER_KEYS = "|".join(map(re.escape, _LATER))

ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        re.compile(r"^ApiVersions v\d: .* \| \.apiKeys\.\d+(\.m(in|ax)Version)?: "),
        "docs/ZOOKEEPER.md lists what only Kafka 3.9 serves; ours end with those of Kafka 4.3.",
    ),
    Allowed(
        re.compile(r"rrorMessage: Kafka None, we 'a sentence'$"),
        "If Kafka gives a bare code, we give the reason as well; clients show the text to people.",
    ),
    Allowed(
        re.compile(
            r"\.configs\.message\.(downconversion\.enable|format\.version|timestamp\.diffe)"
        ),
        "Configs of topics that Kafka 4 has removed.",
    ),
    Allowed(
        re.compile(r"\.configs\.message\.timestamp\.after\.max\.ms\.synonyms\[1\]\.value: "),
        "The default is that of Kafka 4 (KIP-1030); both are configured with the same value.",
    ),
    Allowed(
        re.compile(
            r"^DescribeConfigs v\d: the broker \| .*: Kafka ('absent', we|\{.*, we 'absent')"
        ),
        "Keys of Kafka 4.3 only, and those of Kafka 3.9 that have no effect here, or are not set.",
    ),
    Allowed(
        re.compile(r"^DescribeConfigs v\d: .*\.configType: Kafka \d, we \d$"),
        "Kafka 4 has given some keys another type, such as that of lists.",
    ),
    Allowed(
        re.compile(rf"^DescribeConfigs v\d: the broker \| .*\.configs\.({_LATER_KEYS})\."),
        "Defaults of Kafka 4.3.",
    ),
    Allowed(
        re.compile(r"^(CreateTopics v7: same name|AddPartitionsToTxn v\d: one place) twice \| "),
        "What a request names twice has one result.",
    ),
    Allowed(
        re.compile(r"^AlterPartitionReassignments v0: (asked twice|no partitions) \| "),
        "As in Kafka 4, there is a result for each topic and partition of the request.",
    ),
    Allowed(
        re.compile(r"\.transactionStartTimeMs: Kafka 'a time', we -1$"),
        "Kafka 3.9 keeps the start of a transaction that has ended; Kafka 4 does not.",
    ),
    Allowed(
        re.compile(r"^ListTransactions v1: long ones \| "),
        "It selects by the start, which Kafka 3.9 keeps.",
    ),
    Allowed(
        re.compile(r"^Fetch v1[67]: as replica [17] \| \.nodeEndpoints: "),
        "As in Kafka 4, followers are not sent addresses.",
    ),
    Allowed(
        re.compile(r"^DescribeGroups v\d: operations \| .*Operations: Kafka 328, we 3400$"),
        "As in Kafka 4, the operations on a group include those on its configs.",
    ),
    Allowed(
        re.compile(r"^DescribeLogDirs v\d: .*\.topics\[0\]\.partitions\[\d\]\.partitionSize: "),
        "Groups are written in the batches of Kafka 4's coordinator.",
    ),
    Allowed(
        re.compile(r"^Produce v9: no records \| answer: Kafka 'no answer in time'"),
        "Kafka never answers a partition without records and leaves the client to its timeout.",
    ),
    Allowed(
        re.compile(
            r"^IncrementalAlterConfigs v\d: (bad operation|no log directory.*) \| .*, we 42$"
        ),
        "Kafka trips over an unknown operation, and does not know cordoned.log.dirs.",
    ),
    Allowed(
        re.compile(
            r"^DescribeClientQuotas v\d: of users \| |^AlterClientQuotas v\d: not positive \| "
        ),
        "As in Kafka 4, a name beside `any` and quotas of 0 are an INVALID_REQUEST.",
    ),
    Allowed(
        re.compile(r"^ElectLeaders v\d: no such kind \| .*rrorCode: Kafka -1, we (0|84)$"),
        "Kafka trips over an unknown kind of election (UNKNOWN_SERVER_ERROR).",
    ),
    Allowed(
        re.compile(r"^Produce v\d+: nonsense: (no producer|no id|the smallest) \| "),
        "Kafka appends transactional batches without a producer id, in no transaction.",
    ),
    Allowed(
        re.compile(
            r"^WriteTxnMarkers v\d: nonsense: (no producer|no epoch) \| .*: Kafka -1, we 42$"
        ),
        "Kafka trips over them (UNKNOWN_SERVER_ERROR); it is an INVALID_REQUEST.",
    ),
    Allowed(
        re.compile(r"^TxnOffsetCommit v\d: moved: older epoch \| .*: Kafka -1, we 47$"),
        "Kafka 3.9 does not translate the error of the verification.",
    ),
    Allowed(
        re.compile(r"^Produce v\d+: moved: older epoch \| .*\.logStartOffset: Kafka 0, we -1$"),
        "As in Kafka 4, a refused partition has no log start offset.",
    ),
)

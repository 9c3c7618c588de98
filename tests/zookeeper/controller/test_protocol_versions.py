"""What inter.broker.protocol.version selects: a table read from Kafka 3.9.2's MetadataVersion.

The columns are `fetchRequestVersion`, `listOffsetRequestVersion`,
`offsetForLeaderEpochRequestVersion`, then ControllerChannelManager's LeaderAndIsr, UpdateMetadata
and StopReplica, then TransactionMarkerChannelManager's WriteTxnMarkers, then whether
AlterPartition, topic ids, allocated producer ids and feature versioning are supported, and the
recovery state.
"""

import subprocess
from pathlib import Path

import pytest

from sparkraft.server.broker.inter_broker_versions import at_protocol_version
from sparkraft.server.zookeeper_config import metadata_level
from sparkraft.zookeeper.controller.protocol_version import parse_protocol_version
from tests.support.jvm import java_command
from tests.support.kafka_jars import kafka_3_9_jars_or_reason
from tests.support.outside_tools import Missing

TABLE = """
2.6-IV0  11 5 3  4 6 3  0  no  no  no  no  no
2.7-IV0  11 5 3  4 6 3  0  no  no  no  yes no
2.7-IV1  12 5 3  4 6 3  0  no  no  no  yes no
2.7-IV2  12 5 3  4 6 3  0  yes no  no  yes no
2.8-IV0  12 6 4  4 6 3  1  yes yes no  yes no
2.8-IV1  12 6 4  5 7 3  1  yes yes no  yes no
3.0-IV0  12 6 4  5 7 3  1  yes yes yes yes no
3.0-IV1  12 7 4  5 7 3  1  yes yes yes yes no
3.1-IV0  13 7 4  5 7 3  1  yes yes yes yes no
3.2-IV0  13 7 4  6 7 3  1  yes yes yes yes yes
3.3-IV0  13 7 4  6 7 3  1  yes yes yes yes yes
3.3-IV3  13 7 4  6 7 3  1  yes yes yes yes yes
3.4-IV0  13 7 4  7 8 4  1  yes yes yes yes yes
3.5-IV0  14 8 4  7 8 4  1  yes yes yes yes yes
3.5-IV1  15 8 4  7 8 4  1  yes yes yes yes yes
3.6-IV2  15 8 4  7 8 4  1  yes yes yes yes yes
3.7-IV3  15 8 4  7 8 4  1  yes yes yes yes yes
3.7-IV4  16 8 4  7 8 4  1  yes yes yes yes yes
3.8-IV0  16 8 4  7 8 4  1  yes yes yes yes yes
3.9-IV0  17 9 4  7 8 4  1  yes yes yes yes yes
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


def yes(flag: bool) -> str:
    return "yes" if flag else "no"


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_protocol_version_selects_what_it_does_in_kafka(row):
    protocol = parse_protocol_version(row[0])
    versions = at_protocol_version(protocol)
    numbers = [
        versions.fetch,
        versions.list_offsets,
        versions.offset_for_leader_epoch,
        protocol.leader_and_isr,
        protocol.update_metadata,
        protocol.stop_replica,
        versions.write_txn_markers,
    ]
    flags = [
        protocol.has_alter_partition,
        protocol.has_topic_ids,
        protocol.has_allocated_producer_ids,
        protocol.has_features,
        protocol.has_recovery_state,
    ]
    assert [*map(str, numbers), *map(yes, flags)] == row[1:]
    assert versions.truncates_on_fetch == (protocol >= (2, 7, 1)), "KIP-595"
    assert protocol.registration == (5 if protocol.has_features else 4), "BrokerIdZNode"
    assert protocol.features == (2 if protocol >= (3, 3, 0) else 1), "FeatureZNode"


@pytest.mark.parametrize(
    ("named", "level"), [("2.6", None), ("3.2", None), ("3.3", 7), ("3.9", 21)]
)
def test_a_protocol_version_has_a_metadata_version_from_3_3_on(named, level):
    assert metadata_level(parse_protocol_version(named)) == level


PROGRAM = """
import org.apache.kafka.server.common.MetadataVersion;

public class Table {
    static String yes(boolean flag) { return flag ? "yes" : "no"; }

    public static void main(String[] names) {
        for (String name : names) {
            MetadataVersion v = MetadataVersion.fromVersionString(name);
            System.out.println(String.join(" ",
                name,
                "" + v.fetchRequestVersion(),
                "" + v.listOffsetRequestVersion(),
                "" + v.offsetForLeaderEpochRequestVersion(),
                yes(v.isAlterPartitionSupported()),
                yes(v.isTopicIdsSupported()),
                yes(v.isAllocateProducerIdsSupported()),
                yes(v.isFeatureVersioningSupported()),
                yes(v.isLeaderRecoverySupported())));
        }
    }
}
"""


@pytest.mark.java
def test_the_table_is_that_of_kafkas_class(tmp_path: Path):
    jars = kafka_3_9_jars_or_reason()
    if isinstance(jars, Missing):
        pytest.skip(jars.reason)
    source = tmp_path / "Table.java"
    source.write_text(PROGRAM)
    command = [*java_command(jars), str(source), *[row[0] for row in ROWS]]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert [line.split() for line in output.splitlines()] == [[*row[:4], *row[8:]] for row in ROWS]

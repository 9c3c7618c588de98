"""A metadata log with a torn tail starts; one that lost committed records is refused."""

from pathlib import Path

import pytest

from sparkraft.base.ids import Offset
from sparkraft.protocol.framing import encode_metadata_record
from sparkraft.protocol.messages.metadata_records import FeatureLevelRecord
from sparkraft.records.batch import BATCH_OVERHEAD, parse_header
from sparkraft.records.record import BatchBuilder
from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients


def metadata_log(node: SparkraftNode) -> Path:
    return node.log_dir / "__cluster_metadata-0" / f"{0:020}.log"


def create_topics(node: SparkraftNode, *names: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(30)


def topics_of(node: SparkraftNode) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=30).topics)


def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    with SparkraftNode(tmp_path) as node:
        create_topics(node, "one", "two")
        node.kill()
        whole = metadata_log(node).read_bytes()
        # A batch that was being written: the start of an earlier one, as if it came again.
        metadata_log(node).write_bytes(whole + whole[:77])
        node.start()
        assert topics_of(node) == {"one", "two"}
        create_topics(node, "three")
        node.kill()
        assert metadata_log(node).read_bytes().startswith(whole)
        node.start()
        assert topics_of(node) == {"one", "two", "three"}


@pytest.mark.parametrize("damage", ["a flipped byte", "a missing tail"])
def test_lost_committed_records_are_refused_with_a_sentence(damage: str, tmp_path: Path) -> None:
    with SparkraftNode(tmp_path) as node:
        create_topics(node, "one", "two")
        assert node.stop() == 0
        whole = metadata_log(node).read_bytes()
        if damage == "a flipped byte":
            at = whole.index(b"two")
            metadata_log(node).write_bytes(whole[:at] + b"Two" + whole[at + 3 :])
        else:
            metadata_log(node).write_bytes(whole[: whole.rindex(b"two")])
        damaged = metadata_log(node).read_bytes()
        said = node.refused_start()
        assert "can't start" in said
        assert "__cluster_metadata-0" in said
        assert "recovery point" in said or "recovery-point" in said
        assert metadata_log(node).read_bytes() == damaged, "it is left as it is"
        metadata_log(node).write_bytes(whole)
        node.start()
        assert topics_of(node) == {"one", "two"}


def test_damage_is_told_from_a_torn_tail_from_the_first_commit_on(tmp_path: Path) -> None:
    """Before any checkpoint by the clock: the log would else be cut to nothing."""
    with SparkraftNode(tmp_path) as node:
        points = node.log_dir / "recovery-point-offset-checkpoint"
        wait_until(
            lambda: points.exists() and "__cluster_metadata 0" in points.read_text(),
            "the first commit is known on disk",
        )
        node.kill()
        broken = bytearray(metadata_log(node).read_bytes())
        broken[BATCH_OVERHEAD + 2] ^= 1
        metadata_log(node).write_bytes(broken)
        said = node.refused_start()
        assert "recovery-point-offset-checkpoint" in said or "recovery point" in said
        assert metadata_log(node).read_bytes() == broken


UNREADABLE = {
    "a type of record that nobody knows": (bytes([1, 99, 0]), "99"),
    "a version of a record that is too new": (bytes([1, 2, 9]) + b"\0" * 20, "version 9"),
    "a metadata.version above ours": (
        encode_metadata_record(FeatureLevelRecord(name="metadata.version", feature_level=31), 0),
        "31",
    ),
    "a level of a feature above ours": (
        encode_metadata_record(FeatureLevelRecord(name="group.version", feature_level=2), 0),
        "group.version",
    ),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_record_from_a_later_version_stops_the_node_with_a_sentence(
    what: str, tmp_path: Path
) -> None:
    record, named = UNREADABLE[what]
    with SparkraftNode(tmp_path) as node:
        create_topics(node, "one")
        assert node.stop() == 0
        path = metadata_log(node)
        whole = path.read_bytes()
        headers = []
        at = 0
        while at < len(whole):
            headers.append(parse_header(whole[at : at + BATCH_OVERHEAD]))
            at += headers[-1].size_in_bytes
        last = headers[-1]
        builder = BatchBuilder(
            base_offset=Offset(last.last_offset + 1), leader_epoch=last.partition_leader_epoch
        )
        builder.append(last.max_timestamp, None, record)
        path.write_bytes(whole + builder.build())
        said = node.refused_start()
        (reason,) = [line for line in said.splitlines() if " CRITICAL " in line]
        assert named in reason, said

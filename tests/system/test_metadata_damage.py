"""A metadata log with a torn tail starts; one that lost committed records is refused."""

from pathlib import Path

import pytest

from tests.support.nodes import SparkraftNode

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

"""Sentences that a node says once, where somebody would look for them."""

from pathlib import Path

import pytest

from tests.support.nodes import SparkraftNode

pytestmark = pytest.mark.real_clients

SENTENCE = "keep every record: compaction does not exist yet"
_ROOT = Path(__file__).resolve().parents[2]


def test_compacted_topics_keep_everything_and_the_node_says_so_once_a_start(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    with SparkraftNode(tmp_path) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("plain", 1, 1)])["plain"].result(30)
        assert SENTENCE not in node.output_path.read_text(), "nobody asked for compaction so far"
        for name in ("first", "second"):
            new = NewTopic(name, 3, 1, config={"cleanup.policy": "compact"})
            admin.create_topics([new])[name].result(30)
        (line,) = [said for said in node.output_path.read_text().splitlines() if SENTENCE in said]
        assert "WARN" in line
        assert "such as first," in line
        assert node.stop() == 0
        node.start()
        assert node.output_path.read_text().count(SENTENCE) == 2


@pytest.mark.parametrize("page", ["docs/beyond-apis.md", "COVERAGE.md"])
def test_the_documents_say_so_too(page: str) -> None:
    (line,) = [
        line
        for line in (_ROOT / page).read_text().splitlines()
        if line.startswith("| `cleanup.policy=compact` |")
    ]
    assert "nothing is removed until compaction exists" in line

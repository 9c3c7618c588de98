"""`topics` at a controller's listener: what a controller serves works, the rest names a broker.

Kafka's controllers serve CreateTopics and DeleteTopics, but not Metadata (the `listeners` of its
request schemas).
"""

from collections.abc import Callable

import pytest

from sparkraft.cli import main as cli
from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until

pytestmark = pytest.mark.real_clients


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with SparkraftNode(tmp_path_factory.mktemp("controller")) as made:
        yield made


@pytest.fixture
def topics(node, capsys) -> Callable[..., str]:
    def run(*argv: str, code: int = 0, port: int | None = None) -> str:
        address = f"127.0.0.1:{port or node.controller_port}"
        assert cli.main(["topics", "--bootstrap-server", address, *argv]) == code
        printed = capsys.readouterr()
        return printed.out if code == 0 else printed.err

    return run


def test_a_topic_is_created_and_deleted_by_its_name(topics, node):
    def listed(names: list[str]) -> None:
        """The broker lists these, as soon as it has the metadata."""
        wait_until(lambda: topics("--list", port=node.port).split() == names, f"it lists {names}")

    assert topics("--create", "--topic", "orders") == "Created topic orders.\n"
    listed(["orders"])
    assert topics("--delete", "--topic", "orders") == ""
    listed([])
    missing = "Topic 'orders' does not exist as expected"
    assert missing in topics("--delete", "--topic", "orders", code=1)
    assert topics("--delete", "--topic", "orders", "--if-exists") == ""


@pytest.mark.parametrize(
    "argv",
    [
        ("--list",),
        ("--describe",),
        ("--delete", "--topic", "orders.*"),
        ("--alter", "--topic", "orders", "--partitions", "2"),
    ],
)
def test_what_needs_the_list_of_topics_asks_for_a_broker(topics, node, argv):
    said = topics(*argv, code=1)
    place = f"127.0.0.1:{node.controller_port}"
    assert f"{place} is a controller and does not serve Metadata; connect to a broker" in said

"""What a node's process does about garbage: nothing while it starts, the usual once it serves."""

import sys
from pathlib import Path

import pytest

from tests.support.nodes import START_SECONDS, SparkraftNode

pytestmark = pytest.mark.real_clients

WATCHED = """
import gc, os, signal, sys, threading, time

from sparkraft.cli import server_start


def watch():
    end = time.monotonic() + 120
    switched_off = False
    while time.monotonic() < end and not (switched_off and gc.isenabled()):
        switched_off = switched_off or not gc.isenabled()
        time.sleep(0.001)
    # In one write: the node's log goes to the same stream.
    sys.stdout.write(f"collects {gc.isenabled()} spared {gc.get_freeze_count()}\\n")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=watch, daemon=True).start()
sys.exit(server_start.main(sys.argv[1:]))
"""


class WatchedNode(SparkraftNode):
    """A node that tells how its process collects garbage once it serves, and then stops."""

    def start_command(self) -> list[str]:
        """`server-start` beside a thread that watches."""
        return [sys.executable, "-c", WATCHED, str(self.properties_path)]


def test_a_node_that_serves_collects_garbage_and_spares_what_its_start_made(tmp_path: Path) -> None:
    node = WatchedNode(tmp_path / "node")
    node.format()
    node.launch()
    assert node.wait(seconds=START_SECONDS) == 0, node.output_tail()
    told = [line for line in node.output_path.read_text().splitlines() if "collects" in line]
    assert len(told) == 1, node.output_tail()
    _, collects, _, spared = told[0].split()
    assert collects == "True"
    assert int(spared) > 10_000

"""`node start|stop|kill|pause|resume ID`: one node of a local cluster, to test or to break it."""

from sparkraft.cli import local_cluster
from sparkraft.cli.errors import UsageError
from sparkraft.cli.local_cluster import ClusterDirectory, LocalCluster, LocalNode
from sparkraft.cli.options import Options
from sparkraft.cli.session import warn


def _start(cluster: LocalCluster, node: LocalNode) -> None:
    local_cluster.start(cluster, [node])
    if cluster.has_majority:
        local_cluster.wait_until_serving(cluster, node)
    else:
        warn("it serves once a majority of the controllers runs")


_ACTIONS = {
    "start": (_start, "started"),
    "stop": (lambda _, node: local_cluster.stop(node), "stopped"),
    "kill": (lambda _, node: local_cluster.kill(node), "killed"),
    "pause": (lambda _, node: local_cluster.pause(node), "paused"),
    "resume": (lambda _, node: local_cluster.resume(node), "resumed"),
}


def main(argv: list[str]) -> int:
    """Do one thing to one node."""
    options = Options("node", "Starts, stops, kills (-9), pauses or resumes one node.")
    options.add_argument("action", choices=list(_ACTIONS))
    options.add_argument("id", type=int)
    options.value("--dir", about="directory of the cluster", required=True, metavar="DIR")
    values = options.parse(argv)
    if values.id < 1:
        raise UsageError("ids count from 1")
    directory = ClusterDirectory(values.dir)
    directory.load()
    act, done = _ACTIONS[values.action]
    with directory.locked():
        cluster = directory.load()
        try:
            act(cluster, cluster.node(values.id))
        finally:
            directory.save(cluster)
    print(f"node {values.id} {done}")
    return 0

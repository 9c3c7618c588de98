"""`down`: stops the cluster that `up` started in a directory; its data stays."""

from sparkraft.cli import local_cluster, local_console
from sparkraft.cli.local_cluster import ClusterDirectory
from sparkraft.cli.options import Options


def main(argv: list[str]) -> int:
    """Stop every node that runs."""
    options = Options("down", "Stops the cluster that `up` started in DIR; its data stays.")
    options.value("--dir", about="directory of the cluster", required=True, metavar="DIR")
    directory = ClusterDirectory(options.parse(argv).dir)
    directory.load()
    with directory.locked():
        cluster = directory.load()
        local_console.stop(directory)
        running = local_cluster.stop_all(cluster)
        for node in cluster.nodes:
            node.state = local_cluster.STOPPED
        directory.save(cluster)
    print("stopped" if running else "nothing was running")
    return 0

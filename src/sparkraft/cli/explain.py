"""`explain`: health of the cluster; history of its quorum, partitions, brokers, groups. Ours."""

from __future__ import annotations

from importlib import import_module

from sparkraft.cli.errors import UsageError

_MODULES = {
    "cluster": "explain_cluster",
    "quorum": "explain_quorum",
    "partition": "explain_partition",
    "broker": "explain_broker",
    "topic": "explain_topic",
    "group": "explain_group",
    "controller": "explain_controller",
    "failover": "explain_failover",
    "broker-failure": "explain_broker_failure",
}

_HELP = """\
usage: sparkraft explain cluster                     whether it is healthy, in one sentence
       sparkraft explain quorum                      who was elected controller, and why
       sparkraft explain partition TOPIC PARTITION   who leads it, since when, and why
       sparkraft explain broker ID                   what it leads, won, lost, and where it lags
       sparkraft explain topic NAME                  all its partitions, a line each
       sparkraft explain group ID                    its members, epochs and moved partitions
       sparkraft explain controller                  the controller in ZooKeeper mode, and why
       sparkraft explain failover                    what the next ZooKeeper controller would do
       sparkraft explain broker-failure ID           what a ZooKeeper controller does if it fails

each with --bootstrap-server HOST:PORT [--output json], but the last two with --zookeeper
HOST:PORT; `sparkraft explain WHAT --help` lists more
"""


def main(argv: list[str]) -> int:
    """Explain."""
    if not argv or argv[0] in {"-h", "--help"}:
        print(_HELP, end="")
        return 0 if argv else 2
    if argv[0] not in _MODULES:
        raise UsageError(f"expected one of {_names()}, got {argv[0]!r}")
    code: int = import_module(f"sparkraft.cli.{_MODULES[argv[0]]}").main(argv[1:])
    return code


def _names() -> str:
    return ", ".join(_MODULES)

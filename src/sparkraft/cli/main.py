"""`sparkraft COMMAND …`: finds the command's module, runs it, turns failures into sentences.

Invariant: importing this module loads nothing but itself; `server-start` depends on it.
"""

import os
import sys
from importlib import import_module

_KAFKA_COMMANDS = {
    "server-start": "run one node from a server.properties",
    "storage": "format and inspect log directories; random-uuid",
    "topics": "create, list, describe, alter, delete topics",
    "acls": "add, remove, list access control entries",
    "client-metrics": "list, describe and change which metrics clients push",
    "delegation-tokens": "create, renew, expire, describe delegation tokens",
    "configs": "describe and alter configs, quotas and SCRAM users",
    "console-producer": "send lines of standard input as records",
    "console-consumer": "print records",
    "consumer-groups": "list, describe, reset, delete consumer groups",
    "groups": "list groups of all types",
    "transactions": "list, describe and abort transactions, find hanging ones",
    "get-offsets": "first, last and by-time offsets of partitions",
    "delete-records": "delete records below an offset",
    "leader-election": "elect preferred leaders, or unclean leaders for partitions without one",
    "reassign-partitions": "move partitions to other brokers or directories",
    "cluster": "the cluster's id, unregister a broker, list endpoints",
    "log-dirs": "describe the brokers' log directories",
    "replica-verification": "compare the replicas of partitions",
    "dump-log": "print segments, indexes, snapshots and cluster metadata",
    "broker-api-versions": "which requests each broker serves",
    "metadata-quorum": "the state of the metadata quorum",
    "features": "describe, upgrade, downgrade feature levels",
    "zookeeper-shell": "read and change the znodes of a ZooKeeper ensemble",
    "zookeeper-security-migration": "set or remove access control lists of znodes",
    "producer-perf-test": "measure producing",
    "consumer-perf-test": "measure consuming",
}
_OUR_COMMANDS = {
    "up": "start a cluster on this machine",
    "down": "stop such a cluster",
    "node": "start, stop, kill, pause, resume one node of such a cluster",
    "explain": "explain who leads the quorum or a partition, since when, and why",
    "metadata-log": "print what changed in the cluster's metadata, record by record",
    "console": "show the cluster in a web browser",
    "console-users": "list, add and remove the users of a console",
    "zookeeper-controller": "show and move the controller of a ZooKeeper cluster",
    "zookeeper-migration": "check and follow the migration of a ZooKeeper cluster to KRaft",
    "zookeeper-check": "check the znodes of a Kafka cluster in ZooKeeper",
    "pipeline": "run pipelines on Spark",
    "simulate": "run quorums by seed, with faults, and check every invariant",
    "fault-proxy": "break the network between real nodes",
}
_MODULES = {
    name: f"sparkraft.cli.{name.replace('-', '_')}" for name in (*_KAFKA_COMMANDS, *_OUR_COMMANDS)
}

FAILED = 1
USAGE = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(_overview())
        return 0 if arguments else USAGE
    if arguments[0] == "version":
        return _version() or _build()
    if arguments[0] == "--version":
        return _version()
    command = arguments[0].removeprefix("kafka-").removesuffix(".sh")
    if command not in _MODULES:
        return _unknown(arguments[0])
    if arguments[1:] == ["--version"]:
        return _version()  # also for those that have commands of their own, or no `Options`
    return _run(command, arguments[1:])


def _version() -> int:
    """Print our version; Kafka's tools print Kafka's (CommandDefaultOptions)."""
    from sparkraft import __version__

    print(__version__)
    return 0


def _build() -> int:
    """Print whether the walk of records is compiled (`setup.py`)."""
    from sparkraft.records.walk import IS_COMPILED

    print(f"records: {'compiled' if IS_COMPILED else 'pure Python'}")
    return 0


def _run(command: str, arguments: list[str]) -> int:
    try:
        code: int = import_module(_MODULES[command]).main(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader closed our output, as `head` does: this is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _failure(command, error)
    return code


def _failure(command: str, error: Exception) -> int:
    """Say what went wrong; raise `error` again if it is a bug of ours."""
    from sparkraft.cli.errors import exit_code_and_sentence

    found = exit_code_and_sentence(command, error)
    if found is None:
        raise error
    code, sentence = found
    print(sentence, file=sys.stderr)
    return code


def _unknown(name: str) -> int:
    from difflib import get_close_matches

    near = get_close_matches(name, _MODULES, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    print(f"sparkraft has no command {name}{hint} `sparkraft --help` lists them", file=sys.stderr)
    return USAGE


def _overview() -> str:
    width = max(map(len, _MODULES)) + 1

    def table(commands: dict[str, str]) -> list[str]:
        return [f"  {name:<{width}} {about}" for name, about in commands.items()]

    return "\n".join(
        [
            "usage: sparkraft COMMAND [options]     sparkraft COMMAND --help",
            "",
            "Kafka's tools, with Kafka's options:",
            *table(_KAFKA_COMMANDS),
            "",
            "Ours:",
            *table(_OUR_COMMANDS),
            "",
            "A first session:  sparkraft up --dir data --detach",
            "                  sparkraft topics --bootstrap-server localhost:9092 --list",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
